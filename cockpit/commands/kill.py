"""``cockpit kill``: plan, ask, signal, prove. The engine does it; this asks and prints."""

from __future__ import annotations

import math
import sys

import msgspec

from cockpit.attach.run_record import start_ticks
from cockpit.commands.ask import agreed, answer, first_tick, open_link, remove_log, tell
from cockpit.engine.link import Link
from cockpit.engine.protocol import AskKillPlan, RunKill
from cockpit.errors import CockpitError, UsageError
from cockpit.model import kill_words
from cockpit.model.action import KillPlan, KillRequest, KillResult, PlannedTarget, Target
from cockpit.model.text import clean, shortened, size
from cockpit.settings import Settings

WORST_FIRST = (4, 5, 1, 0)
"""Of several pids the worst exit code counts, in this order."""


def parse_target(text: str) -> Target:
    """``PID`` or ``PID:START_TICKS``. Raises UsageError."""
    pid, _, ticks = text.partition(":")
    if (
        not pid.isascii()
        or not pid.isdigit()
        or (ticks and not (ticks.isascii() and ticks.isdigit()))
    ):
        raise UsageError(f"`{clean(text)}` is no PID or PID:START_TICKS.")
    if int(pid) == 0 or int(pid) > 2**22:
        raise UsageError(f"There is no pid {pid} on Linux.")
    return Target(pid=int(pid), start_ticks=int(ticks) if ticks else None)


def run(
    settings: Settings,
    targets: list[str],
    *,
    signal: str | None,
    grace_s: float,
    yes: bool,
    job: bool,
) -> int:
    """Returns the exit code: 0 freed, 1 not freed, 4 refused, 5 no such process."""
    if not (math.isfinite(grace_s) and grace_s >= 0):
        raise UsageError("--grace takes seconds, 0 or more.")
    request = KillRequest(
        targets=tuple(dict.fromkeys(parse_target(one) for one in targets)),
        signal=(signal or "TERM").upper().removeprefix("SIG"),
        job=job,
        grace_s=grace_s,
        named=True,  # naming the pid on the command line is the typing
    )
    if not yes and not sys.stdin.isatty():
        raise UsageError("Without a terminal nobody can confirm: give --yes to kill.")
    link = open_link(settings)
    try:
        first_tick(link)
        return _Conversation(link, yes=yes, escalates=signal is None).kill(request)
    finally:
        link.close(may_kill=False)
        remove_log(link)


class _Conversation:
    """Questions and answers of one kill."""

    def __init__(self, link: Link, *, yes: bool, escalates: bool) -> None:
        self._link = link
        self._yes = yes
        self._escalates = escalates

    def kill(self, request: KillRequest) -> int:
        plan = self._plan(request)
        _print_plan(plan)
        if all(one.refusal for one in plan.targets):
            return _worst([_refusal_code(one) for one in plan.targets])
        if not self._agreed(f"Send SIG{plan.signal} to these?"):
            tell("Nothing was done.")
            return 1
        results = self._run(plan, request.grace_s)
        if self._escalates and any(one.offer_kill for one in results):
            results = self._escalate(plan, results, request.grace_s)
        return _worst([one.exit_code for one in results])

    def _escalate(
        self, plan: KillPlan, results: tuple[KillResult, ...], grace_s: float
    ) -> tuple[KillResult, ...]:
        """SIGKILL for those that are left, after the same showing and asking."""
        left = tuple(one.pid for one in results if one.offer_kill)
        again = self._plan_again(plan, left, grace_s)
        _print_plan(again)
        if not self._agreed(_offer(left)):
            return results
        shown = {one.pid for one in again.targets}
        return (*(one for one in results if one.pid not in shown), *self._run(again, grace_s))

    def _plan_again(self, plan: KillPlan, left: tuple[int, ...], grace_s: float) -> KillPlan:
        """By the identity that the first plan pinned.

        Who was dead then has none: its pid is asked about for its memory's sake, and left out when
        a process has it by now.
        """
        ticks = {one.pid: one.start_ticks for one in plan.targets}
        targets = tuple(Target(pid=pid, start_ticks=ticks.get(pid)) for pid in left)
        again = KillRequest(targets=targets, signal="KILL", grace_s=grace_s, named=True)
        found = self._plan(again)
        unknown = {one.pid for one in targets if one.start_ticks is None}
        if not any(one.pid in unknown and one.start_ticks is not None for one in found.targets):
            return found
        pinned = tuple(one for one in targets if one.start_ticks is not None)
        return self._plan(msgspec.structs.replace(again, targets=pinned))

    def _plan(self, request: KillRequest) -> KillPlan:
        id_ = self._link.next_id()
        reply = answer(self._link, AskKillPlan(id=id_, request=request), id_, 5.0)
        if reply.plan is None:
            raise CockpitError("The engine answered without a plan.")
        return reply.plan

    def _run(self, plan: KillPlan, grace_s: float) -> tuple[KillResult, ...]:
        id_ = self._link.next_id()
        message = RunKill(id=id_, plan=plan.id, typed=plan.typed)
        try:
            reply = answer(self._link, message, id_, grace_s + 15)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # the terminal's ^C stands there
            tell(_left(plan, simulated=self._link.options.demo is not None))
            raise
        results = reply.results or ()
        for one in results:
            print(clean(one.sentence), flush=True)
        return results

    def _agreed(self, question: str) -> bool:
        return self._yes or agreed(question)


def _left(plan: KillPlan, *, simulated: bool) -> str:
    """After ctrl+c: what was sent is not taken back."""
    told = [one for one in plan.targets if one.refusal is None]
    sent = f"Not waited for: {kill_words.sent(plan.signal, len(told))}"
    if simulated:  # their pids mean nothing here
        return f"{sent}."
    alive = [
        str(one.pid)
        for one in told
        if one.start_ticks is not None and start_ticks(one.pid) == one.start_ticks
    ]
    there = f"still there: {', '.join(alive)}" if alive else "all have ended"
    return f"{sent}; {there}."


def _offer(left: tuple[int, ...]) -> str:
    pids = ", ".join(map(str, left))
    return f"Still there: {pids}. Send SIGKILL (nothing can be saved by it)?"


def _print_plan(plan: KillPlan) -> None:
    for one in plan.targets:
        user, command = clean(one.user or "?"), shortened(clean(one.command), 120)
        tell(f"  {one.pid}  {user}  {size(one.vram_bytes)}  {one.role}  {command}")
        if one.refusal is not None:
            tell(f"    not possible: {clean(one.refusal_sentence or one.refusal)}")
        elif one.note is not None:
            tell(f"    {clean(one.note)}")
    for sentence in plan.loses:
        tell(f"  You lose: {clean(sentence)}")


def _refusal_code(target: PlannedTarget) -> int:
    return 5 if target.refusal in ("gone", "changed") else 4


def _worst(codes: list[int]) -> int:
    return next((code for code in WORST_FIRST if code in codes), 0)
