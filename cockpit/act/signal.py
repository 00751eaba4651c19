"""The kill: plan, confirm, signal, verify. Only here is signalled what the cockpit did not start.

What it did start (a rerun, pip, a probe) is ended where it was started.

A plan is pinned by start times and runs once. At the run every target is opened (pidfd), compared
and judged again, so that neither a reused pid nor a changed owner is ever signalled.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from cockpit.act.identity import Handle, all_stats, read_stat
from cockpit.act.job import Family
from cockpit.act.journal import Entry, Journal
from cockpit.act.plan import make_plan, subject_refusal
from cockpit.act.policy import signal_number
from cockpit.act.verdict import verdict
from cockpit.act.watch import Attempt, Books, VramSource, watch
from cockpit.errors import RefusedError, TargetGoneError
from cockpit.model import kill_words
from cockpit.model.action import NOT_ENDING, KillPlan, KillRequest, KillResult
from cockpit.model.process import Process

__all__ = ["Kills", "VramSource"]

MAX_PLANS = 32
"""More than a flow offers at once, and the kill menu beside it."""
PLAN_LIFE_S = 600.0

Say = Callable[[str], None]

_OUTCOMES: dict[str, Literal["missing", "failed"]] = {
    "gone": "missing",
    "changed": "missing",
    "failed": "failed",
}
"""Of a refusal's code; all others are ``refused``."""


class Kills:
    """Makes plans and runs them. ``plan`` and ``run`` may be called on different threads."""

    def __init__(
        self,
        vram: VramSource,
        journal: Journal,
        *,
        processes: Callable[[], Sequence[Process]],
        readonly: bool = False,
    ) -> None:
        self._vram, self._journal = vram, journal
        self._processes, self._readonly = processes, readonly
        self._plans: OrderedDict[str, tuple[float, KillPlan]] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, request: KillRequest) -> KillPlan:
        """Changes nothing. Raises UsageError for a signal that is not offered."""
        plan = make_plan(request, self._processes(), self._readonly)
        with self._lock:
            self._plans[plan.id] = (time.monotonic(), plan)
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return plan

    def run(self, plan_id: str, typed: str | None, say: Say) -> tuple[KillResult, ...]:
        """One result a target, in the plan's order. Blocks up to grace time and some seconds.

        Raises RefusedError when the plan is not known (any more) or the typed text is not its own.
        """
        plan = self._take(plan_id, typed)
        rows = {row.pid: row for row in self._processes()}
        run = _Run(plan, rows, self._vram, self._journal, self._readonly, say)
        try:
            return run.results()
        finally:
            run.close()

    def _take(self, plan_id: str, typed: str | None) -> KillPlan:
        with self._lock:
            made_at, plan = self._plans.get(plan_id, (0.0, None))
            if plan is None or time.monotonic() - made_at > PLAN_LIFE_S:
                self._plans.pop(plan_id, None)
                raise RefusedError("this plan has expired or has run already: ask for a new one")
            if plan.typed is not None and (typed or "").strip() != plan.typed:
                raise RefusedError(f"not confirmed: type {plan.typed} to go on")
            return self._plans.pop(plan_id)[1]


class _Run:
    """One plan on its way."""

    def __init__(
        self,
        plan: KillPlan,
        rows: Mapping[int, Process],
        vram: VramSource,
        journal: Journal,
        readonly: bool,
        say: Say,
    ) -> None:
        self._plan, self._journal, self._readonly, self._say = plan, journal, readonly, say
        self._attempts = [Attempt(planned) for planned in plan.targets]
        self._gpus = {p: frozenset(use.gpu for use in r.devices) for p, r in rows.items()}
        self._books = Books(vram)
        self._start = time.monotonic()
        self._told_trouble = False

    def results(self) -> tuple[KillResult, ...]:
        self._refuse()
        if any(attempt.result is None for attempt in self._attempts):
            self._books.open()
            self._hold_all()
            self._send_all()
            watch(self._attempts, self._books, self._plan.grace_s, self._say)
        found = tuple(self._result(attempt) for attempt in self._attempts)
        for attempt, result in zip(self._attempts, found, strict=True):
            self._write(attempt, result)
        return found

    def close(self) -> None:
        for attempt in self._attempts:
            if attempt.handle is not None:
                attempt.handle.close()

    def _result(self, attempt: Attempt) -> KillResult:
        if attempt.result is not None:
            return attempt.result
        result = verdict(attempt, self._plan.signal, self._start, self._books.missing)
        return self._with_offer(attempt, result)

    def _with_offer(self, attempt: Attempt, result: KillResult) -> KillResult:
        """A dead leader's memory comes back with a SIGKILL to its holder that has survived."""
        left = {stat.pid for stat in attempt.relatives}
        surviving = any(other.alive and other.pid in left for other in self._attempts)
        if result.outcome != "not_freed" or not surviving or self._plan.signal == "KILL":
            return result
        text = f"{result.sentence}; SIGKILL to it would free them"
        return msgspec.structs.replace(result, sentence=text, offer_kill=True)

    def _refuse(self) -> None:
        for attempt in self._attempts:
            planned = attempt.planned
            if planned.refusal is not None:
                self._fail(attempt, planned.refusal, planned.refusal_sentence or planned.refusal)

    @staticmethod
    def _fail(attempt: Attempt, code: str, sentence: str) -> None:
        attempt.result = KillResult(
            pid=attempt.pid, outcome=_OUTCOMES.get(code, "refused"), sentence=sentence
        )

    def _hold_all(self) -> None:
        family = Family(all_stats())
        for attempt in self._attempts:
            if attempt.result is None:
                attempt.gpus = self._gpus.get(attempt.pid, frozenset())
                attempt.before = self._books.held(attempt)
                attempt.relatives = family.relatives(attempt.pid)
                self._hold(attempt, family)

    def _hold(self, attempt: Attempt, family: Family) -> None:
        planned = attempt.planned
        stat = read_stat(planned.pid)
        same = stat is not None and stat.start_ticks == planned.start_ticks
        if planned.start_ticks is None or stat is None or (same and stat.dead):
            attempt.relatives = family.holders(planned.pid, planned.start_ticks)
            self._dead_before(attempt, stat.ppid if stat is not None else None)
            return
        try:
            attempt.handle = Handle.open(planned.pid, planned.start_ticks)
        except TargetGoneError as error:
            self._fail(attempt, "gone", str(error))
        except OSError as error:
            self._fail(attempt, "failed", f"pid {planned.pid} cannot be opened: {error.strerror}")

    def _dead_before(self, attempt: Attempt, zombie_of: int | None) -> None:
        """Nothing to signal: either its memory is awaited, or there is nothing to do."""
        pid, shown = attempt.pid, attempt.planned.vram_bytes
        attempt.zombie = True
        attempt.gone_at = self._start
        if attempt.before and self._plan.signal not in NOT_ENDING:
            return
        if shown and not attempt.before and self._books.listed_before is not None:
            attempt.result = KillResult(
                pid=pid,
                outcome="freed",
                sentence=kill_words.freed_itself(pid, shown),
                vram_before_bytes=shown,
                freed_bytes=shown,
            )
        elif zombie_of is not None:
            self._fail(attempt, "gone", kill_words.zombie(pid, zombie_of))
        else:
            self._fail(attempt, "gone", f"pid {pid} has ended")

    def _send_all(self) -> None:
        for attempt in self._attempts:
            if attempt.result is None:
                self._write(attempt, None)
        self._start = time.monotonic()
        for attempt in self._attempts:
            if attempt.alive:
                self._send(attempt)
        count = sum(attempt.sent for attempt in self._attempts)
        if count:
            self._say(kill_words.sent(self._plan.signal, count))

    def _send(self, attempt: Attempt) -> None:
        """A process that its launcher took along a moment ago is an end, not a failure."""
        if attempt.handle is None or attempt.handle.gone():
            attempt.gone_at = time.monotonic()
            return
        refusal = subject_refusal(attempt.planned, self._readonly)
        if refusal is not None and refusal.code != "gone":
            self._fail(attempt, *refusal)
            return
        try:
            attempt.handle.send(signal_number(self._plan.signal))
        except ProcessLookupError:
            attempt.gone_at = time.monotonic()
        except PermissionError:
            self._fail(attempt, "denied", kill_words.denied(attempt.pid, self._plan.signal))
        else:
            self._delivered(attempt)

    def _delivered(self, attempt: Attempt) -> None:
        attempt.sent = True
        if self._plan.signal in NOT_ENDING:
            attempt.result = KillResult(
                pid=attempt.pid,
                outcome="signalled",
                sentence=kill_words.delivered(attempt.pid, self._plan.signal),
                vram_before_bytes=attempt.before,
            )

    def _write(self, attempt: Attempt, result: KillResult | None) -> None:
        planned = attempt.planned
        entry = Entry(
            action=self._plan.id,
            phase="intent" if result is None else "result",
            signal=self._plan.signal,
            pid=planned.pid,
            start_ticks=planned.start_ticks,
            command=planned.command,
            before_bytes=attempt.before,
            after_bytes=attempt.after,
            outcome=result.outcome if result else None,
            sentence=result.sentence if result else None,
        )
        if not self._journal.write(entry) and not self._told_trouble:
            self._told_trouble = True
            self._say(f"{self._journal.trouble}; the action goes on")
