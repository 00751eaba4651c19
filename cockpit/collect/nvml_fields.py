"""Which NVML call fills which field of a Gpu, in tiers by how often the value changes.

Latencies in the comments are medians on an H200. Not here: memory and processes
(:mod:`nvml_processes`), rates (:mod:`nvml_rates`), MIG instances (:mod:`nvml_mig`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit.collect import nvml
from cockpit.collect.nvml import Handle, NvmlError
from cockpit.model.gpu import THROTTLE_REASONS

RECHECK_S = 60.0
"""A call that is not supported is made again after this: a mode may have been changed."""
_SM, _MEMORY_CLOCK = 1, 2
_GPU_SENSOR = 0
_THRESHOLD_SLOWDOWN = 1
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_NODE_SCOPE = 0
_PSTATE_UNKNOWN = 32
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_EVENT_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


@dataclass(frozen=True, slots=True)
class Question:
    """One call and the fields that its answer fills, in order."""

    fields: tuple[str, ...]
    ask: Callable[[Handle], Sequence[Any]]


class Silence:
    """Remembers which questions are not supported, so that they are not asked in every tick."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, float]] = {}

    def reason(self, key: str, now_s: float) -> str | None:
        """Why the question is not to be asked now; None: ask."""
        known = self._reasons.get(key)
        if known is None or now_s >= known[1]:
            return None
        return known[0]

    def note(self, key: str, error: NvmlError, now_s: float) -> None:
        """Keep quiet about it for a while, when it is a lasting answer."""
        if error.is_lasting:
            self._reasons[key] = (error.gap, now_s + RECHECK_S)


@dataclass(slots=True)
class Answers:
    """What one round of questions brought."""

    values: dict[str, Any] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)

    def missing(self, fields: Sequence[str], reason: str) -> None:
        """Note why fields have no value."""
        self.gaps.update(dict.fromkeys(fields, reason))

    def known(self, **values: Any) -> None:
        """Add values; None becomes the gap ``not_supported``."""
        for name, value in values.items():
            if value is None:
                self.gaps[name] = "not_supported"
            else:
                self.values[name] = value
                self.gaps.pop(name, None)


def put(questions: Sequence[Question], handle: Handle, silence: Silence, now_s: float) -> Answers:
    """Ask them all.

    Raises NvmlError when no further call makes sense: the GPU is lost, the driver is gone, or
    every single question failed with the same unexplained error.
    """
    answers = Answers()
    failures: list[NvmlError] = []
    for question in questions:
        key = question.fields[0]
        known = silence.reason(key, now_s)
        if known is not None:
            answers.missing(question.fields, known)
            continue
        try:
            answers.values.update(zip(question.fields, question.ask(handle), strict=True))
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            silence.note(key, error, now_s)
            answers.missing(question.fields, error.gap)
            if not error.is_lasting:
                failures.append(error)
    if failures and not answers.values:
        raise failures[0]
    _drop_nones(answers)
    return answers


def _drop_nones(answers: Answers) -> None:
    for name in [name for name, value in answers.values.items() if value is None]:
        del answers.values[name]
        answers.gaps[name] = "not_supported"


def one(name: str, call: str, *args: Any, to: Callable[[Any], Any] | None = None) -> Question:
    """A field that is the answer of one call, converted."""

    def read(handle: Handle) -> Sequence[Any]:
        got = nvml.ask(call, handle, *args)
        return (got if to is None else to(got),)

    return Question((name,), read)


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _utilization(handle: Handle) -> Sequence[Any]:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    return float(rates.gpu), float(rates.memory)


def _throttle(handle: Handle) -> Sequence[Any]:
    mask = nvml.ask_either(_EVENT_REASONS, handle)
    return (tuple(name for bit, name in THROTTLE_REASONS.items() if mask & bit),)


def _temperature(handle: Handle) -> Sequence[Any]:
    # deprecated for nvmlDeviceGetTemperatureV, which drivers before 550 do not have
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    return (nvml.ask_either(names, handle, _GPU_SENSOR),)


def _rows(handle: Handle) -> Sequence[Any]:
    _corrected, _uncorrected, pending, failed = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    return bool(pending), bool(failed)


def _bus_id(handle: Handle) -> Sequence[Any]:
    # NVML prints eight digits of domain, everybody else four
    bus_id = nvml.text(nvml.ask("nvmlDeviceGetPciInfo", handle).busId) or ""
    return (bus_id.lower().removeprefix("0000"),)


def _numa_node(handle: Handle) -> Sequence[Any]:
    nodes = nvml.ask("nvmlDeviceGetMemoryAffinity", handle, 1, _NODE_SCOPE)[0]
    return ((nodes & -nodes).bit_length() - 1 if nodes else None,)


def numa_node_of_bus(bus_id: str) -> int | None:
    """The kernel's word where NVML has none (it answers -1 for "no node")."""
    try:
        node = int(Path("/sys/bus/pci/devices", bus_id, "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


NAMES = (  # 4 us, 4 us, 14 us: with the first reading
    one("name", "nvmlDeviceGetName", to=nvml.text),
    one("uuid", "nvmlDeviceGetUUID", to=nvml.text),
    Question(("pci_bus_id",), _bus_id),
)
IDENTITY = (  # once, after the first reading: maximum clocks take 1.5 ms each
    one(
        "compute_capability",
        "nvmlDeviceGetCudaComputeCapability",
        to=lambda version: f"{version[0]}.{version[1]}",
    ),
    one("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", _SM),
    one("power_default_limit_w", "nvmlDeviceGetPowerManagementDefaultLimit", to=_watts),
    one("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN),
    one("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Question(("numa_node",), _numa_node),
)
SLOW = (  # every 5 s
    one("power_limit_w", "nvmlDeviceGetPowerManagementLimit", to=_watts),  # 140 us
    one(
        "compute_mode",
        "nvmlDeviceGetComputeMode",
        to=lambda mode: _COMPUTE_MODES.get(mode, str(mode)),
    ),
    one("persistence_mode", "nvmlDeviceGetPersistenceMode", to=bool),
    one("ecc_corrected", "nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
    one("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
    Question(("remapped_rows_pending", "remapped_rows_failed"), _rows),
    one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    one("fan_pct", "nvmlDeviceGetFanSpeed"),  # 127 us to say that an H200 has none
    one("encoder_pct", "nvmlDeviceGetEncoderUtilization", to=lambda answer: float(answer[0])),
    one("decoder_pct", "nvmlDeviceGetDecoderUtilization", to=lambda answer: float(answer[0])),
)
SELDOM = (  # every 30 s: 4 ms, all of it the CPU's
    one("energy_j", "nvmlDeviceGetTotalEnergyConsumption", to=lambda mj: mj / 1000),
)
MOVING = (  # every tick: 1 to 8 us each in a row, 50 us when the caches are cold
    Question(("utilization_pct", "memory_utilization_pct"), _utilization),
    one("power_w", "nvmlDeviceGetPowerUsage", to=_watts),
    Question(("temperature_c",), _temperature),
    one("sm_clock_mhz", "nvmlDeviceGetClockInfo", _SM),
    one("memory_clock_mhz", "nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
    Question(("throttle_reasons",), _throttle),
    one(
        "performance_state",
        "nvmlDeviceGetPerformanceState",
        to=lambda state: None if state == _PSTATE_UNKNOWN else state,
    ),
)
NOT_ON_MIG = ("utilization_pct", "memory_utilization_pct", "encoder_pct", "decoder_pct")
"""Fields that NVML does not have while a GPU is cut up."""
