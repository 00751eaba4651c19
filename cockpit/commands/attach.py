"""``cockpit attach`` and ``cockpit detach``: into a running process, and out of it again."""

from __future__ import annotations

import sys

from cockpit.attach.run_record import start_ticks
from cockpit.commands.ask import agreed, answer, first_tick, open_link, remove_log, tell
from cockpit.engine.link import Link
from cockpit.engine.protocol import AskAttach, DoInRun, RunAttach
from cockpit.errors import CockpitError, RefusedError, UsageError
from cockpit.model.memory import AttachPlan, RunOutcome, RunRequest
from cockpit.model.text import clean
from cockpit.settings import Settings

PATIENCE_S = 40.0
"""The engine gives up by itself: 10 s to get in, 5 s for the socket, 15 s for its answer."""


def attach(settings: Settings, pid: int, *, yes: bool) -> int:
    """Returns 0 when the agent answers, 1 when it does not (yet). Raises the refusal."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("Without a terminal nobody can confirm: give --yes to attach.")
    link = open_link(settings)
    try:
        first_tick(link)
        plan = _plan(link, pid)
        if plan.way is None:
            raise RefusedError(plan.sentence)
        if plan.way != "agent" and not (yes or _agreed_to(plan)):
            tell("Nothing was done.")
            return 1
        id_ = link.next_id()
        message = RunAttach(id=id_, pid=pid, start_ticks=plan.start_ticks)
        return _told(answer(link, message, id_, PATIENCE_S).outcome)
    finally:
        link.close(may_kill=False)
        remove_log(link)


def detach(settings: Settings, pid: int) -> int:
    """Returns 0 when the process is free of us."""
    request = RunRequest(pid=pid, op="detach", start_ticks=start_ticks(pid))
    link = open_link(settings)
    try:
        id_ = link.next_id()
        message = DoInRun(id=id_, request=request)
        return _told(answer(link, message, id_, PATIENCE_S).outcome)
    finally:
        link.close(may_kill=False)
        remove_log(link)


def _plan(link: Link, pid: int) -> AttachPlan:
    id_ = link.next_id()
    message = AskAttach(id=id_, pid=pid, start_ticks=start_ticks(pid))
    plan = answer(link, message, id_, PATIENCE_S).attach
    if plan is None:
        raise CockpitError("The engine answered without a plan.")
    return plan


def _agreed_to(plan: AttachPlan) -> bool:
    return agreed(clean(plan.sentence).removesuffix(" [y/N]"))


def _told(outcome: RunOutcome | None) -> int:
    if outcome is None:
        raise CockpitError("The engine answered without an outcome.")
    print(clean(outcome.sentence), flush=True)
    return 0 if outcome.ok else 1
