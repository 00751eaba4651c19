"""Asking a training script for its ``--help``: an action of its own, for it runs the user's code.

All that stands at the top of a script runs before its parser answers. So: only when confirmed, with
a time limit, without GPUs (CUDA_VISIBLE_DEVICES is empty), without stdin. What the source itself
tells (script_files.py) needs none of that and is tried first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass

from cockpit import procfs
from cockpit.act.action import Console
from cockpit.act.command_line import Declared
from cockpit.act.command_words import NotUnderstoodError, Program, find_program
from cockpit.act.quoting import shell_line
from cockpit.act.script_options import declared_in_help
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean

LIMIT_S = 60.0
"""Importing torch and transformers from a network home takes half a minute."""
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class AskHelp:
    """An Action; :func:`declared_in` reads the options from its Outcome."""

    command: RunCommand
    limit_s: float = LIMIT_S

    def preview(self) -> Preview:
        """The exact command."""
        argv = help_command(self.command)
        line = shell_line(argv, cwd=self.command.cwd, environment={"CUDA_VISIBLE_DEVICES": ""})
        return Preview(
            title="ask the script for its options (--help)",
            form="command",
            lines=(line,) if argv else (),
            risk="confirm",
            loses="nothing, unless the script does more than answer; it sees no GPU",
            verify="it prints its options",
            refusal=self._refusal(argv),
        )

    def run(self, console: Console) -> Outcome:
        """Raises RefusedError, or CockpitError when it cannot be started."""
        argv = help_command(self.command)
        refusal = self._refusal(argv)
        if refusal:
            raise RefusedError(refusal)
        with tempfile.TemporaryFile() as output:
            status = self._ask(argv, output.fileno(), console)
            output.seek(0)
            lines = output.read(MAX_BYTES).decode("utf-8", "replace").splitlines()
        count = len(declared_in_help("\n".join(lines)))
        how = f"it ended with status {status}" if status is not None else "it was ended"
        return Outcome(
            ok=status == 0,
            sentence=f"{how}, and {count} options were read",
            verified=count > 0,
            output=tuple(lines),
        )

    def _refusal(self, argv: tuple[str, ...]) -> str | None:
        if self.command.uid != os.geteuid():
            return f"This run belongs to {clean(procfs.user_name(self.command.uid))}."
        if self.command.container is not None:
            return "The script is in a container: ask it there."
        return None if argv else "It is not known how to start the script by itself."

    def _ask(self, argv: tuple[str, ...], output: int, console: Console) -> int | None:
        """Its status; None: it was ended, being cancelled or too slow."""
        environment = {**self.command.environment, "CUDA_VISIBLE_DEVICES": ""}
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
            raise CockpitError(f"The script was not started: {error.strerror}") from error
        waited = 0.0
        while process.poll() is None and waited < self.limit_s and not console.cancelled.is_set():
            console.cancelled.wait(0.05)
            waited += 0.05
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its own session: the group is all ours
            process.wait()
            return None
        return process.returncode


def declared_in(outcome: Outcome) -> tuple[Declared, ...]:
    """The options that an answered ``--help`` lists."""
    return declared_in_help("\n".join(outcome.output))


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
