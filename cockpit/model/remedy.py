"""What a guided fix shows before it runs and what came of it: one shape for TUI, shell, wire."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cockpit.model.profile import StepProfile

Risk = Literal["safe", "confirm", "admin"]
"""Classes of the design's safety table; what is in its fourth class is not offered at all."""
BY_HAND = "This is for you to do: the cockpit cannot."
"""The refusal of what is only told: an instruction for the user, no fix that could be run."""


class TerminalCommand(Struct, frozen=True, kw_only=True):
    """A command that needs the user's own terminal (sudo, an editor): run by the face."""

    argv: tuple[str, ...]
    cwd: str | None = None
    environment: dict[str, str] = {}
    """Set on top of the environment that the face has."""


class Preview(Struct, frozen=True, kw_only=True):
    """What exactly a fix would do. Making one changes nothing."""

    title: str
    """Such as ``halve the batch``."""
    form: Literal["command", "diff", "signal", "operation", "text"]
    lines: tuple[str, ...]
    """The exact commands, or a unified diff; data from outside: clean it before it is shown."""
    risk: Risk
    loses: str
    """A sentence; ``nothing`` where nothing is lost."""
    verify: str
    """How it will be seen that it helped."""
    because: str = ""
    """Why just this is offered, from this run's numbers."""
    typed: str | None = None
    """The text that the user has to type (design, section 5); None: one confirmation."""
    undo: str | None = None
    """How it is taken back; None: it cannot be."""
    terminal: TerminalCommand | None = None
    """Where the face has to run it; then the engine only looks whether it helped."""
    refusal: str | None = None
    """Why it cannot be run; ``lines`` are still worth reading."""


class UndoRecord(Struct, frozen=True, kw_only=True):
    """All that is needed to take a fix back, in another process and on another day."""

    kind: str
    """Which module of ``act`` knows how: ``patch``, ``pip``, ``setting`` …"""
    title: str
    data: dict[str, str]


class Compared(Struct, frozen=True, kw_only=True):
    """One quantity before and after."""

    what: str
    before: str
    after: str


class Outcome(Struct, frozen=True, kw_only=True):
    """What a fix came to."""

    ok: bool
    """It ran to its end without an error."""
    sentence: str
    """One sentence that a person can act on."""
    verified: bool | None = None
    """It was looked at and helped (True), did not help (False), could not be seen (None)."""
    compared: tuple[Compared, ...] = ()
    undo: UndoRecord | None = None
    output: tuple[str, ...] = ()
    """The last lines that it printed; data from outside."""
    path: str | None = None
    """A file that was written, or the record of the run that was started."""
    profile: StepProfile | None = None
