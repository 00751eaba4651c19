"""Whether a run that was started again does what the old one did not. Pure.

Looks in, an answer out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cockpit.act.step_times import FEWEST, compare_step_times, spread
from cockpit.model.remedy import Compared
from cockpit.model.run_command import RunMeasure, SeenRun
from cockpit.model.text import plural, size

ENDED_BY_SOMEBODY = frozenset(("SIGINT", "SIGTERM", "SIGHUP"))
"""Ends of which the run is innocent. SIGKILL is not one: the kernel's OOM killer sends it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """When it is decided."""

    steps: int = 20
    """So many without failing suffice where the failing step is not known."""
    settle_s: float = 120.0
    """So long without failing suffices where no step is seen either."""
    patience_s: float = 1800.0
    """Then it is left running, and nothing is claimed."""
    poll_s: float = 1.0
    hangs: bool = False
    """The old one stood still: that the new one does not fail is no sign that it works."""
    faster: bool = False
    """It is not enough that it works: its steps have to take less time than before."""


LOST_S = 5.0
"""So long nobody has seen how a run ended before that is said."""
WARM_UP = 2
"""Samples of a new run that do not count: caches fill, workers start, kernels are compiled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``verified`` as in Outcome."""

    verified: bool | None
    sentence: str
    left: tuple[int, ...] = ()
    """Pids of a run that was to end and did not."""


@dataclass
class Check:
    """Takes looks at the new run until there is an answer."""

    before: RunMeasure
    terms: Terms
    started_at: float
    """Monotonic."""
    first_step: int | None = None
    last_step: int | None = None
    allocated_peak: int | None = None
    reserved_peak: int | None = None
    step_times: list[float] = field(default_factory=list)
    lost_at: float | None = None

    def take(self, seen: SeenRun, at: float) -> Answer | None:
        """``at`` is monotonic. None: not decided yet."""
        self._note(seen)
        if seen.state == "lost":
            return self._lost(seen, at)
        if seen.state == "ended":
            answer = self._ended(seen)
        elif self.terms.faster and len(self.before.step_times_s) >= FEWEST:
            return self._compared(seen)
        else:
            running = self._running(seen, at - self.started_at)
            if running is None:
                return None
            answer = running
        return self._compared(seen) or self._not_compared(answer)

    def _lost(self, seen: SeenRun, at: float) -> Answer | None:
        """Its keeper writes how it ended a moment after it is gone."""
        self.lost_at = at if self.lost_at is None else self.lost_at
        if at - self.lost_at < LOST_S:
            return None
        return Answer(None, f"{seen.name} is gone, and nobody saw how it ended")

    def _compared(self, seen: SeenRun) -> Answer | None:
        """Whether its steps are faster; None: too few were seen, or that is not asked."""
        if not self.terms.faster or seen.exit_status:
            return None
        verdict, _, sentence = compare_step_times(self.before.step_times_s, self._settled())
        if verdict == "unknown":
            return None
        how = "ended with status 0" if seen.state == "ended" else f"goes on (pid {seen.pid})"
        return Answer(verdict == "faster", f"{seen.name}: {sentence}; it {how}")

    def _not_compared(self, answer: Answer) -> Answer:
        if not self.terms.faster or not answer.verified:
            return answer
        return Answer(None, f"{answer.sentence}; too few steps were seen to compare their times")

    def _settled(self) -> tuple[float, ...]:
        return tuple(self.step_times[WARM_UP:])

    def measure(self, seen: SeenRun | None, at: float) -> RunMeasure:
        """What was seen of the new run."""
        return RunMeasure(
            step=self.last_step,
            exit_status=seen.exit_status if seen else None,
            signal=seen.signal if seen else None,
            lasted_s=at - self.started_at,
            allocated_peak_bytes=self.allocated_peak,
            reserved_peak_bytes=self.reserved_peak,
            step_times_s=self._settled() or tuple(self.step_times),
            ooms=seen.ooms if seen else None,
        )

    def _note(self, seen: SeenRun) -> None:
        if seen.step is not None:
            self.first_step = seen.step if self.first_step is None else self.first_step
            if seen.steps_per_s and seen.step != self.last_step:
                self.step_times.append(1 / seen.steps_per_s)
            self.last_step = seen.step
        self.allocated_peak = _larger(self.allocated_peak, seen.allocated_peak_bytes)
        self.reserved_peak = _larger(self.reserved_peak, seen.reserved_peak_bytes)

    def _ended(self, seen: SeenRun) -> Answer:
        if seen.exit_status == 0:
            return Answer(True, f"{seen.name} ended with status 0")
        how = f"signal {seen.signal}" if seen.signal else f"status {seen.exit_status}"
        if seen.signal in ENDED_BY_SOMEBODY:
            return Answer(None, f"{seen.name} was ended by {how} before it was seen to work")
        at = f" after step {self.last_step}" if self.last_step else ""
        if self.before.family not in (None, seen.family):
            return Answer(None, f"{seen.name} failed with {how}{at}, {_of_else(seen)}{_UNSEEN}")
        what = "ran out of GPU memory and failed" if seen.ooms else "failed"
        again = " again" if self._had_failed() else ""
        return Answer(False, f"{seen.name} {what}{again} with {how}{at}")

    def _running(self, seen: SeenRun, for_s: float) -> Answer | None:
        failed_at, step = self.before.step, seen.step
        goes_on = f"and goes on (pid {seen.pid})"
        if failed_at is not None and step is not None:
            if step > failed_at:
                which = "at which it had failed" if self._had_failed() else "the last one of before"
                return Answer(True, f"{seen.name} passed step {failed_at}, {which}, {goes_on}")
            return None
        if step is not None and self.first_step is not None:
            done = step - self.first_step
            if done >= self.terms.steps:
                return Answer(True, f"{seen.name} did {plural(done, 'step')} {goes_on}")
            return None
        if for_s >= self._settle_s() and self.terms.hangs:
            words = f"{seen.name} runs for {for_s:.0f} s {goes_on}; no step of it is seen"
            return Answer(None, f"{words}: whether it stands still again cannot be told")
        if for_s >= self._settle_s():
            return Answer(True, f"{seen.name} runs for {for_s:.0f} s without failing {goes_on}")
        return None

    def _had_failed(self) -> bool:
        """By itself: not ended by somebody, not still there."""
        return bool(self.before.exit_status) and self.before.signal not in ENDED_BY_SOMEBODY

    def _settle_s(self) -> float:
        """Never less than what the old one took to fail, and a fifth more."""
        return max(self.terms.settle_s, 1.2 * (self.before.lasted_s or 0.0))


_UNSEEN = "; whether the change helps was not seen"


def _of_else(seen: SeenRun) -> str:
    """Not of what the old one failed of, as far as its output says."""
    return f"of something else ({seen.failure})" if seen.failure else "and does not say of what"


def compared(before: RunMeasure, after: RunMeasure) -> tuple[Compared, ...]:
    """Rows of what is known of either; nothing for what is known of neither, or never happened."""
    rows = [
        ("end", _end(before), _end(after)),
        ("last step seen", _word(before.step), _word(after.step)),
        (
            "peak memory allocated",
            size(before.allocated_peak_bytes),
            size(after.allocated_peak_bytes),
        ),
        ("peak memory reserved", size(before.reserved_peak_bytes), size(after.reserved_peak_bytes)),
        ("out-of-memory errors", _word(before.ooms), _word(after.ooms)),
        ("time a step", spread(before.step_times_s), _after_time(before, after)),
    ]
    return tuple(
        Compared(what=what, before=one, after=two)
        for what, one, two in rows
        if (one, two) not in (("–", "–"), ("0", "0"))
    )


def _after_time(before: RunMeasure, after: RunMeasure) -> str:
    text = spread(after.step_times_s)
    if not before.step_times_s or not after.step_times_s:
        return text
    found = compare_step_times(before.step_times_s, after.step_times_s)
    return text if found.verdict == "unknown" else f"{text}: {found.sentence}"


def _end(run: RunMeasure) -> str:
    if run.exit_status is None:
        return "–"
    return run.signal or f"status {run.exit_status}"


def _word(value: int | None) -> str:
    return "–" if value is None else str(value)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
