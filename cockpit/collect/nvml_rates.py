"""What needs two readings: traffic over PCIe and NVLink, and the activity of the SMs (GPM).

PCIe traffic comes from GPM where the GPU has it. The byte counters (fields 197 and 198, the
fallback) are 32 bits wide: above 4.3 GB/s they wrap more than once a second, and nothing tells how
often. nvmlDeviceGetPcieThroughput is never used: it blocks 20 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.collect import nvml
from cockpit.collect.nvml import FieldValue, Handle, NvmlError
from cockpit.collect.nvml_fields import RECHECK_S, Answers, Silence

MEMORY_TEMPERATURE = 82
PCIE_TX, PCIE_RX = 197, 198
NVLINK_TX, NVLINK_RX = 138, 139
MIN_WINDOW_S = 0.25
"""Two readings closer together make a rate that jumps; the last one is kept instead."""

_MIB = 1 << 20
_GPM_PERCENT = {2: "sm_active_pct", 3: "sm_occupancy_pct", 5: "tensor_active_pct"}
_GPM_PERCENT[10] = "dram_active_pct"
_GPM_TRAFFIC = {20: "pcie_tx_bytes_per_s", 21: "pcie_rx_bytes_per_s"}
GPM_FIELDS = tuple(_GPM_PERCENT.values())
PCIE_FIELDS = tuple(_GPM_TRAFFIC.values())
NVLINK_FIELDS = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")


@dataclass(frozen=True, slots=True)
class _Counter:
    field: str
    unit_bytes: int
    bits: int


_COUNTERS = {
    PCIE_TX: _Counter("pcie_tx_bytes_per_s", 1, 32),
    PCIE_RX: _Counter("pcie_rx_bytes_per_s", 1, 32),
    NVLINK_TX: _Counter("nvlink_tx_bytes_per_s", 1024, 64),
    NVLINK_RX: _Counter("nvlink_rx_bytes_per_s", 1024, 64),
}


def rate(old: FieldValue, new: FieldValue, unit_bytes: int, bits: int) -> float | None:
    """Bytes per second between two readings of a counter of that width; None: no time between.

    A 32-bit counter that went back has wrapped; a 64-bit one was reset, which is no traffic.
    """
    seconds = (new.at_us - old.at_us) / 1e6
    if seconds <= 0:
        return None
    delta = new.value - old.value
    if delta < 0:
        if bits > 32:
            return None
        delta += 1 << bits
    return delta * unit_bytes / seconds


class Rates:
    """The counters of one GPU between ticks."""

    def __init__(self, handle: Handle, silence: Silence) -> None:
        self._handle = handle
        self._silence = silence
        self._last: dict[int, FieldValue] = {}
        self._gpm: nvml.Gpm | None = None
        self._gpm_checked_s = -RECHECK_S
        self._gpm_gap = "not_read_yet"
        self._read_s = 0.0

    def read(self, now_s: float) -> Answers:
        """Rates since the last call and the memory's temperature. Empty when called too early.

        Raises NvmlError when the GPU or the driver is gone.
        """
        answers = Answers()
        if now_s - self._read_s < MIN_WINDOW_S:
            return answers
        self._read_s = now_s
        self._read_gpm(now_s, answers)
        self._read_fields(now_s, answers)
        return answers

    def _read_gpm(self, now_s: float, answers: Answers) -> None:
        try:
            if self._gpm is None:
                self._open_gpm(now_s)
            metrics = self._gpm.read() if self._gpm else {}
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            self._gpm, self._gpm_gap, metrics = None, error.gap, {}
        names = GPM_FIELDS + PCIE_FIELDS if self._gpm else GPM_FIELDS
        if metrics is None:
            answers.missing(names, "not_read_yet")
            return
        answers.missing(names, self._gpm_gap)
        for metric, value in metrics.items():
            if metric in _GPM_PERCENT:
                answers.values[_GPM_PERCENT[metric]] = value
            else:
                answers.values[_GPM_TRAFFIC[metric]] = value * _MIB
        for name in answers.values:
            answers.gaps.pop(name, None)

    def _open_gpm(self, now_s: float) -> None:
        if now_s - self._gpm_checked_s < RECHECK_S:
            return
        self._gpm_checked_s = now_s
        self._gpm_gap = "not_supported"
        if nvml.Gpm.is_supported(self._handle):
            self._gpm = nvml.Gpm(self._handle, (*_GPM_PERCENT, *_GPM_TRAFFIC))

    def _read_fields(self, now_s: float, answers: Answers) -> None:
        wanted: list[tuple[int, int]] = []
        for field_id, scope, name in self._fields():
            known = self._silence.reason(name, now_s)
            if known is None:
                wanted.append((field_id, scope))
            else:
                answers.gaps[name] = known
        if not wanted:
            return
        try:
            got = nvml.field_values(self._handle, wanted)
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            got = {field_id: error for field_id, _scope in wanted}
        for field_id, value in got.items():
            self._take(field_id, value, now_s, answers)

    def _fields(self) -> list[tuple[int, int, str]]:
        fields = [(MEMORY_TEMPERATURE, 0, "memory_temperature_c")]
        counters = [NVLINK_TX, NVLINK_RX] if self._gpm else list(_COUNTERS)
        for field_id in counters:
            scope = 0 if field_id in (PCIE_TX, PCIE_RX) else nvml.ALL_LINKS
            fields.append((field_id, scope, _COUNTERS[field_id].field))
        return fields

    def _take(
        self, field_id: int, got: FieldValue | NvmlError, now_s: float, answers: Answers
    ) -> None:
        counter = _COUNTERS.get(field_id)
        name = counter.field if counter else "memory_temperature_c"
        if isinstance(got, NvmlError):
            self._silence.note(name, got, now_s)
            answers.gaps[name] = got.gap
        elif counter is None:
            answers.values[name] = got.value
        else:
            self._take_counter(field_id, counter, got, answers)

    def _take_counter(
        self, field_id: int, counter: _Counter, new: FieldValue, answers: Answers
    ) -> None:
        old = self._last.get(field_id)
        if old is not None and new.at_us <= old.at_us:
            return  # the driver's own cache: the last rate still holds
        self._last[field_id] = new
        speed = None if old is None else rate(old, new, counter.unit_bytes, counter.bits)
        if speed is None:
            answers.gaps[counter.field] = "not_read_yet"
        else:
            answers.values[counter.field] = speed
