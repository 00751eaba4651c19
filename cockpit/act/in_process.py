"""A kill, or an operation in an attached run, as a fix with a preview and an outcome.

Both are done by callables of the engine's, which judge, pin and prove. Here they only get the
shape of an Action.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cockpit.act.action import Console
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.action import KillPlan, KillRequest, KillResult, PlannedTarget
from cockpit.model.memory import RunOutcome, RunRequest
from cockpit.model.remedy import Compared, Outcome, Preview, UndoRecord
from cockpit.model.run import RunDevice
from cockpit.model.text import clean, size

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

_OPERATIONS: dict[str, tuple[str, str]] = {
    "gc": ("collect garbage in pid {pid}", "one step takes longer (0.1 to 1 s)"),
    "empty_cache": (
        "give cached memory of pid {pid} back to the driver",
        "the next steps are slower: they ask the driver for memory again",
    ),
    "set": ("set {name} to {value} in pid {pid}", "nothing"),
    "history": (
        "{name} recording allocations in pid {pid}",
        "about 2 µs an allocation; each look at its memory makes one step longer (up to 0.7 s)",
    ),
    "snapshot": ("write a memory snapshot of pid {pid}", "one step takes longer (up to 1 s)"),
    "profile": ("profile {steps} steps of pid {pid}", "these steps are slower"),
    "free_frames": (
        "let go of the last exception in the notebook of pid {pid}",
        "%debug and %tb of that exception",
    ),
    "detach": ("detach from pid {pid}", "its memory cannot be looked into any more"),
}
_WHEN = {"free_frames": "as soon as no cell runs, on the kernel's own thread"}
_AT_STEP = "at the next optimizer step, on its own thread"


class InRun:
    """One operation in one attached run, with what its allocator held before and after."""

    def __init__(self, request: RunRequest, do: DoInRun) -> None:
        self._request, self._do = request, do

    def preview(self) -> Preview:
        """Asks nobody."""
        request = self._request
        title, loses = _OPERATIONS[request.op]
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
            verify="what the allocator holds before and after is compared",
            undo="The old value is set again." if request.op == "set" else None,
        )

    def run(self, console: Console) -> Outcome:
        """Raises CockpitError with the run's own sentence."""
        told = self._do(self._request, console.say)
        return _outcome_in_run(self._request, told)


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
