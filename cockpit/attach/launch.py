"""Start a command so that the cockpit can look inside it, and keep a record of the run.

    shell ── cockpit run (front) ── keeper ── command
                  signals │           │ output, status
                          └──────────►┘

The command stays in the front's process group and keeps the terminal as its stdin, so that ctrl+c,
ctrl+z and the shell's job control reach it as without us. The front hands on only what was sent to
the front alone, stops when the command stops, and ends with its status.
"""

from __future__ import annotations

import _thread
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from cockpit import procfs
from cockpit.attach import run_environment, run_record
from cockpit.attach.keeper import Order, keep
from cockpit.attach.run_record import Meta, Recorder
from cockpit.model.text import clean

T = TypeVar("T")

_SI_KERNEL = 0x80
"""si_code of what a terminal sends to the whole foreground group (asm-generic/siginfo.h)."""
_KEPT_BY_FRONT = frozenset(
    signal.Signals[f"SIG{name}"]
    for name in (
        *("KILL", "STOP", "CHLD", "SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS", "PIPE"),
        *("TTIN", "TTOU", "PROF", "VTALRM"),
    )
)
_RELAYED = frozenset(signal.valid_signals()) - _KEPT_BY_FRONT


@dataclass(frozen=True, slots=True)
class Launch:
    """What the user asked for."""

    command: tuple[str, ...]
    state_directory: str | None
    name: str | None = None
    background: bool = False
    history: bool = False
    """Record allocations with their stacks from the start of CUDA on (2 us each)."""
    coredump: bool = False
    ptracer: bool = False
    """Any process of the user may trace it (prctl PR_SET_PTRACER), for py-spy under Yama."""
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A run in the background."""

    pid: int
    name: str
    id: str | None
    """None: nothing is kept."""
    directory: str | None


@dataclass(frozen=True, slots=True)
class NotStarted:
    """``status`` as shells have it: 127 no such command, 126 it cannot be executed."""

    status: int
    sentence: str


def run(launch: Launch) -> int | NotStarted:
    """In the foreground: returns the command's status, 128 + n where signal n ended it."""
    keeper, report, directory = _fork_keeper(launch)
    return _forgotten(_Front(keeper, report).wait(), directory)


def start(launch: Launch) -> Started | NotStarted:
    """In the background: the command has its own session and outlives the caller."""
    _, report, directory = _fork_keeper(launch)
    with os.fdopen(report, "rb") as lines:
        told = json.loads(lines.readline() or b'{"failed": 1, "sentence": "the keeper ended"}')
    if "failed" in told:
        return _forgotten(NotStarted(told["failed"], told["sentence"]), directory)
    run_id = os.path.basename(directory) if directory else None
    return Started(told["pid"], launch.name or name_of(launch.command), run_id, directory)


def name_of(command: tuple[str, ...]) -> str:
    """The script, else the module, else the program: what a person calls the run."""
    for i, word in enumerate(command):
        if word == "-m" and i + 1 < len(command):
            if not command[i + 1].startswith(("torch.distributed.", "accelerate.")):
                return command[i + 1]
        elif word.endswith((".py", ".sh")):
            return os.path.basename(word)
    return os.path.basename(command[0])


def _forgotten(outcome: T, directory: str | None) -> T:
    """What never started leaves no record."""
    if isinstance(outcome, NotStarted) and directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    return outcome


def _fork_keeper(launch: Launch) -> tuple[int, int, str | None]:
    """The keeper's pid, the pipe on which it reports, the run's directory."""
    _open_standard_streams()
    directory = _directory(launch.state_directory)
    order = _order(launch, directory, dict(os.environ))
    report, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Blocked before anything runs that a signal would have to be handed on to.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, () if launch.background else _RELAYED)
    keeper = os.fork()
    if keeper == 0:
        os.close(report)
        keep(order, write_end, {one for one in mask if isinstance(one, signal.Signals)})
    os.close(write_end)
    return keeper, report, directory


def _order(launch: Launch, directory: str | None, environment: dict[str, str]) -> Order:
    options = [word for word in ("history", "ptracer") if getattr(launch, word)]
    changes = run_environment.for_run(
        environment,
        directory,
        options=options,
        coredump=launch.coredump,
        readonly=launch.readonly,
    )
    recorder = Recorder(directory) if directory else None

    def begun(pid: int) -> None:
        if recorder is not None:
            recorder.begin(_meta(launch, recorder.directory, environment, changes, pid))

    return Order(launch.command, {**environment, **changes}, launch.background, recorder, begun)


def _meta(
    launch: Launch,
    directory: str,
    environment: Mapping[str, str],
    changes: Mapping[str, str],
    pid: int,
) -> Meta:
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = None
    return Meta(
        id=os.path.basename(directory),
        name=launch.name or name_of(launch.command),
        command=tuple(_text(word) for word in launch.command),
        cwd=_text(cwd) if cwd else None,
        environment={
            _text(name): _text(value) for name, value in run_environment.masked(environment).items()
        },
        set_for_run={name: _text(value) for name, value in changes.items()},
        started_at=run_record.now(),
        pid=pid,
        start_ticks=run_record.start_ticks(pid),
        python=run_record.interpreter(launch.command, environment),
        host=os.uname().nodename,
        boot_id=run_record.boot_id(),
        background=launch.background,
        terminal=os.isatty(1),
    )


def _text(raw: str) -> str:
    """Bytes that are no UTF-8 cannot stand in JSON."""
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _directory(state_directory: str | None) -> str | None:
    if state_directory is None:
        _say("nothing of this run is kept: this user has no home directory of its own")
        return None
    try:
        return run_record.create(state_directory)
    except OSError as error:
        _say(f"nothing of this run is kept: {error.strerror} ({clean(state_directory)})")
        return None


def _open_standard_streams() -> None:
    """A closed stdin, stdout or stderr would be taken by one of our pipes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)


def _say(sentence: str) -> None:
    with suppress(OSError):
        os.write(2, f"cockpit: {sentence}\n".encode())


class _Front:
    """What the shell sees: waits, hands signals on, stops and continues with the command."""

    def __init__(self, keeper: int, report: int) -> None:
        self._keeper = keeper
        self._report = report
        self._command = 0

    def wait(self) -> int | NotStarted:
        with os.fdopen(self._report, "rb") as lines:
            for line in lines:
                told: dict[str, Any] = json.loads(line)
                if "failed" in told:
                    return NotStarted(told["failed"], told["sentence"])
                if "pid" in told:
                    self._begin(told["pid"])
                elif "stopped" in told:
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif "status" in told:
                    if told["trouble"]:
                        _say(f"the record of this run is incomplete: {told['trouble']}")
                    return int(told["status"])
        _say("the run's keeper was killed; how the command ended is not known")
        return 1

    def _begin(self, command: int) -> None:
        self._command = command
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):  # they are the command's: whoever reads must see their end
            os.dup2(null, number)
        os.close(null)
        _thread.start_new_thread(self._relay_all, ())

    def _relay_all(self) -> None:
        while True:
            with suppress(InterruptedError, ProcessLookupError, PermissionError):
                self._relay(signal.sigwaitinfo(_RELAYED))

    def _relay(self, info: signal.struct_siginfo) -> None:
        number, from_terminal = info.si_signo, info.si_code == _SI_KERNEL
        if number == signal.SIGWINCH:
            os.kill(self._keeper, signal.SIGWINCH)
        elif number == signal.SIGCONT:
            if _state(self._command) == "T":  # else the shell has continued the whole group
                os.kill(self._command, signal.SIGCONT)
        elif from_terminal and not (number == signal.SIGHUP and os.getsid(0) == os.getpid()):
            return  # the command has it already; a hang-up goes to the session's leader alone
        elif not _is_below(info.si_pid, self._command):
            os.kill(self._command, number)


def _state(pid: int) -> str:
    found = procfs.stat("/proc", pid)
    return "" if isinstance(found, procfs.Gap) else found.state


def _is_below(pid: int, ancestor: int) -> bool:
    """It, or a descendant: what the command sends to its own group, it has itself."""
    for _ in range(64):
        if pid == ancestor:
            return True
        found = procfs.stat("/proc", pid) if pid > 1 else procfs.Gap("gone")
        if isinstance(found, procfs.Gap):
            return False
        pid = found.ppid
    return False
