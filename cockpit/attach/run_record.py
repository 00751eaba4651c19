"""The record of a run that the cockpit started: what is on disk about it, during and after.

    $XDG_STATE_HOME/cockpit/runs/<id>/            0700, files 0600
      meta.json        command, directory, environment without secrets, pid, start
      output           the last lines (run_output.py)
      processes/       one file a process that imported torch or used CUDA (the bootstrap)
      oom/             statistics, segment map, and with history a snapshot with stacks (the agent)
      flight/ stacks/  flight recorder dumps, stacks taken by signal
      exit.json        status and end

Names say what a run is only to its owner: other people's records are not looked for.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from cockpit import procfs
from cockpit.attach import run_oom, run_output
from cockpit.errors import TargetGoneError
from cockpit.model.text import clean

KEPT_RUNS = 50
FOREIGN_KEPT_S = 30 * 86400.0
"""A run of another machine in a shared home may still be going on: kept at least so long."""

T = TypeVar("T")


class Meta(Struct, frozen=True, kw_only=True):
    """meta.json, written when the command has been started."""

    id: str
    name: str
    command: tuple[str, ...]
    cwd: str | None
    environment: dict[str, str]
    """As the cockpit got it; what looks like a secret is masked."""
    set_for_run: dict[str, str]
    """What the cockpit changed or added."""
    started_at: str
    pid: int
    start_ticks: int | None
    python: str | None
    """The command's interpreter where its first word or its #! line tells."""
    host: str
    boot_id: str | None
    background: bool = False
    terminal: bool = False


class Exit(Struct, frozen=True, kw_only=True):
    """exit.json. ``status`` is 128 + n for a signal, as a shell has it."""

    status: int
    signal: str | None
    ended_at: str
    ooms: int = 0


class RunProcess(Struct, frozen=True, kw_only=True):
    """A process of the run with an agent, or with CUDA."""

    pid: int
    start_ticks: int
    socket: str | None = None
    python: str | None = None
    python_version: str | None = None
    rank: str | None = None
    stacks: dict[str, Any] | None = None
    """``signal``: sent to it, the stacks of all its threads are appended to ``file``."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run as its directory has it at this moment."""

    directory: str
    meta: Meta
    exit: Exit | None

    @property
    def state(self) -> Literal["running", "ended", "lost", "elsewhere"]:
        """``lost``: it is gone, and nobody saw how. ``elsewhere``: on another machine."""
        if self.exit is not None:
            return "ended"
        if self.meta.host != socket.gethostname():
            return "elsewhere"
        same_boot = self.meta.boot_id == boot_id()
        alive = same_boot and start_ticks(self.meta.pid) == self.meta.start_ticks is not None
        return "running" if alive else "lost"

    def output(self, limit: int = run_output.MAX_LINES) -> list[str]:
        """Lines that a terminal may show."""
        with suppress(OSError):
            return run_output.read_lines(self.directory, limit)
        return []

    def log(self) -> bytes:
        """The kept output, and one line about the end where it is known: what a diagnosis reads.

        ``[the run was ended by SIGKILL]`` or ``[exit status 3]``; a signal leaves no other trace.
        """
        lines = self.output()
        if self.exit is not None:
            by = self.exit.signal
            lines.append(
                f"[the run was ended by {by}]" if by else f"[exit status {self.exit.status}]"
            )
        return "\n".join(lines).encode(errors="replace")

    def processes(self) -> tuple[RunProcess, ...]:
        """In the order of their pids."""
        folder = os.path.join(self.directory, "processes")
        found = [
            _load(os.path.join(folder, name), RunProcess)
            for name in _names(folder)
            if name.endswith(".json")
        ]
        return tuple(sorted((one for one in found if one), key=lambda one: one.pid))

    def ooms(self) -> tuple[dict[str, Any], ...]:
        """The agents' records, the first OOM first."""
        return run_oom.load(self.directory)


class Recorder:
    """Writes one record. Nothing here raises: trouble is one sentence, and the run goes on."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.trouble: str | None = None
        self._output: run_output.OutputWriter | None = None

    def begin(self, meta: Meta) -> None:
        try:
            _write(os.path.join(self.directory, "meta.json"), meta)
            self._output = run_output.OutputWriter(self.directory)
        except OSError as error:
            self._stop(error)

    def write(self, raw: bytes) -> None:
        if self._output is None:
            return
        try:
            self._output.write(raw)
        except OSError as error:  # a full disk: the run's output goes on to the terminal
            self._stop(error)

    def end(self, status: int, signal: str | None) -> None:
        """After the last output."""
        try:
            output, self._output = self._output, None
            if output is not None:
                output.close()
        except OSError as error:
            self._stop(error)
        with suppress(OSError, TargetGoneError):
            ooms = len(run_oom.load(self.directory))
            done = Exit(status=status, signal=signal, ended_at=now(), ooms=ooms)
            _write(os.path.join(self.directory, "exit.json"), done)

    def _stop(self, error: OSError) -> None:
        self._output = None
        self.trouble = f"{error.strerror or error} ({clean(self.directory)})"


def create(state_directory: str) -> str:
    """A new directory for a run; old ones go. Raises OSError where nothing can be written."""
    runs = os.path.join(state_directory, "runs")
    for folder in (state_directory, runs):  # of several only the last gets the mode
        os.makedirs(folder, mode=0o700, exist_ok=True)
    prune(runs)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    directory = os.path.join(runs, f"{stamp}-{secrets.token_hex(4)}")
    os.mkdir(directory, 0o700)
    os.mkdir(os.path.join(directory, "flight"), 0o700)  # torch does not make it
    return directory


def prune(runs: str, keep: int = KEPT_RUNS) -> None:
    """Remove the oldest records of ended runs until ``keep`` are left."""
    names = _names(runs)
    for name in names[: max(0, len(names) - keep + 1)]:
        directory = os.path.join(runs, name)
        if os.path.isdir(directory) and not os.path.islink(directory) and _may_go(directory):
            shutil.rmtree(directory, ignore_errors=True)


def list_runs(state_directory: str) -> list[RunRecord]:
    """Newest first; directories without a readable meta.json are left out."""
    runs = os.path.join(state_directory, "runs")
    found = []
    for name in reversed(_names(runs)):
        with suppress(TargetGoneError):
            found.append(load_run(os.path.join(runs, name)))
    return found


def find_run(state_directory: str, text: str) -> RunRecord:
    """By id, by name (the newest of it) or by pid. Raises TargetGoneError."""
    for run in list_runs(state_directory):
        if text in (run.meta.id, run.meta.name, str(run.meta.pid)):
            return run
    raise TargetGoneError(f"There is no record of a run {clean(text)}.")


def record_of(
    state_directory: str, pid: int, start_ticks_of_it: int | None = None
) -> RunRecord | None:
    """The newest run that is, or was, of this process; None: none is kept.

    A pid is given again: while it lives, only the run of just that process counts; of one that
    has ended the start ticks tell, where they are known.
    """
    ticks = start_ticks(pid) or start_ticks_of_it
    for record in list_runs(state_directory):
        known = {record.meta.pid: record.meta.start_ticks}
        known |= {one.pid: one.start_ticks for one in record.processes()}
        if pid not in known or (ticks is not None and known[pid] != ticks):
            continue
        if start_ticks(pid) is None or record.meta.boot_id == boot_id():
            return record
    return None


def load_run(directory: str) -> RunRecord:
    """Raises TargetGoneError where there is no readable record."""
    meta = _load(os.path.join(directory, "meta.json"), Meta)
    if meta is None:
        raise TargetGoneError(f"There is no record of a run in {clean(directory)}.")
    end = _load(os.path.join(directory, "exit.json"), Exit)
    return RunRecord(directory=directory, meta=meta, exit=end)


def now() -> str:
    """UTC, to the millisecond, as in snapshots."""
    text = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def boot_id() -> str | None:
    """Start ticks count from the boot: without it they name no process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when it is gone or a zombie."""
    found = procfs.stat("/proc", pid)
    return None if isinstance(found, procfs.Gap) or found.state in "ZX" else found.start_ticks


def interpreter(command: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    """The Python that the command's first word is, or that its #! line names."""
    path = shutil.which(command[0], path=environment.get("PATH"))
    if path is None or os.path.basename(path).startswith("python"):
        return path
    try:
        with open(path, "rb") as file:
            first = file.readline(300)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words and b"python" in os.path.basename(words[0]) else None


def _may_go(directory: str) -> bool:
    try:
        run = load_run(directory)
    except TargetGoneError:
        return time.time() - os.stat(directory).st_mtime > 60
    if run.state == "elsewhere":
        return time.time() - os.stat(directory).st_mtime > FOREIGN_KEPT_S
    return run.state != "running"


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _load(path: str, kind: type[T]) -> T | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _write(path: str, value: Struct) -> None:
    """All of it or nothing: a reader never sees half a file."""
    partial = path + ".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
        file.write(msgspec.json.encode(value))
    os.replace(partial, path)
