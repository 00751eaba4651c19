"""Fixes as rows: how a row with ``{fact}`` becomes a Fix for one run. The rows are in tables/."""

from __future__ import annotations

import re
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


class Repair(NamedTuple):
    """What to do about a cause, in order, and how to see that it worked."""

    verify: str
    rows: tuple[Row, ...]


def fill(text: str, facts: dict[str, Any]) -> str:
    """``{pid}`` with the run's own value; ``<pid>`` where it is not known."""
    return _SLOT.sub(lambda slot: _word(facts.get(slot[1]), slot[1]), text)


def render(repair: Repair, facts: dict[str, Any]) -> tuple[Fix, ...]:
    """The rows that this run's facts allow."""
    return tuple(
        Fix(
            title=fill(row.title, facts),
            kind=row.kind,
            value=fill(row.value, facts),
            risk=row.risk,
            why=fill(row.why, facts),
            loses=row.loses,
            verify=fill(row.verify or repair.verify, facts),
        )
        for row in repair.rows
        if not row.wants or facts.get(row.wants) not in (None, "", [], ())
    )


def _word(value: Any, name: str) -> str:
    if value is None or value == []:
        return f"<{name.replace('_', ' ')}>"
    if isinstance(value, list):
        return " ".join(str(one) for one in value)
    return str(value)
