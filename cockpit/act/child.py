"""A long child of an action (pip, uv): its lines as they come, stopped only when that is safe.

Its output goes into a file, which is read along: when the engine ends in the middle, the child does
not meet a closed pipe while it replaces files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.errors import CockpitError
from cockpit.model.text import clean

LOOK_S = 0.1
STOP_S = 20.0
"""After SIGINT, then SIGTERM, then SIGKILL."""
FINISH_S = 180.0
"""How long a cancelled child may go on with what is not safe to interrupt."""
KEPT_LINES = 200


@dataclass(frozen=True)
class Ended:
    """How a child came to its end."""

    status: int
    lines: tuple[str, ...]
    """The last that it printed."""
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """It says itself that all went well."""
        return self.status == 0 and not self.interrupted

    def last(self, begin: str = "") -> str:
        """The last line with this beginning, without it; empty when there is none."""
        found = (line for line in reversed(self.lines) if line.startswith(begin) and line.strip())
        return clean(next(found, "").removeprefix(begin).strip())[:300]


def run(
    argv: Sequence[str],
    log: str,
    console: Console,
    *,
    environment: dict[str, str],
    busy: Callable[[str], bool] = lambda line: False,  # noqa: ARG005
    quiet: bool = False,
) -> Ended:
    """Blocks until it has ended. ``busy``: from a line so judged on it is better let finish.

    A set ``console.cancelled`` sends SIGINT to its process group. Raises CockpitError when it
    cannot be started.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(log, flags, 0o600), "wb") as out:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise CockpitError(f"{clean(argv[0])} cannot be run: {error.strerror}.") from error
    return _Watched(child, log, console, busy, quiet).ended()


class _Watched:
    def __init__(
        self,
        child: subprocess.Popen[bytes],
        log: str,
        console: Console,
        busy: Callable[[str], bool],
        quiet: bool,
    ) -> None:
        self._child, self._log, self._console = child, log, console
        self._judge, self._quiet = busy, quiet
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._offset = 0
        self._rest = b""
        self._busy = self._interrupted = False
        self._cancelled_at: float | None = None

    def ended(self) -> Ended:
        while True:
            running = self._child.poll() is None
            self._read()
            if not running:
                break
            if self._console.cancelled.is_set():
                self._cancel()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(LOOK_S)
        self._line(self._rest)
        return Ended(self._child.returncode, tuple(self._lines), self._interrupted)

    def _read(self) -> None:
        try:
            with open(self._log, "rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:  # somebody removed it: the child is watched all the same
            return
        self._offset += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        for line in whole:
            self._line(line)

    def _line(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").rpartition("\r")[2].rstrip()
        if not line:
            return
        self._lines.append(line)
        self._busy = self._busy or self._judge(line)
        if not self._quiet:
            self._console.say(line)

    def _cancel(self) -> None:
        """A first look at a cancelled console, and each one after it."""
        now = time.monotonic()
        if self._cancelled_at is None:
            self._cancelled_at = now
            if self._busy:
                self._console.say("it replaces files right now: it is let finish, to be taken back")
        waited = now - self._cancelled_at
        if self._busy and not self._interrupted and waited < FINISH_S:
            return
        if not self._interrupted:
            self._interrupted = True
            self._cancelled_at = now
            self._signal(signal.SIGINT)
        elif waited > 2 * STOP_S:
            self._signal(signal.SIGKILL)
        elif waited > STOP_S:
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        # its own group, by its own pid, which is not collected yet: nobody else can be meant
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)
