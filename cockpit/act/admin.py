"""What only an administrator may do: explained, printed, and run only through ``sudo`` in the
user's own terminal, when the user asks for it. Nothing is run from here but a read that verifies.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.errors import UsageError
from cockpit.model.remedy import Outcome, Preview, TerminalCommand
from cockpit.model.text import clean

VERIFY_S = 20.0
"""nvidia-smi takes seconds on a machine with eight GPUs and without persistence mode."""
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "env", "xargs", "eval"))
"""What would read its arguments as a program: a step is the program itself."""


@dataclass(frozen=True)
class Check:
    """A command that only reads, and what it prints when the step has helped."""

    argv: tuple[str, ...]
    expects: str | None = None
    """A piece of its output; None: status 0 is enough."""
    lacks: str | None = None
    """What must not be in its output."""


@dataclass(frozen=True)
class AdminStep:
    """Commands as lists of words, so that no text from outside ever becomes shell."""

    title: str
    commands: tuple[tuple[str, ...], ...]
    why: str
    loses: str
    verify: str
    check: Check | None = None
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
        """One sudo a step: of several commands the first; :meth:`rest` is the step after it."""
        return TerminalCommand(argv=_with_sudo(self.commands[0]))

    def rest(self) -> AdminStep | None:
        """The same step without its first command; None: that was all."""
        if len(self.commands) == 1:
            return None
        return AdminStep(
            title=self.title,
            commands=self.commands[1:],
            why=self.why,
            loses=self.loses,
            verify=self.verify,
            check=self.check,
            in_terminal=self.in_terminal,
            undo=self.undo,
        )

    def run(self, console: Console) -> Outcome:
        """Not asked for a terminal: says what to type. Else looks whether it helped."""
        if not self.in_terminal:
            for line in self.to_type():
                console.say(line)
            sentence = "This is an administrator's step: nothing was run. Type the lines above."
            return Outcome(ok=True, verified=None, sentence=sentence, output=self.to_type())
        return self.verified(console)

    def verified(self, console: Console) -> Outcome:
        """By the check, which only reads; None where there is none."""
        if self.check is None:
            return Outcome(ok=True, verified=None, sentence=f"Run. See for yourself: {self.verify}")
        console.say("checking: " + clean(shlex.join(self.check.argv)))
        helped, sentence, lines = _looked(self.check)
        return Outcome(ok=True, verified=helped, sentence=sentence, output=lines)


def _with_sudo(argv: Sequence[str]) -> tuple[str, ...]:
    """``--``: a first word that begins with a dash is no option of sudo."""
    if os.geteuid() == 0:
        return tuple(argv)
    return ("sudo", "--", *argv)


def _looked(check: Check) -> tuple[bool | None, str, tuple[str, ...]]:
    told = clean(shlex.join(check.argv))
    try:
        ended = subprocess.run(
            check.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERIFY_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return None, f"`{told}` gave no answer in {VERIFY_S:.0f} s: not verified.", ()
    except OSError as error:
        return None, f"`{told}` cannot be run ({error.strerror}): not verified.", ()
    text = ended.stdout.decode("utf-8", "replace")
    lines = tuple(text.splitlines()[-20:])
    expected = check.expects is None or check.expects in text
    clear = check.lacks is None or check.lacks not in text
    helped = ended.returncode == 0 and expected and clear
    word = "as hoped" if helped else "not as hoped"
    return helped, f"`{told}` answers {word} (status {ended.returncode}).", lines
