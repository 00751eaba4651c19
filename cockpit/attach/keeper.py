"""The keeper: parent of the command, records what it prints and how it ends.

A process of its own, forked from ``cockpit run``, in a session of its own once the command has
been started: neither ctrl+c nor the end of ``cockpit run`` nor a closed terminal reaches it, so
that the command's output always has a reader.

The command's stdin stays what it is. A stdout or stderr that is a terminal becomes a
pseudo-terminal of the same size, anything else a pipe; both lead to the same place as before.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from cockpit.attach.run_record import Recorder
from cockpit.model.text import clean

CHUNK = 4096
"""PIPE_BUF: a pipe that polls writable takes so much without blocking."""
SURVIVORS_S = 0.1
"""How long the output is waited for when the command has ended and others still hold it."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True, slots=True)
class Order:
    """What to start. ``begun`` is called with the pid, before any output is read."""

    command: tuple[str, ...]
    environment: dict[str, str]
    background: bool
    recorder: Recorder | None
    begun: Callable[[int], None]


@dataclass(slots=True)
class _Channel:
    """From the command (``inner``) to where its output went before (``outer``; None: nowhere)."""

    inner: int
    outer: int | None
    terminal: bool = False
    pending: bytes = b""


class Keeper:
    """Runs in the forked process; reports by lines of JSON: pid, stopped, status or failed."""

    def __init__(self, order: Order, report: int) -> None:
        self._order = order
        self._report = report
        self._channels: list[_Channel] = []
        self._pid = 0
        self._status: int | None = None
        self._told = False
        self._silent_since = 0.0
        self._wake = (-1, -1)

    def run(self, mask: set[signal.Signals]) -> None:
        """``mask`` is what the command gets as its blocked signals."""
        self._catch_signals()
        child_ends = self._open_channels()
        if self._order.background:
            os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            process = self._start(child_ends)
        except OSError as error:
            self._tell(**_why_not(self._order, error))
            return
        self._pid = process.pid
        if not self._order.background:
            os.setsid()
        self._let_go()
        self._order.begun(self._pid)
        self._tell(pid=self._pid)
        while self._channels or self._status is None:
            self._turn()
            if self._status is not None and not self._told and self._drained():
                self._finish()
        if not self._told:
            self._finish()

    def _start(self, child_ends: tuple[int | None, int | None]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._order.command,
            stdin=subprocess.DEVNULL if self._order.background else None,
            stdout=child_ends[0],
            stderr=child_ends[1],
            env=self._order.environment,
            close_fds=False,  # what a shell hands on (<(…), 3>file) is the command's
            start_new_session=self._order.background,
        )

    def _catch_signals(self) -> None:
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        names = ("CHLD", "WINCH", "INT", "QUIT", "TERM", "HUP", "TSTP", "USR1", "USR2")
        for number in (signal.Signals[f"SIG{name}"] for name in names):
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                # A handler, so that exec gives the command the default; ignored stays ignored.
                signal.signal(number, _nothing)

    def _open_channels(self) -> tuple[int | None, int | None]:
        """The command's stdout and stderr; None: inherited as it is."""
        if self._order.recorder is None and not self._order.background:
            return None, None
        if self._order.background:
            end = self._pipe(None)
            return end, end
        if _same(1, 2):  # one channel keeps the order
            end = self._channel(1)
            return end, end
        return self._channel(1), self._channel(2)

    def _channel(self, outer: int) -> int:
        return self._terminal(outer) if os.isatty(outer) else self._pipe(outer)

    def _pipe(self, outer: int | None) -> int:
        inner, end = os.pipe()
        self._channels.append(_Channel(inner, outer))
        return end

    def _terminal(self, outer: int) -> int:
        inner, end = os.openpty()
        modes = termios.tcgetattr(outer)
        modes[1] &= ~termios.OPOST  # the real terminal turns \n into \r\n
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
        termios.tcsetattr(end, termios.TCSANOW, modes)
        self._channels.append(_Channel(inner, outer, terminal=True))
        self._copy_size()
        return end

    def _let_go(self) -> None:
        """Nothing of the command's is held here: a pipe without readers must look like one."""
        mine = {1, 2, self._report, *self._wake, *(channel.inner for channel in self._channels)}
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in {0, 1, 2} if self._order.background else {0}:
            os.dup2(null, each)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in mine | {0}:
                with suppress(OSError):
                    os.close(int(name))

    # one turn of the loop

    def _turn(self) -> None:
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        for channel in self._channels:
            if channel.pending and channel.outer is not None:
                poll.register(channel.outer, select.POLLOUT)
            else:
                poll.register(channel.inner, select.POLLIN)
        waits = self._status is not None and not self._told
        ready = {fd for fd, _ in poll.poll(SURVIVORS_S * 1000 if waits else None)}
        if ready - {self._wake[0]}:
            self._silent_since = time.monotonic()
        for channel in list(self._channels):
            if channel.pending:
                if channel.outer in ready:
                    self._pass_on(channel)
            elif channel.inner in ready:
                self._take(channel)
        if self._wake[0] in ready:
            self._see_signals()

    def _take(self, channel: _Channel) -> None:
        try:
            raw = os.read(channel.inner, 1 << 16)
        except OSError:  # EIO: nobody has the pseudo-terminal open any more
            raw = b""
        if not raw:
            self._close(channel)
            return
        if self._order.recorder is not None:
            self._order.recorder.write(raw)
        if channel.outer is not None:
            channel.pending = raw
            self._pass_on(channel)

    def _pass_on(self, channel: _Channel) -> None:
        """One piece, where the outside takes it without blocking."""
        assert channel.outer is not None
        poll = select.poll()
        poll.register(channel.outer, select.POLLOUT)
        while channel.pending and poll.poll(0):
            try:
                written = os.write(channel.outer, channel.pending[:CHUNK])
            except BlockingIOError:
                return
            except OSError as error:
                self._outside_gone(channel, error)
                return
            channel.pending = channel.pending[written:]

    def _outside_gone(self, channel: _Channel, error: OSError) -> None:
        """A closed pipe is the command's to notice, as without us; a closed terminal is not."""
        channel.pending = b""
        if error.errno == errno.EPIPE:
            self._close(channel)
        else:
            channel.outer = None

    def _close(self, channel: _Channel) -> None:
        self._channels.remove(channel)
        os.close(channel.inner)
        if channel.outer is not None and not self._order.background:
            with open(os.devnull, "wb") as null:  # the reader outside sees the end of file
                outers = {1, 2} if _same(1, 2) else {channel.outer}
                for each in outers:
                    os.dup2(null.fileno(), each)

    def _see_signals(self) -> None:
        with suppress(BlockingIOError):
            numbers = os.read(self._wake[0], 4096)
            if signal.SIGWINCH in numbers:
                self._copy_size()
                self._signal(signal.SIGWINCH)
        while self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._tell(stopped=True)
            else:
                self._status = status
                self._silent_since = time.monotonic()

    def _copy_size(self) -> None:
        for channel in self._channels:
            if channel.terminal and channel.outer is not None:
                with suppress(OSError):
                    size = fcntl.ioctl(channel.outer, termios.TIOCGWINSZ, bytes(8))
                    fcntl.ioctl(channel.inner, termios.TIOCSWINSZ, size)

    def _signal(self, number: int) -> None:
        if self._status is None and self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    # the end

    def _drained(self) -> bool:
        if not self._channels:
            return True
        if any(channel.pending for channel in self._channels):
            return False
        return time.monotonic() - self._silent_since >= SURVIVORS_S

    def _finish(self) -> None:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        status = 128 - code if code < 0 else code
        recorder = self._order.recorder
        if recorder is not None:
            recorder.end(status, signal_name(-code) if code < 0 else None)
        self._told = True
        self._tell(status=status, trouble=recorder.trouble if recorder else None)

    def _tell(self, **what: Any) -> None:
        with suppress(BrokenPipeError):  # `cockpit run` was killed, or went: background
            os.write(self._report, json.dumps(what).encode() + b"\n")


def keep(order: Order, report: int, mask: set[signal.Signals]) -> None:
    """Never returns: the forked process ends here."""
    try:
        with suppress(OSError), open("/proc/self/comm", "w") as comm:
            comm.write("cockpit-keeper")
        Keeper(order, report).run(mask)
    except Exception as error:  # noqa: BLE001 - nobody above could do anything about it
        with suppress(OSError):
            os.write(2, f"cockpit: the run's keeper failed: {error!r}\n".encode())
    finally:
        os._exit(0)


def signal_name(number: int) -> str:
    """``SIGTERM``; real-time signals have no name of their own in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Wakes the loop."""


def _same(one: int, other: int) -> bool:
    """Both lead to the same terminal, pipe or file."""
    first, second = os.fstat(one), os.fstat(other)
    if stat.S_ISCHR(first.st_mode):
        return first.st_rdev == second.st_rdev and stat.S_ISCHR(second.st_mode)
    return os.path.samestat(first, second)


def _why_not(order: Order, error: OSError) -> dict[str, Any]:
    """As shells have it: 127 where there is no such thing, 126 where it is none to execute."""
    word = order.command[0]
    found = isinstance(error, FileNotFoundError)
    what = _not_found(order) if found else _not_executable(word, error)
    status = NOT_FOUND if found else NOT_EXECUTABLE
    return {"failed": status, "sentence": f"{clean(word)}: {what}"}


def _not_found(order: Order) -> str:
    word = order.command[0]
    if shutil.which(word, path=order.environment.get("PATH")):
        return "its interpreter (the #! line) does not exist"
    return "no such file" if "/" in word else "command not found"


def _not_executable(word: str, error: OSError) -> str:
    if os.path.isdir(word):
        return "is a directory"
    if isinstance(error, PermissionError) and os.path.isfile(word) and not os.access(word, os.X_OK):
        return "is not executable (chmod +x, or name its interpreter: python FILE)"
    return error.strerror or str(error)


assert sys.platform == "linux"
