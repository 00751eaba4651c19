"""What only an administrator may do: explained, printed, and run only through ``sudo`` in the
user's own terminal, when the user asks for it. Nothing is run from here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.errors import UsageError
from cockpit.model.remedy import Outcome, Preview, TerminalCommand
from cockpit.model.text import clean

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "env", "xargs", "eval"))
"""What would read its arguments as a program: a step is the program itself."""


@dataclass(frozen=True)
class AdminStep:
    """Commands as lists of words, so that no text from outside ever becomes shell."""

    title: str
    commands: tuple[tuple[str, ...], ...]
    why: str
    loses: str
    verify: str
    in_terminal: bool = False
    """The user asked for it: run by the face under ``sudo`` in the suspended terminal."""
    undo: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a step without a command, or one that is a shell."""
        if not self.commands or not all(self.commands):
            raise UsageError("An administrator's step needs at least one command.")
        for argv in self.commands:
            if os.path.basename(argv[0]) in SHELLS:
                raise UsageError(f"{clean(argv[0])} would read its arguments as a program.")

    def preview(self) -> Preview:
        """Explained, with the lines to type or copy; ``terminal`` only where it was asked for."""
        return Preview(
            title=self.title,
            form="command",
            lines=(*((f"# {self.why}",) if self.why else ()), *self.to_type()),
            risk="admin",
            loses=self.loses,
            verify=self.verify,
            undo=self.undo,
            terminal=self.terminal() if self.in_terminal else None,
        )

    def to_type(self) -> tuple[str, ...]:
        """Quoted for a shell, a line a command: for the clipboard, too."""
        return tuple(shlex.join(_with_sudo(argv)) for argv in self.commands)

    def terminal(self) -> TerminalCommand:
        """One sudo a step: of several commands the first."""
        return TerminalCommand(argv=_with_sudo(self.commands[0]))

    def run(self, console: Console) -> Outcome:
        """Not asked for a terminal: what to type. Else the face has run it: where to look."""
        if not self.in_terminal:
            for line in self.to_type():
                console.say(line)
            sentence = "This is an administrator's step: nothing was run. Type the lines above."
            return Outcome(ok=True, verified=None, sentence=sentence, output=self.to_type())
        sentence = f"Run. See for yourself: {self.verify}"
        return Outcome(ok=True, verified=None, sentence=sentence)


def _with_sudo(argv: Sequence[str]) -> tuple[str, ...]:
    """``--``: a first word that begins with a dash is no option of sudo."""
    if os.geteuid() == 0:
        return tuple(argv)
    return ("sudo", "--", *argv)
