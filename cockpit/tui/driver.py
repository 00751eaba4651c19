"""The terminal: Textual's Linux driver, made to end at once and to survive what ends a session.

``App(driver_class=QuickDriver)``. What it changes, and nothing else:
- the input thread waits for input or a byte in a pipe; Textual's sleeps in ``select(0.1)``, once
  more after its end was asked for, so a bare app takes 0.24 s to quit. Idle, it never wakes;
- a terminal that is gone (end of file, EIO) ends the app, quietly;
- SIGTERM, SIGHUP and SIGINT end the app in order, with return code 128 + n; when that takes too
  long (a terminal that takes no more output blocks every write), the process ends all the same;
- SIGCONT after a plain SIGSTOP starts again cleanly instead of starting a second time;
- a signal is acted on at once, whichever thread the kernel gives it to;
- the size is the terminal's own, also under an exported COLUMNS or LINES.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import termios
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, Any

from textual import constants
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PATIENCE_S = 3.0
"""How long an app may take to end after a signal; the rest of its writes are not worth more."""
_CLOSE_S = 0.5
"""How long to wait for the terminal to take the last bytes when the driver closes."""


class QuickDriver(LinuxDriver):
    """See the module's first lines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = _Output(sys.__stderr__, self._lose_terminal)  # type: ignore[assignment]
        self._wake: tuple[int, int] | None = None
        self._in_application_mode = False
        self._ending = False
        for number in ENDING_SIGNALS:
            signal.signal(number, self._end_by_signal)
        self._wake_for_signals()

    def _wake_for_signals(self) -> None:
        """Python acts on a signal in the main thread, which sleeps on when another thread got it
        (after a SIGSTOP one SIGCONT in forty, measured): a byte in a pipe wakes its loop."""
        here, there = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(there, warn_on_full_buffer=False)
        self._loop.add_reader(here, os.read, here, 4096)

    # Ending

    def _lose_terminal(self) -> None:
        """The terminal is gone: nobody can press q any more. Called from any thread."""
        _forget_dead_terminals()
        self._end(128 + signal.SIGHUP)

    def _end_by_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._end(128 + number):
            if self._auto_restart:  # otherwise a child has the terminal, and may take its time
                _Watchdog(number, self._restore_modes).start()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _end(self, return_code: int) -> bool:
        """Ask the app to exit, once; False when its loop is closed already."""
        if self._ending and not self._loop.is_closed():
            return True
        self._ending = True
        try:
            self._loop.call_soon_threadsafe(self._app.exit, None, return_code)
        except RuntimeError:
            return False
        return True

    def _restore_modes(self) -> None:
        with contextlib.suppress(termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)

    # Starting and stopping

    def start_application_mode(self) -> None:
        """Take the terminal; the pipe is made before the input thread that waits on it."""
        self._close_pipe()
        self._wake = os.pipe()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # When the terminal is not ours (``bg``), Textual starts nothing; no thread, no mode.
        self._in_application_mode = self._key_thread is not None and self._key_thread.is_alive()

    def stop_application_mode(self) -> None:
        """Give the terminal back; ``WireDiff`` leaves its pen set between frames."""
        self.write("\x1b[m")
        super().stop_application_mode()
        self._in_application_mode = False

    def disable_input(self) -> None:
        """End the input thread at once."""
        if self._wake is not None:
            os.write(self._wake[1], b"q")
        super().disable_input()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._wake is not None:
            os.close(self._wake[0])
            os.close(self._wake[1])
            self._wake = None

    def close(self) -> None:
        """Write what is left, but do not wait for a terminal that takes nothing."""
        closing = threading.Thread(target=super().close, name="terminal-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _sigcont_application(self, *_: Any) -> None:
        """After SIGSTOP, which cannot be prepared for, the mode is still on: stop it first, or a
        second input thread would take every other key."""
        if self._auto_restart and self._in_application_mode:
            self.suspend_application_mode()
        super()._sigcont_application()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and lines of the terminal itself: COLUMNS may be as old as the shell."""
        for stream in (sys.__stderr__, sys.__stdin__, sys.__stdout__):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                size = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]
                if all(size):
                    return size.columns, size.lines
        return super()._get_terminal_size()

    # Reading

    def run_input_thread(self) -> None:
        """Read keys until woken through the pipe; runs in a thread."""
        parser = XTermParser(self._debug)
        try:
            for text in self._inputs():
                self._process(parser.feed(text) if text else parser.tick())
        finally:
            with contextlib.suppress(Exception):
                list(parser.feed(""))  # the parser's own end; what it complains of is moot

    def _process(self, messages: Any) -> None:
        for message in messages:
            self.process_message(message)

    def process_message(self, message: Message) -> None:
        """Nothing may be sent once the app's loop has gone: a key pressed while it quits."""
        with contextlib.suppress(RuntimeError):
            super().process_message(message)

    def _inputs(self) -> Iterator[str]:
        """What was typed, piece by piece; "" when nothing followed for as long as a lone Escape
        is waited on. Ends when woken, or when the terminal is gone."""
        assert self._wake is not None
        waiting = select.poll()
        waiting.register(self._wake[0], select.POLLIN)
        waiting.register(self.fileno, select.POLLIN)
        decode = getincrementaldecoder("utf-8")("replace").decode
        escape_ms = int(constants.ESCAPE_DELAY * 1000) + 2
        timeout: int | None = None
        while not self.exit_event.is_set():
            ready = dict(waiting.poll(timeout))
            if self.fileno in ready:
                data = self._read()
                if not data:
                    self._lose_terminal()
                    return
                timeout = escape_ms
                yield from filter(None, (decode(data),))
            elif not ready:
                timeout = None
                yield ""

    def _read(self) -> bytes:
        """Bytes from the terminal; none when it is gone (EIO after a hang-up)."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""


class _Output:
    """The terminal's file for the writer thread: the first failed write is told, once, and what
    follows is dropped, so that the thread lives on and nobody waits for a full queue."""

    def __init__(self, file: IO[str] | None, lost: Callable[[], None]) -> None:
        self._file = file
        self._lost = lost

    def write(self, text: str) -> None:
        self._try(lambda file: file.write(text))

    def flush(self) -> None:
        self._try(lambda file: file.flush())

    def fileno(self) -> int:
        """The descriptor, for whoever asks the terminal something."""
        return sys.__stderr__.fileno() if sys.__stderr__ else -1

    def isatty(self) -> bool:
        """Whether it is (still) a terminal."""
        return self._file is not None and self._file.isatty()

    def _try(self, act: Callable[[IO[str]], object]) -> None:
        if self._file is None:
            return
        try:
            act(self._file)
        except (OSError, ValueError):  # ValueError: closed
            self._file = None
            self._lost()


def _forget_dead_terminals() -> None:
    """stdout and stderr that were hung up become /dev/null, so that no last word fails there."""
    for number in (1, 2):
        try:
            termios.tcgetattr(number)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)


class _Watchdog(threading.Thread):
    """Ends the process when the app does not: a write to a stopped terminal blocks the loop."""

    def __init__(self, number: int, restore: Callable[[], None]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._number = number
        self._restore = restore

    def run(self) -> None:
        threading.Event().wait(PATIENCE_S)
        self._restore()
        os._exit(128 + self._number)
