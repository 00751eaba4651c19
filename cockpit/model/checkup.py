"""A machine and one job's Python, examined step by step: what ``cockpit doctor`` prints.

The facts that it rests on are in :mod:`cockpit.model.checkup_facts`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cockpit.model.finding import Evidence, Finding, Fix

SCHEMA = 1
CheckStatus = Literal["pass", "warn", "fail", "not_applicable"]


class CheckupRequest(Struct, frozen=True, kw_only=True):
    """What to examine: a process, an interpreter, or (neither) the Python of the user's PATH."""

    pid: int | None = None
    start_ticks: int | None = None
    """Of the process that was meant; None: whichever has the pid now."""
    python: str | None = None
    """Path or name of an interpreter, as the shell would take it."""


class Check(Struct, frozen=True, kw_only=True):
    """One step of the ladder."""

    id: str
    title: str
    status: CheckStatus
    sentence: str
    """What was found; for ``not_applicable`` why there is nothing to say."""
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    took_s: float | None = None
    """Of the reading that the step rests on; several steps may share one."""
    cause: str | None = None
    """Id of a known cause, where the step did not pass and one is known."""


class Subject(Struct, frozen=True, kw_only=True):
    """Whose view of the machine was examined."""

    sentence: str
    python: str | None = None
    pid: int | None = None
    user: str | None = None
    environments: tuple[str, ...] = ()
    """Directories of the interpreter and of its torch: mostly one, a venv or a prefix."""


class Checkup(Struct, frozen=True, kw_only=True):
    """The whole ladder."""

    schema: int = SCHEMA
    subject: Subject
    checks: tuple[Check, ...]
    finding: Finding | None = None
    """The first step that failed, with its cause and its repairs; None: none failed."""
