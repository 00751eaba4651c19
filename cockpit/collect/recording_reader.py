"""Reads recordings: an index of where each snapshot stands, and any of them on request.

Memory stays bounded: times and offsets are kept, lines are read again when they are wanted.
"""

from __future__ import annotations

import gzip
import logging
import os
import tempfile
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import IO

import msgspec

from cockpit.collect.recording_lines import (
    RECORDING_SCHEMA,
    Attachment,
    Delta,
    Full,
    Header,
    Line,
    Row,
    apply,
    decode_line,
    snapshot_of,
)
from cockpit.errors import UsageError
from cockpit.model.snapshot import Snapshot

log = logging.getLogger(__name__)

LONGEST_LINE_BYTES = 64 << 20
MAX_ATTACHMENTS = 64
_IN_MEMORY_BYTES = 8 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class Recording:
    """An indexed recording. Not for two threads: it has one place in the file."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        """Raises UsageError for a file that is no recording or holds no snapshot."""
        self.path = path
        self._file = file
        self.skipped_lines = 0
        """Damaged, or deltas that build on a damaged one."""
        self.attachments: tuple[Attachment, ...] = ()
        """What a bundle has beside its snapshots; data from outside."""
        self.header = self._read_header()
        self._times = array("d")
        self._offsets = array("q")
        self._starts = array("q")
        """For each snapshot, the number of the full one that it builds on."""
        self._index()
        if not self._times:
            raise UsageError(f"{path} holds no snapshot.")
        self._place: tuple[int, Row] | None = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds since the first snapshot, rising."""
        return tuple(self._times)

    @property
    def duration_s(self) -> float:
        """The time of the last snapshot."""
        return self._times[-1]

    def number_at(self, position_s: float) -> int:
        """The number of the newest snapshot that is not later."""
        return max(0, bisect_right(self._times, position_s) - 1)

    def snapshot(self, number: int) -> Snapshot:
        """Any of them; the next one is the cheapest.

        One whose line is JSON but no snapshot answers with the full one that it builds on.
        """
        try:
            return snapshot_of(self._values(number))
        except (msgspec.ValidationError, KeyError, TypeError):
            self._place = None
            return snapshot_of(self._full(self._starts[number]))

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _values(self, number: int) -> Row:
        at, values = self._nearest(number)
        while at < number:
            at += 1
            line = self._line(at)
            assert isinstance(line, Delta)
            values = apply(values, line)
        self._place = at, values
        return values

    def _nearest(self, number: int) -> tuple[int, Row]:
        start = self._starts[number]
        if self._place is not None and start <= self._place[0] <= number:
            return self._place
        return start, self._full(start)

    def _full(self, number: int) -> Row:
        line = self._line(number)
        assert isinstance(line, Full)
        return line.snapshot

    def _line(self, number: int) -> Line:
        self._file.seek(self._offsets[number])
        return decode_line(self._file.readline(LONGEST_LINE_BYTES))

    # -- index

    def _read_header(self) -> Header:
        _, line = next(self._lines(), (0, None))
        if not isinstance(line, Header):
            raise UsageError(f"{self.path} is not a recording of the cockpit.")
        if line.schema > RECORDING_SCHEMA:
            raise UsageError(f"{self.path} was recorded by a newer cockpit: update this one.")
        return line

    def _index(self) -> None:
        expected, start = -1, -1
        for offset, line in self._lines():
            if isinstance(line, Full) and _is_snapshot(line):
                start = len(self._times)
            elif isinstance(line, Attachment):
                self.attachments = (*self.attachments, line)[:MAX_ATTACHMENTS]
                continue
            elif not isinstance(line, Delta) or line.n != expected:
                self.skipped_lines += 1
                continue
            expected = line.n + 1
            # a clock that went backwards would break the search for a position
            self._times.append(max(line.t, self._times[-1] if self._times else 0.0))
            self._offsets.append(offset)
            self._starts.append(start)

    def _lines(self) -> Iterator[tuple[int, Line | None]]:
        """Each line with its place; None for one that cannot be read."""
        while True:
            offset = self._file.tell()
            text = self._file.readline(LONGEST_LINE_BYTES)
            if not text:
                return
            try:
                # without its end it is the torn last line of a killed recording
                yield offset, decode_line(text) if text.endswith(b"\n") else None
            except msgspec.DecodeError:
                yield offset, None


def load(path: str) -> Recording:
    """Raises UsageError, with the reason, for a file that cannot be read as a recording."""
    try:
        return Recording(path, _open(path))
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error


def _open(path: str) -> IO[bytes]:
    # asked before opening: to open a FIFO that nobody writes would block
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError("it is not a regular file")
    file = open(path, "rb")  # noqa: SIM115 - the Recording keeps it
    packed = file.read(2) == _GZIP_MAGIC
    file.seek(0)
    if not packed:
        return file
    with file:
        return _unpacked(file)


def _unpacked(packed: IO[bytes]) -> IO[bytes]:
    """Random access needs the plain lines: in memory while few, in a nameless file when many."""
    plain = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - kept, too
    with gzip.GzipFile(fileobj=packed) as unpacking:
        _copy_what_can_be_read(unpacking, plain)
    plain.seek(0)
    return plain


def _copy_what_can_be_read(unpacking: gzip.GzipFile, plain: IO[bytes]) -> None:
    """A recording that was killed has no end: all before it counts."""
    while True:
        try:
            # read1 hands out what is unpacked before it meets the missing end, read would not
            part = unpacking.read1(1 << 16)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            log.info("the recording ends early: %s", error)
            return
        if not part:
            return
        plain.write(part)


def _is_snapshot(line: Full) -> bool:
    try:
        snapshot_of(line.snapshot)
    except msgspec.ValidationError:
        return False
    return True
