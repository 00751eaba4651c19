"""A kill, or an operation in an attached run, as a fix with a preview and an outcome.

Both are done by callables of the engine's, which judge, pin and prove. Here they only get the
shape of an Action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from cockpit.act.action import Console
from cockpit.act.step_times import compare_step_times, spread
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.action import KillPlan, KillRequest, KillResult, PlannedTarget
from cockpit.model.memory import RunOutcome, RunRequest
from cockpit.model.remedy import Compared, Outcome, Preview, UndoRecord
from cockpit.model.run import RunDevice
from cockpit.model.text import clean, size

Pace = Callable[[int, Console], tuple[float, ...]]
"""``engine.live_pace.step_times``: seconds a step of a run that goes on, measured for seconds."""
DoInRun = Callable[[RunRequest, Callable[[str], None]], RunOutcome]
"""``engine.in_run.do`` with its socket: one operation in one run. Raises CockpitError."""

# -- the kill


PlanKill = Callable[[KillRequest], KillPlan]
"""A machine's own: changes nothing. Raises RefusedError."""
RunKill = Callable[[str, str | None, Callable[[str], None]], tuple[KillResult, ...]]
"""By the plan's id, with what was typed: signals, waits, proves. Raises RefusedError."""


class KillProcesses:
    """The signal of the request; SIGKILL for who is still there is another fix (flows/kills.py)."""

    def __init__(self, request: KillRequest, plan: PlanKill, run: RunKill) -> None:
        self._request, self._make_plan, self._run_plan = request, plan, run
        self._plan: KillPlan | None = None

    def preview(self) -> Preview:
        """A new plan each time; the one shown last is the one that runs."""
        try:
            plan = self._make_plan(self._request)
        except CockpitError as error:
            return self._refused(str(error))
        self._plan = plan
        sent = [target for target in plan.targets if target.refusal is None]
        lines = tuple(_target_line(plan, target) for target in plan.targets)
        refusal = None if sent else lines[0] if lines else "There is nobody to signal."
        return Preview(
            title=_title(plan, sent),
            form="signal",
            lines=lines,
            risk="confirm",
            loses=" ".join(plan.loses) or "nothing",
            verify="the process is gone, and the driver has its memory back",
            typed=plan.typed,
            refusal=refusal,
        )

    def _refused(self, sentence: str) -> Preview:
        return Preview(
            title="end a process",
            form="signal",
            lines=(),
            risk="confirm",
            loses="nothing",
            verify="the process is gone",
            refusal=sentence,
        )

    def run(self, console: Console) -> Outcome:
        """What was previewed, once. Raises RefusedError when there was no preview."""
        plan, self._plan = self._plan, None
        if plan is None:
            raise RefusedError("Look at what it would do first: there is no plan to run.")
        # who shows the preview has asked for the typed text, which the plan compares once more
        return _outcome_of(plan, self._run_plan(plan.id, plan.typed, console.say))


def _title(plan: KillPlan, sent: list[PlannedTarget]) -> str:
    if len(sent) == 1:
        return f"SIG{plan.signal} to pid {sent[0].pid}"
    return f"SIG{plan.signal} to {len(sent)} processes"


def _target_line(plan: KillPlan, target: PlannedTarget) -> str:
    head = f"pid {target.pid} ({target.user or '?'}, {size(target.vram_bytes)})"
    told = target.refusal_sentence if target.refusal else f"SIG{plan.signal}"
    note = f"; {target.note}" if target.note else ""
    return clean(f"{head} {target.command}: {told}{note}")


def _outcome_of(plan: KillPlan, results: tuple[KillResult, ...]) -> Outcome:
    tried = [result for result in results if result.outcome not in ("refused", "missing")]
    helped = [result for result in tried if result.exit_code == 0]
    unknown = any(r.outcome == "not_freed" and r.freed_bytes is None for r in tried)
    verified = None if not tried or unknown else len(helped) == len(tried)
    return Outcome(
        ok=any(result.outcome != "failed" for result in tried),
        sentence=" ".join(_sentence(result.sentence) for result in results),
        verified=verified,
        compared=tuple(_freed(r) for r in tried if r.vram_before_bytes is not None),
        output=tuple(f"SIG{plan.signal} pid {r.pid}: {r.outcome}" for r in results),
    )


def _freed(result: KillResult) -> Compared:
    before = result.vram_before_bytes or 0
    after = None if result.freed_bytes is None else before - result.freed_bytes
    return Compared(what=f"memory of pid {result.pid}", before=size(before), after=size(after))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!")) else f"{text}."


# -- in an attached run

_MEMORY = "what the allocator holds before and after is compared"


class _Words(NamedTuple):
    """Of one operation."""

    title: str
    loses: str
    verify: str


_OPERATIONS: dict[str, _Words] = {
    "gc": _Words("collect garbage in pid {pid}", "one step takes longer (0.1 to 1 s)", _MEMORY),
    "empty_cache": _Words(
        "give cached memory of pid {pid} back to the driver",
        "the next steps are slower: they ask the driver for memory again",
        _MEMORY,
    ),
    "set": _Words(
        "set {name} to {value} in pid {pid}",
        "nothing",
        "the run says what it was and is; whether that helps is not measured",
    ),
    "history": _Words(
        "{name} recording allocations in pid {pid}",
        "about 2 µs an allocation; each look at its memory makes one step longer (up to 0.7 s)",
        "the run says whether it records",
    ),
    "snapshot": _Words(
        "write a memory snapshot of pid {pid}",
        "one step takes longer (up to 1 s)",
        "the run names the file that it has written",
    ),
    "profile": _Words(
        "profile {steps} steps of pid {pid}",
        "these steps are slower",
        "nothing is changed: where the time of a step goes is shown",
    ),
    "free_frames": _Words(
        "let go of the last exception in the notebook of pid {pid}",
        "%debug and %tb of that exception",
        _MEMORY,
    ),
    "detach": _Words(
        "detach from pid {pid}",
        "its memory cannot be looked into any more",
        "its agent does not answer any more",
    ),
}
_WHEN = {"free_frames": "as soon as no cell runs, on the kernel's own thread"}
_PACED = "the time of a step before and after is compared; a change inside the noise is no gain"
SETTLE_S = 2.0
"""The first steps after a change may compile anew."""
_AT_STEP = "at the next optimizer step, on its own thread"


class InRun:
    """One operation in one attached run, with what its allocator held before and after.

    A setting that is to make it faster is judged by the time of its steps, before and after.
    """

    def __init__(self, request: RunRequest, do: DoInRun, pace: Pace | None = None) -> None:
        """``pace``: for a setting."""
        self._request, self._do = request, do
        self._pace = pace if request.op == "set" else None

    def preview(self) -> Preview:
        """Asks nobody."""
        request = self._request
        title, loses, verify = _OPERATIONS[request.op]
        words = {"pid": request.pid, "name": request.name or "start"}
        told = title.format(**words, value=request.value, steps=request.steps or 3)
        if request.op == "free_frames" and request.name == "out":
            loses += ", and all kept results (Out, _, __)"
        return Preview(
            title=clean(told),
            form="operation",
            lines=(clean(told), _WHEN.get(request.op, _AT_STEP)),
            risk="confirm",
            loses=loses,
            verify=verify if self._pace is None else _PACED,
            undo="The old value is set again." if request.op == "set" else None,
        )

    def run(self, console: Console) -> Outcome:
        """Raises CockpitError with the run's own sentence."""
        if self._pace is None:
            return _outcome_in_run(self._request, self._do(self._request, console.say))
        before = self._pace(self._request.pid, console)
        outcome = _outcome_in_run(self._request, self._do(self._request, console.say))
        if not outcome.ok:
            return outcome
        console.cancelled.wait(SETTLE_S if before else 0.0)
        after = self._pace(self._request.pid, console) if before else ()
        return _with_pace(outcome, before, after)


def _with_pace(outcome: Outcome, before: Sequence[float], after: Sequence[float]) -> Outcome:
    """A difference within the noise is no gain: the setting did not help."""
    found = compare_step_times(before, after)
    told = f"{found.sentence[0].upper()}{found.sentence[1:]}."
    return msgspec.structs.replace(
        outcome,
        sentence=f"{_sentence(outcome.sentence)} {told}",
        verified=None if found.verdict == "unknown" else found.verdict == "faster",
        compared=(Compared(what="time a step", before=spread(before), after=spread(after)),),
    )


def undo_setting(do: DoInRun) -> Callable[[UndoRecord, Console], Outcome]:
    """What takes back a record of ``kind="setting"``. It may raise CockpitError: the run ended."""

    def undo(record: UndoRecord, console: Console) -> Outcome:
        try:
            request = msgspec.json.decode(record.data["request"], type=RunRequest)
        except (msgspec.MsgspecError, KeyError) as error:
            raise CockpitError("The record of the old value cannot be read.") from error
        return _outcome_in_run(request, do(request, console.say))

    return undo


def _outcome_in_run(request: RunRequest, told: RunOutcome) -> Outcome:
    compared = _compared(told.before, told.after)
    return Outcome(
        ok=told.ok,
        sentence=told.sentence,
        verified=_helped(request, told),
        compared=compared,
        undo=_undo_record(told.undo),
        output=told.lines,
        path=told.path,
        profile=told.profile,
    )


def _helped(request: RunRequest, told: RunOutcome) -> bool | None:
    """Memory came back, where that was wanted; for others nothing can be seen here."""
    if not told.ok:
        return False
    if request.op not in ("empty_cache", "gc", "free_frames") or not told.before:
        return None
    field = "allocated_bytes" if request.op == "gc" else "reserved_bytes"
    before, after = _total(told.before, field), _total(told.after, field)
    return None if before is None or after is None else after < before


def _total(rows: tuple[RunDevice, ...], field: str) -> int | None:
    values = [getattr(row, field) for row in rows]
    return None if not values or None in values else sum(values)


def _compared(before: tuple[RunDevice, ...], after: tuple[RunDevice, ...]) -> tuple[Compared, ...]:
    later = {row.gpu: row for row in after}
    return tuple(
        Compared(
            what=f"GPU {row.gpu} {word}",
            before=size(getattr(row, field)),
            after=size(getattr(later[row.gpu], field)),
        )
        for row in before
        if row.gpu in later
        for word, field in (("reserved", "reserved_bytes"), ("allocated", "allocated_bytes"))
    )


def _undo_record(request: RunRequest | None) -> UndoRecord | None:
    if request is None:
        return None
    return UndoRecord(
        kind="setting",
        title=clean(f"{request.name} of pid {request.pid} back to {request.value}"),
        data={"request": msgspec.json.encode(request).decode()},
    )
