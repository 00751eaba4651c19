"""What a run printed, as raw bytes on disk: the last 10,000 lines, and never more than 16 MiB.

    output.1   older lines; replaced when ``output`` is full
    output     what came since; appended as it comes

Reading puts both together, so that a run whose keeper was killed reads as one that ended.
"""

from __future__ import annotations

import os
import re

from cockpit.model.text import clean

MAX_LINES = 10_000
MAX_BYTES = 8 << 20
"""Of each of the two files."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|.)"
)


class OutputWriter:
    """Appends; belongs to one process. Raises OSError where the disk does not take it."""

    def __init__(self, directory: str, max_bytes: int = MAX_BYTES) -> None:
        self._path = os.path.join(directory, "output")
        self._max_bytes = max_bytes
        self._file = os.open(self._path, _NEW, 0o600)
        self._lines = self._bytes = 0

    def write(self, raw: bytes) -> None:
        """``raw`` may end in the middle of a line or of a character."""
        rest = memoryview(raw)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._lines += raw.count(b"\n")
        self._bytes += len(raw)
        if self._lines >= MAX_LINES or self._bytes >= self._max_bytes:
            self._turn_over()

    def close(self) -> None:
        """Leaves one file with the last lines."""
        os.close(self._file)
        old = self._path + ".1"
        if os.path.exists(old) or self._lines > MAX_LINES:
            kept = _last(_read(old) + _read(self._path), self._max_bytes)
            _replace(self._path, kept)
            if os.path.exists(old):
                os.unlink(old)

    def _turn_over(self) -> None:
        kept = _last(_read(self._path + ".1") + _read(self._path), self._max_bytes)
        _replace(self._path + ".1", kept)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._lines = self._bytes = 0


def read_raw(directory: str) -> bytes:
    """The last 10,000 lines as the program wrote them: not for a terminal."""
    path = os.path.join(directory, "output")
    return _last_lines(_read(path + ".1") + _read(path))


def read_lines(directory: str, limit: int = MAX_LINES) -> list[str]:
    """Harmless lines: colours and cursor movements removed, of a progress bar the last state."""
    text = _drawn(read_raw(directory)).decode("utf-8", errors="replace").replace("\r", "")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [clean(_ESCAPE.sub("", line).replace("\t", "    ")) for line in lines[-limit:]]


def _last(raw: bytes, max_bytes: int) -> bytes:
    """Progress bars are folded only where the lines would not fit otherwise."""
    kept = _last_lines(raw)
    if len(kept) > max_bytes:
        kept = _drawn(kept)
    return kept[-max_bytes:]


def _drawn(raw: bytes) -> bytes:
    """Without what a progress bar drew over: all of a line up to its last carriage return.

    By splitting, not by a pattern: one that looks for a ``\\r`` again from each byte of a line
    takes minutes for a line of megabytes, and the program that printed it would wait for that.
    """
    if b"\r" not in raw:
        return raw
    return b"\n".join(_drawn_line(line) if b"\r" in line else line for line in raw.split(b"\n"))


def _drawn_line(line: bytes) -> bytes:
    shown = line.rstrip(b"\r")
    return shown.rpartition(b"\r")[2] + line[len(shown) :]


def _last_lines(raw: bytes) -> bytes:
    surplus = raw.count(b"\n") + (not raw.endswith(b"\n")) - MAX_LINES
    if surplus <= 0:
        return raw
    at = 0
    for _ in range(surplus):
        at = raw.index(b"\n", at) + 1
    return raw[at:]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _replace(path: str, raw: bytes) -> None:
    partial = path + ".new"
    with os.fdopen(os.open(partial, _NEW, 0o600), "wb") as file:
        file.write(raw)
    os.replace(partial, path)
