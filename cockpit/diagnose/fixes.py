"""Fixes as rows: how a row with ``{fact}`` becomes a Fix for one run. The rows are in tables/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from cockpit.model.finding import Fix

Kind = Literal["command", "env", "code-change", "in-process", "kill", "hardware", "wait"]
Risk = Literal["safe", "confirm", "admin"]

_SLOT = re.compile(r"\{([a-z_]+)\}")


class Row(NamedTuple):
    """One thing to do; ``value`` may hold ``{fact}``."""

    kind: Kind
    title: str
    value: str
    why: str
    risk: Risk = "safe"
    loses: str = "nothing"
    verify: str = ""
    """Empty: the cause's own check."""
    wants: str = ""
    """Only with this fact."""
    unless: str = ""
    """Not with this fact."""


class Repair(NamedTuple):
    """What to do about a cause, in order, and how to see that it worked."""

    verify: str
    rows: tuple[Row, ...]


def fill(text: str, facts: dict[str, Any]) -> str:
    """``{pid}`` with the run's own value; ``<pid>`` where it is not known."""
    return _SLOT.sub(lambda slot: _word(facts.get(slot[1]), slot[1]), text)


def render(repair: Repair, facts: dict[str, Any]) -> tuple[Fix, ...]:
    """The rows that this run's facts allow; a value that is known to be empty allows none."""
    facts = {"stacks_of": _stacks_of(facts), **facts}
    return tuple(
        Fix(
            title=fill(row.title, facts),
            kind=row.kind,
            value=fill(row.value, facts),
            risk=row.risk,
            why=_reason(row.why, facts),
            loses=row.loses,
            verify=fill(row.verify or repair.verify, facts),
        )
        for row in repair.rows
        if (not row.wants or facts.get(row.wants) not in (None, "", [], ()))
        and not facts.get(row.unless)
        and not any(facts.get(name) == "" for name in _needed(row.value))
    )


def _reason(why: str, facts: dict[str, Any]) -> str:
    """Nothing, where it would name what is not known: nobody can fill in a reason."""
    is_known = all(facts.get(name) not in (None, []) for name in _SLOT.findall(why))
    return fill(why, facts) if is_known else ""


def _needed(value: str) -> Iterator[str]:
    """The slots that have to be filled; packages that go along with torch need not be there."""
    return (name for name in _SLOT.findall(value) if name != "companions")


def _stacks_of(facts: dict[str, Any]) -> str:
    """The command that shows the stacks of the ranks in question, of whose pids that are known."""
    pids = facts.get("rank_pids")
    if isinstance(pids, list) and pids:
        if len(pids) == 1:
            return f"py-spy dump --pid {pids[0]}"
        return f"for pid in {' '.join(map(str, pids))}; do py-spy dump --pid $pid; done"
    rank = facts.get("culprit_rank")
    return f"py-spy dump --pid <pid of {'each rank' if rank is None else f'rank {rank}'}>"


def _word(value: Any, name: str) -> str:
    if value is None or value == []:
        return f"<{name.replace('_', ' ')}>"
    if isinstance(value, list):
        return " ".join(str(one) for one in value)
    return str(value)
