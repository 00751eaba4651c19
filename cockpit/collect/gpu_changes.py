"""Events that nobody reports and that show between two ticks: throttling, memory errors, GPUs that
are lost or come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cockpit.model.event import Event, EventKind, Severity
from cockpit.model.gpu import Gpu
from cockpit.model.text import plural
from cockpit.model.time import iso

HOLD_TICKS = 2
"""A reason that was there for one tick only is no event: the mask flickers."""
CLEAR_S = 5.0
POWER_CAP_CLEAR_S = 60.0
"""A GPU under full load leaves and meets its power limit all the time: one event is enough."""
CORRECTED_PERIOD_S = 60.0
ECC_TOLD_S = 10.0
"""The counter follows a double-bit event within one reading of the slow tier."""

_REASONS: dict[str, tuple[Severity, str]] = {
    "hw_slowdown": ("warning", "the hardware slows it down (heat or power)"),
    "hw_thermal_slowdown": ("warning", "it is too hot: the hardware slows it down"),
    "sw_thermal_slowdown": ("warning", "it is too hot: the driver slows it down"),
    "hw_power_brake_slowdown": ("warning", "the power supply asks it to slow down"),
    "sw_power_cap": ("info", "it runs at its power limit"),
}
"""The reasons that mean something to a person. ``gpu_idle`` and chosen clocks do not."""


@dataclass(slots=True)
class _Reason:
    ticks: int = 0
    told: bool = False
    last_s: float = 0.0
    since_s: float = 0.0


@dataclass(slots=True)
class _Known:
    """What is remembered of one GPU."""

    lost: bool = False
    reasons: dict[str, _Reason] = field(default_factory=dict)
    uncorrected: int | None = None
    corrected: int | None = None
    corrected_told_s: float | None = None
    ecc_event_s: float = float("-inf")


class ChangeWatch:
    """Compares each tick with the ones before."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def double_bit_error(self, gpu: int, now_s: float, at_s: float) -> Event:
        """NVML reported one: told at once, and the counter's step that follows is not news."""
        self._known.setdefault(gpu, _Known()).ecc_event_s = now_s
        sentence = f"GPU {gpu}: uncorrectable memory error (double-bit ECC)"
        return _event(at_s, gpu, "ecc", "error", sentence)

    def look(self, gpus: Iterable[Gpu], now_s: float, at_s: float) -> list[Event]:
        """``now_s`` is monotonic, ``at_s`` the wall clock of the same moment."""
        events: list[Event] = []
        for gpu in gpus:
            known = self._known.setdefault(gpu.index, _Known())
            events += _presence(gpu, known, at_s)
            if gpu.state == "ok":
                events += _throttling(gpu, known, now_s, at_s)
                events += _memory_errors(gpu, known, now_s, at_s)
        return events


def _event(at_s: float, gpu: int, kind: EventKind, severity: Severity, sentence: str) -> Event:
    return Event(at=iso(at_s), gpu=gpu, kind=kind, severity=severity, sentence=sentence)


def _presence(gpu: Gpu, known: _Known, at_s: float) -> list[Event]:
    if gpu.state == "lost" and not known.lost:
        known.lost = True
        sentence = (
            f"GPU {gpu.index} is lost: the driver cannot reach it any more. "
            "Look for Xid 79 in the kernel log; it usually takes a reboot"
        )
        return [_event(at_s, gpu.index, "lost", "error", sentence)]
    if gpu.state == "ok" and known.lost:
        known.lost = False
        return [_event(at_s, gpu.index, "recovered", "info", f"GPU {gpu.index} answers again")]
    return []


def _throttling(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    if gpu.throttle_reasons is None:
        return []
    events = []
    for name, (severity, words) in _REASONS.items():
        reason = known.reasons.setdefault(name, _Reason())
        if name in gpu.throttle_reasons:
            if not reason.ticks:
                reason.since_s = now_s
            reason.ticks += 1
            reason.last_s = now_s
            if reason.ticks >= HOLD_TICKS and not reason.told:
                reason.told = True
                sentence = f"GPU {gpu.index}: {words}{_heat(gpu, name)}"
                events.append(_event(at_s, gpu.index, "throttle", severity, sentence))
        elif reason.told:
            events += _cleared(gpu, name, reason, now_s, at_s)
        else:
            reason.ticks = 0
    return events


def _heat(gpu: Gpu, name: str) -> str:
    if "thermal" not in name or gpu.temperature_c is None:
        return ""
    return f" ({gpu.temperature_c} °C)"


def _cleared(gpu: Gpu, name: str, reason: _Reason, now_s: float, at_s: float) -> list[Event]:
    patience = POWER_CAP_CLEAR_S if name == "sw_power_cap" else CLEAR_S
    if now_s - reason.last_s < patience:
        return []
    seconds = reason.last_s - reason.since_s
    reason.told, reason.ticks = False, 0
    if name == "sw_power_cap":
        return []
    sentence = f"GPU {gpu.index}: no longer slowed down ({name}, {seconds:.0f} s)"
    return [_event(at_s, gpu.index, "throttle", "info", sentence)]


def _memory_errors(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    events = []
    new = _growth(gpu.ecc_uncorrected, known.uncorrected)
    if gpu.ecc_uncorrected is not None:
        known.uncorrected = gpu.ecc_uncorrected
    if new and now_s - known.ecc_event_s > ECC_TOLD_S:
        sentence = (
            f"GPU {gpu.index}: {plural(new, 'new uncorrectable memory error')} "
            f"({gpu.ecc_uncorrected} since the driver was loaded)"
        )
        events.append(_event(at_s, gpu.index, "ecc", "error", sentence))
    return events + _corrected_errors(gpu, known, now_s, at_s)


def _corrected_errors(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    """Told at most once a minute, with their sum: a failing row makes one every second."""
    count = gpu.ecc_corrected
    if count is None:
        return []
    new = _growth(count, known.corrected)
    if known.corrected is None or count < known.corrected:
        known.corrected = count
        return []
    told = known.corrected_told_s
    if not new or (told is not None and now_s - told < CORRECTED_PERIOD_S):
        return []
    known.corrected, known.corrected_told_s = count, now_s
    sentence = (
        f"GPU {gpu.index}: {plural(new, 'memory error')} corrected "
        f"({count} since the driver was loaded)"
    )
    return [_event(at_s, gpu.index, "ecc", "info", sentence)]


def _growth(now: int | None, before: int | None) -> int:
    """0 for the first reading, and after a reset."""
    return max(0, now - before) if now is not None and before is not None else 0
