"""From a watched attempt to its result: the outcome, and the one sentence why."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cockpit.act.identity import holds_device, kernel_wait, look, read_stat
from cockpit.act.policy import signal_number
from cockpit.act.watch import Attempt
from cockpit.model import kill_words
from cockpit.model.action import KillResult
from cockpit.model.text import clean
from cockpit.procfs import Stat

_TWICE_S = 0.1
"""Every reader of a disk is in state D for moments: only who is still there is stuck."""


def verdict(attempt: Attempt, signal: str, start: float, missing: int) -> KillResult:
    """``start``: when the first signal went; ``missing``: bytes off the list but still in use."""
    if attempt.gone_at is None:
        return _survived(attempt, signal, start)
    before, pid = attempt.before, attempt.pid
    if not before:
        elapsed_s = attempt.gone_at - start
        text = kill_words.ended(pid, elapsed_s, attempt.sent)
        return KillResult(pid=pid, outcome="ended", sentence=text, elapsed_s=elapsed_s)
    if attempt.back_at is not None:
        return _freed(attempt, before, attempt.back_at - start)
    return _not_freed(attempt, before, missing)


def _freed(attempt: Attempt, before: int, elapsed_s: float) -> KillResult:
    amount = (before - (attempt.after or 0), before)
    return KillResult(
        pid=attempt.pid,
        outcome="freed",
        sentence=kill_words.freed(attempt.pid, amount, elapsed_s, attempt.zombie),
        vram_before_bytes=before,
        freed_bytes=amount[0],
        elapsed_s=elapsed_s,
    )


def _not_freed(attempt: Attempt, before: int, missing: int) -> KillResult:
    holders = living(attempt.relatives)
    if attempt.after is None:
        text = kill_words.unchecked(attempt.pid, before)
    else:
        children = frozenset(s.pid for s in attempt.relatives if s.ppid == attempt.pid)
        holder = _holder(holders, children)
        still = attempt.after or missing
        text = kill_words.not_freed(attempt.pid, still, attempt.zombie, holder)
    return KillResult(
        pid=attempt.pid,
        outcome="not_freed",
        sentence=text,
        vram_before_bytes=before,
        freed_bytes=None if attempt.after is None else before - attempt.after,
    )


def _survived(attempt: Attempt, signal: str, start: float) -> KillResult:
    text = kill_words.survived(
        attempt.pid, signal, time.monotonic() - start, _reason(attempt.pid, signal)
    )
    return KillResult(
        pid=attempt.pid,
        outcome="survived",
        sentence=text,
        vram_before_bytes=attempt.before,
        freed_bytes=0 if attempt.before else None,
        offer_kill=signal != "KILL",
    )


def _reason(pid: int, signal: str) -> str:
    subject = look(pid)
    if subject is None:
        return kill_words.dying()
    stuck = _stuck(pid) if signal == "KILL" or subject.stat.state == "D" else None
    if stuck is not None:
        return kill_words.in_kernel(signal, stuck)
    if signal == "KILL":
        return kill_words.dying()
    if subject.stat.state in "Tt":
        return kill_words.stopped(signal)
    return kill_words.ignoring(signal, subject.ignores(signal_number(signal)))


def _stuck(pid: int) -> str | None:
    if kernel_wait(pid) is None:
        return None
    time.sleep(_TWICE_S)
    return kernel_wait(pid)


def living(relatives: Sequence[Stat]) -> list[Stat]:
    """Those still there, and still the same processes."""
    now = ((old, read_stat(old.pid)) for old in relatives)
    return [new for old, new in now if new and new.start_ticks == old.start_ticks and not new.dead]


def _holder(holders: Sequence[Stat], children: frozenset[int]) -> str | None:
    """Whose open device files are seen comes first; they cannot be read of other users' ones."""
    seen = [(stat, holds_device(stat.pid)) for stat in holders]
    for answer in (True, None):
        for stat, holds in seen:
            if holds is answer:
                # The children of a dead process have another parent by now.
                own = stat.pid in children
                relation = "child" if own else f"{clean(stat.name)}, left over from it"
                return kill_words.keeps(stat.pid, relation, certain=bool(answer))
    return None
