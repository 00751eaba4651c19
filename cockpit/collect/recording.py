"""Writes recordings (``--record FILE``), and names what reads and replays them.

A recording holds argv, user and host names of everybody on the machine: mode 0600, and ``scrub``
before it is given away.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import stat
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, cast

from cockpit.collect.recording_lines import (
    Attachment,
    Full,
    Header,
    Line,
    Row,
    difference,
    encode_line,
    values_of,
)
from cockpit.collect.recording_reader import Recording, load
from cockpit.collect.replay import RecordedMachine
from cockpit.errors import UsageError
from cockpit.model.snapshot import Snapshot

__all__ = ["RecordedMachine", "Recording", "RecordingWriter", "load"]

log = logging.getLogger(__name__)

FULL_EVERY_S = 60.0


class RecordingWriter:
    """Appends snapshots to a new file; ``.gz`` at its end packs it.

    Each line is flushed: what was written before a SIGKILL can be read. A disk that fills ends the
    recording with a line in the log, never the engine.
    """

    def __init__(
        self,
        path: str,
        *,
        version: str = "",
        full_every_s: float = FULL_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises UsageError when the file exists already or cannot be made."""
        self.path = path
        self.trouble: str | None = None
        """Why the file ends before its time."""
        self._version = version
        self._full_every_s = full_every_s
        self._clock = clock
        self._file: BinaryIO | None = _create(path)
        self._zero_s: float | None = None
        self._full_s = 0.0
        self._last: Row | None = None
        self._count = 0

    def write(self, snapshot: Snapshot, at_s: float | None = None) -> None:
        """Appends one; ``at_s`` says its time in the recording where the clock does not."""
        if self._file is None:
            return
        if self._zero_s is None:
            self._zero_s = self._clock()
            self._append(Header(version=self._version, started_at=snapshot.taken_at))
        t = self._clock() - self._zero_s if at_s is None else at_s
        self._append(self._line(values_of(snapshot), round(t, 3)))

    def attach(self, attachment: Attachment) -> None:
        """Appends something beside the snapshots."""
        self._append(attachment)

    def close(self) -> None:
        """Ends the file properly; more writes do nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, values: Row, t: float) -> Line:
        last, self._last = self._last, values
        self._count += 1
        if last is None or t - self._full_s >= self._full_every_s:
            self._full_s = t
            return Full(t=t, n=self._count, snapshot=values)
        return difference(last, values, t, self._count)

    def _append(self, line: Line) -> None:
        if self._file is None:
            return
        try:
            self._file.write(encode_line(line))
            self._file.flush()
        except OSError as error:
            self.trouble = error.strerror or str(error)
            log.error("the recording %s ends here: %s", self.path, error.strerror)
            # closing flushes once more, into the same full disk
            self._file = None


class _Packed(gzip.GzipFile):
    """Packs into a file that it closes with itself."""

    def __init__(self, raw: BinaryIO) -> None:
        # without file name and time in its head: they would survive a scrub
        super().__init__("", "wb", 6, raw, 0)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


def _create(path: str) -> BinaryIO:
    try:
        raw = os.fdopen(_open_empty(path), "wb")
    except OSError as error:
        raise UsageError(f"Cannot record to {path}: {error.strerror}.") from error
    if path.endswith(".gz"):
        return cast(BinaryIO, _Packed(raw))
    return raw


def _open_empty(path: str) -> int:
    """A descriptor of a new file, or of an empty one that was there; both mode 0600."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        pass  # an empty one may be used, and is judged through its descriptor below
    # O_NONBLOCK: a FIFO without a reader would block for ever
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    if found.st_size:
        os.close(descriptor)
        raise OSError(errno.EEXIST, "the file exists already")
    os.fchmod(descriptor, 0o600)
    return descriptor
