"""The face's end of the wire: starts an engine as a child and talks with it.

Everything that shows or asks goes through a Link, the TUI and the shell commands alike.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cockpit.engine.protocol import (
    PROTOCOL,
    EngineOptions,
    FromEngine,
    Hello,
    Message,
    Tick,
    decode_from_engine,
    encode,
)
from cockpit.engine.tick_delta import TickRestorer
from cockpit.engine.wire import LineReader, LineWriter
from cockpit.errors import CockpitError, LinkError, UsageError
from cockpit.model.text import clean

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
# Not "-m": that would put the user's working directory first on sys.path, and with it any
# select.py or signal.py that lies there.
_BOOT = (
    "import os, sys; sys.path.pop(0); sys.path.append(sys.argv.pop(1)); "
    "from cockpit.engine.__main__ import main; s = main(); sys.stderr.flush(); os._exit(s)"
)


class Link:
    """One engine. Used from one thread."""

    def __init__(self, options: EngineOptions, log_path: str | None = None) -> None:
        """Starts the engine at once. ``log_path`` takes its stderr; None: thrown away.

        Raises UsageError for an option that is no UTF-8.
        """
        self.options = options
        self.log_path = log_path
        self.pid, to_engine, from_engine = _spawn(options, log_path or os.devnull)
        self._writer = LineWriter(to_engine)
        self._reader = LineReader(from_engine)
        self._restorer = TickRestorer()
        self._next_id = 0
        self._closed = False
        self._exit_code: int | None = None
        self._queue: list[FromEngine] = []

    def fileno(self) -> int:
        """For select or an event loop: readable when :meth:`drain` has something to do."""
        return self._reader.fd

    def next_id(self) -> int:
        """A request id that was not used before."""
        self._next_id += 1
        return self._next_id

    def send(self, message: Message) -> None:
        """Raises LinkError when the engine is gone, UsageError for words that are no UTF-8."""
        with _only_utf8():
            line = encode(message)
        if not self._writer.write(line):
            raise self._ended()

    def drain(self) -> list[FromEngine]:
        """What has come, without waiting for more than one read. Raises LinkError at the end."""
        lines = self._reader.read()
        if not lines and self._reader.ended:
            raise self._ended()
        return [self._decode(line) for line in lines]

    def receive(self, timeout_s: float) -> FromEngine | None:
        """The next message, or None after ``timeout_s``. Raises LinkError at the end."""
        end = time.monotonic() + timeout_s
        while not self._queue:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._reader.fd], [], [], left)[0]:
                return None
            self._queue += self.drain()
        return self._queue.pop(0)

    def close(self, wait_s: float = 0.03, *, may_kill: bool = True) -> None:
        """End-of-file, a moment, SIGKILL. Never waits for an engine that the kernel holds.

        ``may_kill`` False: it may finish what it does (the proof of a kill), and ends by itself.
        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        os.close(self._writer.fd)
        end = time.monotonic() + wait_s
        while not self._reap() and time.monotonic() < end:
            time.sleep(0.002)
        if self._exit_code is None and may_kill:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        os.close(self._reader.fd)

    def _reap(self) -> bool:
        if self._exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._exit_code = 0
            else:
                if pid:
                    self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code is not None

    def _decode(self, line: bytes) -> FromEngine:
        try:
            message = decode_from_engine(line)
            if isinstance(message, Tick):
                return self._restorer.restore(message)
        except ValueError as error:  # msgspec.DecodeError is one
            raise LinkError(f"The engine sent something that is no message: {error}") from error
        if isinstance(message, Hello) and message.protocol != PROTOCOL:
            raise LinkError(
                f"The engine speaks protocol {message.protocol}, this cockpit {PROTOCOL}: "
                "install the same version on both sides."
            )
        return message

    def _ended(self) -> CockpitError:
        """Why the engine is gone, as far as its status and its last words tell."""
        end = time.monotonic() + 0.1
        while not self._reap() and time.monotonic() < end:
            time.sleep(0.002)
        words = last_line(self.log_path)
        if self._exit_code == UsageError.exit_code:
            return UsageError(words or "The engine refused its options.")
        if self._exit_code is not None and self._exit_code < 0:
            how = f"was ended by signal {-self._exit_code}"
        else:
            how = f"ended with status {self._exit_code}"
        return LinkError(f"The engine {how}." + (f" Its last words: {words}" if words else ""))


@contextmanager
def _only_utf8() -> Iterator[None]:
    """What the shell gives may be any bytes; the wire is JSON. Raises UsageError."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise UsageError(
            f"`{clean(error.object)}` is not UTF-8: give it, or the directory, another name."
        ) from error


def last_line(path: str | None) -> str:
    """The last line of a log file; empty when there is none."""
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _spawn(options: EngineOptions, log_path: str) -> tuple[int, int, int]:
    """pid, descriptor to write to, descriptor to read from. posix_spawn: no fork of a big face."""
    with _only_utf8():
        told = msgspec.json.encode(options).decode()
    engine_in, to_engine = os.pipe()
    from_engine, engine_out = os.pipe()
    argv = [sys.executable, "-c", _BOOT, _PACKAGE_ROOT, told]
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        pid = os.posix_spawn(
            sys.executable,
            argv,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, engine_in, 0),
                (os.POSIX_SPAWN_DUP2, engine_out, 1),
                (os.POSIX_SPAWN_OPEN, 2, log_path, log_flags, 0o600),
            ],
            setpgroup=0,  # out of the terminal's foreground group: ctrl+c and ctrl+z are the face's
        )
    except OSError as error:
        raise LinkError(f"The engine could not be started: {error}") from error
    finally:
        os.close(engine_in)
        os.close(engine_out)
    return pid, to_engine, from_engine
