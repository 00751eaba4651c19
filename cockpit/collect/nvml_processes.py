"""Memory and processes of one GPU, read so that they fit together: memory, lists, memory."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.collect import nvml_mig
from cockpit.collect.nvml import Handle, NvmlError
from cockpit.collect.nvml_fields import Silence
from cockpit.collect.nvml_lists import ListedProcess, Memory, MemoryInfo, ProcessList, Utilization
from cockpit.collect.nvml_mig import Instance
from cockpit.collect.readings import MemoryReading, ProcessUse
from cockpit.model.process import ProcessKind

_KINDS: tuple[tuple[str, ProcessKind], ...] = (
    ("Compute", "compute"),
    ("Graphics", "graphics"),
    ("MPSCompute", "mps"),
)
SHARES_PERIOD_S = 1.8
"""The dearest call of all: 2 ms of CPU a GPU on an H200. Every other tick of a second is enough,
for the answer is the mean since the last one."""
_SM_KEPT_S = 4.0
"""Shares of the last samples hold this long when no new one comes (the driver samples slowly)."""
_SM_WINDOW_US = 1_000_000
"""How far the first question for samples looks back."""

_EMPTY_HOLDS_S = 5.0
"""An empty list of graphics or MPS processes stays empty while memory does not move (36 us)."""

_Listed = list[tuple[ProcessKind, ListedProcess]]
_Key = tuple[int, int | None]
"""pid, MIG instance."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory and who holds it, at one moment."""

    memory: Memory | None
    memory_gap: str | None
    moved: bool
    uses: tuple[ProcessUse, ...]
    list_gap: str | None
    """Why the process list is empty, when it is no answer."""

    def reading(self, gpu: int) -> MemoryReading:
        """The same as the ledger wants it."""
        if self.memory is None:
            return MemoryReading(gpu, None, None, None)
        return MemoryReading(
            gpu, self.memory.total, self.memory.free, self.memory.reserved, self.moved
        )


class Processes:
    """The lists of one GPU, with what is kept between ticks."""

    def __init__(self, gpu: int, handle: Handle, silence: Silence, wsl: bool) -> None:
        self._gpu = gpu
        self._handle = handle
        self._silence = silence
        self._wsl = wsl
        self._memory = MemoryInfo()
        self._lists: dict[str, ProcessList] = {}
        self._utilization: Utilization | None = None
        self._last_memory: Memory | None = None
        self._last_listed: _Listed = []
        self._empty_since_s: dict[str, float] = {}
        self._merged: tuple[_Listed, tuple[Instance, ...], dict[int, float]] = ([], (), {})
        """What the last uses were made of."""
        self._uses: tuple[ProcessUse, ...] = ()
        self._shares: dict[int, float] = {}
        self._shares_s = -SHARES_PERIOD_S

    def read(
        self, now_s: float, wall_s: float, mig: tuple[Instance, ...] = (), shares: bool = True
    ) -> Holding:
        """Raises NvmlError when the GPU or the driver is gone."""
        if shares and not mig and self._last_listed:
            self._read_shares(now_s, wall_s)
        for _attempt in range(2):
            before, gap = self._read_memory()
            is_still = before is not None and before == self._last_memory
            listed, list_gap = self._read_lists(now_s, mig, is_still)
            after = before
            if not (is_still and listed == self._last_listed):
                after, gap = self._read_memory()
            self._last_memory, self._last_listed = after, listed
            moved = before is not None and after is not None and before.used != after.used
            if not moved:
                break
        return Holding(after, gap, moved, self._uses_of(listed, mig), list_gap)

    def _read_memory(self) -> tuple[Memory | None, str | None]:
        try:
            return self._memory.read(self._handle), None
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            return None, error.gap

    def _read_lists(
        self, now_s: float, mig: tuple[Instance, ...], is_still: bool
    ) -> tuple[_Listed, str | None]:
        found: _Listed = []
        compute_gap = None
        for call, kind in _KINDS:
            if is_still and now_s - self._empty_since_s.get(call, -_EMPTY_HOLDS_S) < _EMPTY_HOLDS_S:
                continue
            lines, gap = self._read_list(call, now_s, mig)
            found += [(kind, line) for line in lines]
            if kind == "compute":
                compute_gap = gap
            elif lines:
                self._empty_since_s.pop(call, None)
            else:
                self._empty_since_s[call] = now_s
        return found, compute_gap

    def _read_list(
        self, call: str, now_s: float, mig: tuple[Instance, ...]
    ) -> tuple[list[ListedProcess], str | None]:
        known = self._silence.reason(call, now_s)
        if known is not None:
            return [], known
        try:
            if call not in self._lists:
                self._lists[call] = ProcessList(call)
            lines = self._lists[call].read(self._handle)
            # the parent lists the processes of its instances only to those who may see them all
            if not lines:
                lines = [line for part in mig for line in self._lists[call].read(part.handle)]
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            self._silence.note(call, error, now_s)
            return [], error.gap
        return lines, None

    def _read_shares(self, now_s: float, wall_s: float) -> None:
        age_s = now_s - self._shares_s
        if age_s < SHARES_PERIOD_S or self._silence.reason("sm_pct", now_s) is not None:
            return
        try:
            if self._utilization is None:
                self._utilization = Utilization(int(wall_s * 1e6) - _SM_WINDOW_US)
            fresh = self._utilization.read(self._handle)
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            self._silence.note("sm_pct", error, now_s)
            fresh = None
        if fresh is not None:
            self._shares, self._shares_s = fresh, now_s
        elif age_s > _SM_KEPT_S:
            self._shares = {}

    def _uses_of(self, listed: _Listed, mig: tuple[Instance, ...]) -> tuple[ProcessUse, ...]:
        """Made anew only when something changed."""
        sources = listed, mig, self._shares
        if sources != self._merged:
            self._merged, self._uses = sources, self._merge(listed, mig)
        return self._uses

    def _merge(
        self,
        listed: _Listed,
        mig: tuple[Instance, ...],
    ) -> tuple[ProcessUse, ...]:
        merged: dict[_Key, tuple[ProcessKind, int | None]] = {}
        for kind, line in listed:
            place = None
            if mig:
                place = nvml_mig.index_of(mig, line.gpu_instance, line.compute_instance)
            key = (line.pid, place)
            had = merged.get(key)
            merged[key] = (kind, line.used_bytes) if had is None else _both(had, kind, line)
        no_bytes = "wsl" if self._wsl else "not_supported"
        return tuple(
            ProcessUse(
                pid,
                self._gpu,
                kind,
                used,
                self._shares.get(pid),
                place,
                no_bytes if used is None else None,
            )
            for (pid, place), (kind, used) in merged.items()
        )


def _both(
    had: tuple[ProcessKind, int | None], kind: ProcessKind, line: ListedProcess
) -> tuple[ProcessKind, int | None]:
    """A process in two lists has one amount of memory: each list names all of it."""
    known = [used for used in (had[1], line.used_bytes) if used is not None]
    used = max(known) if known else None
    if "mps" in (had[0], kind):
        return "mps", used
    return (kind if had[0] == kind else "both"), used
