"""Asking a training script for its ``--help``: an action of its own, for it runs the user's code.

All that stands at the top of a script runs before its parser answers. So: only when confirmed, with
a time limit, without GPUs (CUDA_VISIBLE_DEVICES is empty), without stdin. What the source itself
tells (script_files.py) needs none of that and comes first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from cockpit import procfs
from cockpit.act.action import Console
from cockpit.act.command_environment import assigned
from cockpit.act.command_line import recognise
from cockpit.act.command_table import Meaning, addable
from cockpit.act.command_words import NotUnderstoodError, Program, find_program
from cockpit.act.quoting import shell_line
from cockpit.act.relaunch_plan import own_environment
from cockpit.act.script_files import ScriptFacts
from cockpit.act.script_options import declared_in_help
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean, plural

LIMIT_S = 60.0
"""Importing torch and transformers from a network home takes half a minute."""
MAX_BYTES = 1 << 18
LOOK_S = 0.05
_HIDES_GPUS = {"CUDA_VISIBLE_DEVICES": ""}
_WORDS: dict[Meaning, str] = {"batch": "the batch size", "workers": "the loader's workers"}


@dataclass(frozen=True)
class AskHelp:
    """An Action. Its Outcome is verified when the answer has an option for ``meaning``; the whole
    answer is its output."""

    command: RunCommand
    meaning: Meaning
    limit_s: float = LIMIT_S

    def preview(self) -> Preview:
        """The exact command."""
        argv = help_command(self.command)
        line = shell_line(argv, cwd=self.command.cwd, environment=_HIDES_GPUS)
        return Preview(
            title="ask the script for its options (--help)",
            form="command",
            lines=(line,) if argv else (),
            risk="confirm",
            loses="nothing, unless the script does more than answer: it is started, sees no GPU, "
            f"and is ended after {self.limit_s:.0f} s",
            verify=f"it prints an option for {self._wanted}",
            refusal=self._refusal(argv),
        )

    def run(self, console: Console) -> Outcome:
        """Raises RefusedError, or CockpitError when it cannot be started."""
        argv = help_command(self.command)
        refusal = self._refusal(argv)
        if refusal:
            raise RefusedError(refusal)
        with tempfile.TemporaryFile() as output:
            status = self._ask(argv, output, console)
            output.seek(0)
            text = output.read(MAX_BYTES).decode("utf-8", "replace")
        return self._judged(status, text)

    def _judged(self, status: int | None, text: str) -> Outcome:
        options = declared_in_help(text)
        wanted = recognise(self.command.argv, options).declared_as(self.meaning)
        lines = tuple(text.splitlines())
        what = self._wanted
        name = clean(wanted[0].long_name) if wanted else ""
        default = clean(wanted[0].default or "") if wanted else ""
        if wanted and default:
            sentence = f"It has {name} (default {default}) for {what}."
        elif wanted and self.meaning == "batch":
            sentence = f"It has {name} for {what}, but does not say which it takes without it."
        elif wanted:
            sentence = f"It has {name} for {what}."
        elif status is None:
            sentence = "It did not answer, and was ended."
        elif options:
            sentence = f"It has {plural(len(options), 'option')}, none of them for {what}."
        else:
            sentence = f"It ended with status {status} and listed no options."
        return Outcome(ok=bool(options), sentence=sentence, verified=bool(wanted), output=lines)

    @property
    def _wanted(self) -> str:
        """What the option would set."""
        return _WORDS.get(self.meaning, self.meaning)

    def _refusal(self, argv: tuple[str, ...]) -> str | None:
        if self.command.uid != os.geteuid():
            return f"This run belongs to {clean(procfs.user_name(self.command.uid))}."
        if self.command.container is not None:
            return "The script is in a container: ask it there."
        return None if argv else "It is not known how to start the script by itself."

    def _ask(self, argv: tuple[str, ...], output: IO[bytes], console: Console) -> int | None:
        """Its status; None: it was ended, being cancelled or too slow."""
        environment = own_environment(self.command) | assigned(self.command.argv) | _HIDES_GPUS
        try:
            process = subprocess.Popen(
                argv,
                cwd=self.command.cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CockpitError(f"The script was not started: {error.strerror}.") from error
        waited = 0.0
        while not (ended := _has_ended(process.pid)) and waited < self.limit_s:
            if console.cancelled.wait(LOOK_S):
                break
            waited += LOOK_S
        with suppress(ProcessLookupError):  # its own session, not collected yet: all of it is ours
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        return status if ended else None


def _has_ended(pid: int) -> bool:
    """Leaves it to be collected, so that its pid is nobody else's."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def may_ask(command: RunCommand, meaning: Meaning, script: ScriptFacts) -> bool:
    """Whether it is worth it: nothing else tells of such an option, and the program takes options
    at all. One that does not would begin to train."""
    seen = recognise(command.argv, script.declared, script.framework)
    if seen.program is None or not help_command(command):
        return False
    if seen.last(meaning) or seen.declared_as(meaning) or addable(meaning, seen.framework):
        return False
    given = seen.words[seen.program.arguments_at :]
    return script.parses or any(word.startswith("--") and len(word) > 2 for word in given)


def help_command(command: RunCommand) -> tuple[str, ...]:
    """The script alone, without its launcher; empty where that is not known."""
    try:
        program = find_program(command.argv)
    except NotUnderstoodError:
        return ()
    if program.kind == "program":
        return (*program.words[program.at : program.arguments_at], "--help")
    python = _python(program, command)
    if python is None or program.kind == "code" or program.name.endswith(".sh"):
        return ()
    script = ("-m", program.name) if program.kind == "module" else (program.name,)
    return (python, *script, "--help")


def _python(program: Program, command: RunCommand) -> str | None:
    """The interpreter that the command names, else the one that its #! line names."""
    for word in program.words[: program.at]:
        if os.path.basename(word).startswith("python"):
            return word
    found = command.interpreter or ""
    return found if os.path.basename(found).startswith("python") else None
