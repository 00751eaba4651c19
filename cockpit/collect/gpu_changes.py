"""Events that nobody reports and that show between two ticks: throttling, memory errors, GPUs and
drivers that stop answering or come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cockpit.model.event import Event, EventKind, Severity
from cockpit.model.gpu import DriverError, Gpu
from cockpit.model.text import age, plural
from cockpit.model.time import iso

HOLD_TICKS = 2
"""A reason that was there for one tick only is no event: the mask flickers."""
CLEAR_S = 5.0
POWER_CAP_CLEAR_S = 60.0
"""A GPU under full load leaves and meets its power limit all the time: one event is enough."""
CORRECTED_PERIOD_S = 60.0
ECC_TOLD_S = 10.0
"""The counter is read every 5 s, NVML's double-bit event comes at once: within that time, whichever
is first, they are one fact."""
SILENT_S = 3.0
"""Without an answer for so long is an event; a GPU that answers, but late, is not back."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Throttle reasons that are one thing to a person."""

    key: str
    reasons: frozenset[str]
    severity: Severity
    words: str


_BRAKE = "hw_power_brake_slowdown"
_HEAT = ("hw_thermal_slowdown", "sw_thermal_slowdown")
_CAUSES = (
    _Cause("heat", frozenset(_HEAT), "warning", "slowed down by heat"),
    _Cause("power brake", frozenset((_BRAKE,)), "warning", "slowed down by the power supply"),
    _Cause("hardware", frozenset(("hw_slowdown",)), "warning", "slowed down by the hardware"),
    _Cause("power limit", frozenset(("sw_power_cap",)), "info", "runs at its power limit"),
)
"""``gpu_idle`` and clocks that somebody chose are no event."""


@dataclass(slots=True)
class _Episode:
    """How long a cause has been there."""

    ticks: int = 0
    told: bool = False
    last_s: float = 0.0
    since_s: float = 0.0


@dataclass(slots=True)
class _Known:
    """What is remembered of one GPU."""

    lost: bool = False
    silent_since_s: float | None = None
    """It was told that it does not answer."""
    answers_since_s: float | None = None
    episodes: dict[str, _Episode] = field(default_factory=dict)
    uncorrected: int | None = None
    corrected: int | None = None
    corrected_told_s: float | None = None
    ecc_event_s: float = float("-inf")


class _DriverWatch:
    """Whether the driver that answered once still does."""

    def __init__(self) -> None:
        self._worked = False
        self._away_since_s: float | None = None

    def look(
        self, error: DriverError | None, gpus: Sequence[Gpu], now_s: float, at_s: float
    ) -> list[Event]:
        """Back it is with the first GPU's values: a library that opens has not answered yet."""
        if error is not None:
            return self._gone(error, now_s, at_s)
        if not any(gpu.state == "ok" for gpu in gpus):
            return []
        self._worked = True
        since_s, self._away_since_s = self._away_since_s, None
        if since_s is None:
            return []
        sentence = f"The NVIDIA driver answers again, after {age(now_s - since_s)}"
        return [_event(at_s, None, "recovered", "info", sentence)]

    def _gone(self, error: DriverError, now_s: float, at_s: float) -> list[Event]:
        if not self._worked or self._away_since_s is not None:
            return []
        self._away_since_s = now_s
        sentence = f"The NVIDIA driver stopped answering: {error.code.replace('_', ' ')}"
        return [_event(at_s, None, "lost", "error", sentence)]


class ChangeWatch:
    """Compares each tick with the ones before."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._driver = _DriverWatch()

    def double_bit_error(self, gpu: int, now_s: float, at_s: float) -> Event | None:
        """NVML reported one: told at once. None: the counter's step has told it already."""
        known = self._known.setdefault(gpu, _Known())
        was_told = now_s - known.ecc_event_s <= ECC_TOLD_S
        known.ecc_event_s = now_s
        if was_told:
            return None
        sentence = f"GPU {gpu}: uncorrectable memory error (double-bit ECC)"
        return _event(at_s, gpu, "ecc", "error", sentence)

    def look(
        self,
        gpus: Sequence[Gpu],
        now_s: float,
        at_s: float,
        error: DriverError | None = None,
    ) -> list[Event]:
        """``now_s`` is monotonic, ``at_s`` the wall clock of the same moment."""
        events = self._driver.look(error, gpus, now_s, at_s)
        for gpu in gpus if error is None else ():
            known = self._known.setdefault(gpu.index, _Known())
            events += _presence(gpu, known, now_s, at_s)
            if gpu.state == "ok":
                events += _throttling(gpu, known, now_s, at_s)
                events += _memory_errors(gpu, known, now_s, at_s)
        return events


def _event(
    at_s: float, gpu: int | None, kind: EventKind, severity: Severity, sentence: str
) -> Event:
    return Event(at=iso(at_s), gpu=gpu, kind=kind, severity=severity, sentence=sentence)


def _presence(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    if gpu.state == "lost" and not known.lost:
        known.lost = True
        sentence = (
            f"GPU {gpu.index} is lost: the driver cannot reach it any more. "
            "Look for Xid 79 in the kernel log; it usually takes a reboot"
        )
        return [_event(at_s, gpu.index, "lost", "error", sentence)]
    if gpu.state == "ok" and known.lost:
        known.lost, known.silent_since_s = False, None
        return [_event(at_s, gpu.index, "recovered", "info", f"GPU {gpu.index} answers again")]
    return [] if known.lost else _silence(gpu, known, now_s, at_s)


def _silence(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    """A call that hangs is told once, and its end once: not each late answer in between."""
    if gpu.state == "stale" and gpu.age_s > SILENT_S:
        known.answers_since_s = None
        if known.silent_since_s is not None:
            return []
        known.silent_since_s = now_s - gpu.age_s
        sentence = f"GPU {gpu.index} has not answered for {gpu.age_s:.0f} s"
        return [_event(at_s, gpu.index, "lost", "warning", sentence)]
    if known.silent_since_s is None:
        return []
    if known.answers_since_s is None:
        known.answers_since_s = now_s
    if gpu.state != "ok" or now_s - known.answers_since_s < SILENT_S:
        return []
    seconds = known.answers_since_s - known.silent_since_s
    known.silent_since_s = known.answers_since_s = None
    sentence = f"GPU {gpu.index} answers again, after {age(seconds)}"
    return [_event(at_s, gpu.index, "recovered", "info", sentence)]


def _throttling(gpu: Gpu, known: _Known, now_s: float, at_s: float) -> list[Event]:
    if gpu.throttle_reasons is None:
        return []
    there = set(gpu.throttle_reasons)
    if there.intersection((*_HEAT, _BRAKE)):
        there.discard("hw_slowdown")  # set whenever one of the two hardware reasons is
    events = []
    for cause in _CAUSES:
        episode = known.episodes.setdefault(cause.key, _Episode())
        if cause.reasons & there:
            events += _continued(gpu, cause, episode, now_s, at_s)
        elif episode.told:
            events += _cleared(gpu, cause, episode, now_s, at_s)
        else:
            episode.ticks = 0
    return events


def _continued(
    gpu: Gpu, cause: _Cause, episode: _Episode, now_s: float, at_s: float
) -> list[Event]:
    if not episode.ticks:
        episode.since_s = now_s
    episode.ticks += 1
    episode.last_s = now_s
    if episode.told or episode.ticks < HOLD_TICKS:
        return []
    episode.told = True
    heat = cause.key == "heat" and gpu.temperature_c is not None
    detail = f" ({gpu.temperature_c} °C)" if heat else ""
    sentence = f"GPU {gpu.index}: {cause.words}{detail}"
    return [_event(at_s, gpu.index, "throttle", cause.severity, sentence)]


def _cleared(gpu: Gpu, cause: _Cause, episode: _Episode, now_s: float, at_s: float) -> list[Event]:
    is_notice = cause.severity == "info"
    if now_s - episode.last_s < (POWER_CAP_CLEAR_S if is_notice else CLEAR_S):
        return []
    seconds = episode.last_s - episode.since_s
    episode.told, episode.ticks = False, 0
    if is_notice:
        return []
    sentence = f"GPU {gpu.index}: no longer {cause.words}, after {age(seconds)}"
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
        known.ecc_event_s = now_s
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
