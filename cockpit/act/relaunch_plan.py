"""What starting a run again would be: the exact command, directory and environment; and why not.

Makes nothing and starts nothing. Whether the command may be run is said here, too, for the preview
and once more just before it is run.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cockpit import procfs
from cockpit.act.boot import cockpit_command
from cockpit.act.command_environment import assigned, place
from cockpit.act.container import Entry, enter
from cockpit.act.identity import read_stat
from cockpit.act.quoting import assignment, shell_line
from cockpit.act.run_starts import Start
from cockpit.model.remedy import TerminalCommand
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean

Where = Literal["background", "tmux", "terminal"]
MARK = "COCKPIT_RELAUNCH"
"""A variable of the new run, by which its record is found whoever started it."""


def own_environment(command: RunCommand) -> dict[str, str]:
    """What it was started with; ours, where it is entered from here (a container). Secrets were not
    kept: they are ours, too."""
    if command.container is not None:
        return dict(os.environ)
    missing = {name: os.environ[name] for name in command.unknown if name in os.environ}
    return {**command.environment, **missing}


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A run that is to be started again, and its changes."""

    command: RunCommand
    set_environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    argv: tuple[str, ...] | None = None
    """The changed command; None: as it was."""
    where: Where = "background"
    name: str | None = None
    options: tuple[str, ...] = ()
    """Of ``cockpit run``, such as ``--coredump``."""
    is_probe: bool = False
    """Started only to see what it prints: it is ended as soon as there is an answer."""
    mark: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def new_argv(self) -> tuple[str, ...]:
        """The command as it would be run."""
        return self.argv if self.argv is not None else self.command.argv

    @property
    def new_name(self) -> str:
        """What the new run is called."""
        return self.name or self.command.name or os.path.basename(self.new_argv[0])

    def entry(self) -> Entry | None:
        """The way into the run's container; None: it is in none. Asks docker."""
        if self.command.container is None:
            return None
        placed = place(self.new_argv, self.set_environment, self.unset)
        # What the image or the container sets can only be unset inside.
        unset = [word for name in self.unset for word in ("-u", name)]
        argv = ("env", *unset, *placed.argv) if unset else placed.argv
        mark = f"{MARK}={self.mark}" if self.is_probe else None
        return enter(self.command, argv, placed.set, mark)

    def start(self, entry: Entry | None) -> Start:
        """What is started here, outside of containers."""
        argv, set_, cwd = self._outside(entry)
        return Start(argv, cwd or "/", self.environment(set_), self.new_name, self.options)

    def environment(self, set_: Mapping[str, str]) -> dict[str, str]:
        """All of it: the run's own, the changes, the mark."""
        inside = self.command.container is not None
        base = {**own_environment(self.command), **set_}
        for name in () if inside else self.unset:
            base.pop(name, None)
        return {**base, MARK: self.mark}

    def terminal(self, entry: Entry | None) -> TerminalCommand:
        """For the face: what differs from our environment, which is the face's too.

        Its ``environment`` may hold the run's secrets: not for a log.
        """
        start = self.start(entry)
        gone = [name for name in os.environ if name not in start.environment]
        command = cockpit_command("run", *start.words())
        unset = [word for name in gone for word in ("-u", name)]
        return TerminalCommand(
            argv=(*(("env", *unset) if unset else ()), *command),
            cwd=start.cwd,
            environment={n: v for n, v in start.environment.items() if os.environ.get(n) != v},
        )

    # -- as text

    def line(self, entry: Entry | None) -> str:
        """``cd DIR && VAR=… cockpit run --name NAME -- …``: what a person could type."""
        words = ["cockpit", "run", "--name", self.new_name]
        words += [*self.options, *(["--background"] if self.where == "background" else [])]
        argv, set_, cwd = self._outside(entry)
        unset = () if entry else self.unset
        line = shell_line([*words, "--", *argv], cwd=cwd, environment=set_, unset=unset)
        return f"tmux new-window: {line}" if self.where == "tmux" else line

    def difference(self) -> tuple[str, ...]:
        """Lines with ``-`` and ``+``: variables first, then the whole command."""
        old = {**self.command.environment, **assigned(self.command.argv)}
        lines: list[str] = []
        for name in (*self.unset, *self.set_environment):
            new = self.set_environment.get(name)
            lines += [f"- {assignment(name, old[name])}"] if name in old else []
            lines += [f"+ {assignment(name, new)}"] if new is not None else []
        if self.new_argv != self.command.argv:
            lines += [f"- {shell_line(self.command.argv)}", f"+ {shell_line(self.new_argv)}"]
        return tuple(lines)

    def _outside(self, entry: Entry | None) -> tuple[tuple[str, ...], dict[str, str], str | None]:
        """argv, variables to set and directory for the process that is started here."""
        if entry is not None:
            return entry.command, {}, None
        placed = place(self.new_argv, self.set_environment, self.unset)
        return placed.argv, placed.set, self.command.cwd

    # -- whether it may

    def refusal(self, entry: Entry | None) -> str | None:
        """None: it may be run."""
        return (
            self._not_theirs()
            or self._not_now()
            or (entry.refusal if entry is not None else self._not_there())
        )

    def old_lives(self) -> bool:
        """The run itself, by pid and start time."""
        pid, ticks = self.command.pid, self.command.start_ticks
        stat = read_stat(pid) if pid else None
        return stat is not None and stat.start_ticks == ticks and not stat.dead

    def _not_theirs(self) -> str | None:
        run = self.command
        if run.uid != os.geteuid():
            who = clean(procfs.user_name(run.uid))
            return f"This run belongs to {who}: only they can start it again, also for root."
        if run.refusal or not self.new_argv:
            return run.refusal or "The command of this run is not known."
        if run.slurm_job is not None:
            job = clean(run.slurm_job)
            return f"Slurm job {job} started it: submit it again with sbatch or srun --jobid {job}."
        return None

    def _not_now(self) -> str | None:
        if self.old_lives():
            pid = self.command.pid
            return f"pid {pid} still runs and holds its GPU: end it first, then start it again."
        if self.where == "terminal" and not _is_text(
            (*self.new_argv, *self.environment({}).values())
        ):
            return "It has bytes that are no UTF-8 text: start it in the background, or in tmux."
        if self.where == "tmux" and shutil.which("tmux") is None:
            return "There is no tmux here: start it in the background."
        return None

    def _not_there(self) -> str | None:
        cwd, program = self.command.cwd, self.new_argv[0]
        if cwd is None or not os.path.isdir(cwd):
            return f"Its directory is not there any more: {clean(cwd or 'not known')}"
        path = self.environment({}).get("PATH", os.defpath)
        found = program if os.path.isabs(program) else os.path.join(cwd, program)
        there = os.access(found, os.X_OK) if "/" in program else shutil.which(program, path=path)
        return None if there else f"Its program is not there any more: {clean(program)}"


def _is_text(words: Iterable[str]) -> bool:
    """Can go over the wire; os.fsdecode makes lone surrogates of other bytes."""
    return not any("\ud800" <= character <= "\udfff" for word in words for character in word)
