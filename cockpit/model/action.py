"""How a kill is asked for, planned and answered: one shape for TUI, shell and wire."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "KILL", "STOP", "CONT", "USR1", "USR2")
"""Those that a kill offers, by name without SIG, in the order of the menu."""
NOT_ENDING = frozenset({"STOP", "CONT", "USR1", "USR2"})
"""Delivered is done: nobody waits for an end."""

RefusalCode = Literal["not_permitted", "protected", "gone", "changed", "readonly"]
"""``gone`` and ``changed`` (the pid is another process now) exit 5, the others 4."""


class Target(Struct, frozen=True, kw_only=True):
    """A process by its identity."""

    pid: int
    start_ticks: int | None = None
    """None: whoever has the pid at the moment of planning; the plan pins it."""


class KillRequest(Struct, frozen=True, kw_only=True):
    """Which processes to signal, and how."""

    targets: tuple[Target, ...]
    signal: str = "TERM"
    """Name without SIG."""
    job: bool = False
    """Add children and the other ranks of the same job."""
    grace_s: float = 10.0
    """How long to wait for the process to go before the result says that it ignores the signal."""
    named: bool = False
    """The pid was typed by the user (command line): counts as the typed confirmation."""


class PlannedTarget(Struct, frozen=True, kw_only=True):
    """One process of a plan."""

    pid: int
    start_ticks: int | None
    user: str | None
    command: str
    """argv joined for reading; not cleaned."""
    vram_bytes: int | None
    role: Literal["target", "child", "rank", "holder"] = "target"
    """``holder``: holds the device for a zombie leader."""
    refusal: RefusalCode | None = None
    refusal_sentence: str | None = None
    note: str | None = None
    """What a person should know first, such as "zombie: its memory is held by pid 12"."""


class KillPlan(Struct, frozen=True, kw_only=True):
    """What exactly would happen. Running it needs its ``id`` and, if asked for, the typed text."""

    id: str
    signal: str
    grace_s: float
    targets: tuple[PlannedTarget, ...]
    loses: tuple[str, ...]
    """Sentences: what is lost by it."""
    typed: str | None = None
    """The text that the user has to type: the pid, or of several their number. For SIGKILL, for
    another user's process (as root), for one that only may hold a dead process's memory."""


class KillResult(Struct, frozen=True, kw_only=True):
    """What came of one target."""

    pid: int
    outcome: Literal[
        "freed",  # gone, and its memory has come back
        "ended",  # gone; it held no device memory that could be measured
        "not_freed",  # gone, but the memory has not come back
        "survived",  # still there after the grace time: SIGKILL may be offered
        "signalled",  # a signal that does not end processes was delivered
        "refused",
        "missing",
        "failed",
    ]
    sentence: str
    vram_before_bytes: int | None = None
    freed_bytes: int | None = None
    elapsed_s: float | None = None
    offer_kill: bool = False
    """The next step that would work is SIGKILL."""

    @property
    def exit_code(self) -> int:
        """0, 1, 4 or 5 as in the table of exit codes."""
        table = {"freed": 0, "ended": 0, "signalled": 0, "refused": 4, "missing": 5}
        return table.get(self.outcome, 1)
