"""What only an administrator may do: shown with what it costs, and run only through ``sudo`` in the
user's own terminal, when the user says so. Nothing is run from here.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.errors import UsageError
from cockpit.model.remedy import Outcome, Preview, TerminalCommand
from cockpit.model.text import clean

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "env", "xargs", "eval"))
"""What would read its arguments as a program: a step is the program itself."""


@dataclass(frozen=True)
class AdminStep:
    """One command as a list of words, so that no text from outside ever becomes shell."""

    title: str
    argv: tuple[str, ...]
    loses: str
    verify: str

    def __post_init__(self) -> None:
        """Raises UsageError for a step without a command, or one that is a shell."""
        if not self.argv:
            raise UsageError("An administrator's step needs a command.")
        if os.path.basename(self.argv[0]) in SHELLS:
            raise UsageError(f"{clean(self.argv[0])} would read its arguments as a program.")

    def preview(self) -> Preview:
        """With the line as a shell would have it: for eyes, and for the clipboard."""
        return Preview(
            title=self.title,
            form="command",
            lines=(shlex.join(self._with_sudo()),),
            risk="admin",
            loses=self.loses,
            verify=self.verify,
            terminal=TerminalCommand(argv=self._with_sudo()),
        )

    def run(self, console: Console) -> Outcome:  # noqa: ARG002
        """The face has run it; what came of it is for the administrator to see."""
        sentence = f"Run. See for yourself: {self.verify}"
        return Outcome(ok=True, verified=None, sentence=sentence)

    def _with_sudo(self) -> tuple[str, ...]:
        """``--``: a first word that begins with a dash is no option of sudo."""
        return self.argv if os.geteuid() == 0 else ("sudo", "--", *self.argv)
