"""Lines of the source files that a process runs, read through its own root (containers)."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict

LIMIT_BYTES = 1 << 20
KEPT_FILES = 64
LIMIT_CHARACTERS = 200


class SourceLines:
    """Keeps a few files by (pid, name) and size and time. Used by one thread. Never raises."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._files: OrderedDict[tuple[int, str], tuple[tuple[int, int], list[str]]] = OrderedDict()

    def line(self, pid: int, file: str, number: int) -> str | None:
        """Line ``number`` (from 1), without what is round it; None where there is none to read."""
        if not file or file.startswith("<"):
            return None
        lines = self._lines(pid, file)
        if lines is None or not 1 <= number <= len(lines):
            return None
        return lines[number - 1].strip()[:LIMIT_CHARACTERS]

    def _lines(self, pid: int, file: str) -> list[str] | None:
        where = "root" if file.startswith("/") else "cwd"
        path = f"{self._root}/{pid}/{where}/{file.lstrip('/')}"
        try:
            # O_NONBLOCK: the name is the process's word, and may be a FIFO without a writer
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            return self._read(descriptor, (pid, file))
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, key: tuple[int, str]) -> list[str] | None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT_BYTES:
            return None
        state = found.st_size, found.st_mtime_ns
        known = self._files.get(key)
        if known is not None and known[0] == state:
            self._files.move_to_end(key)
            return known[1]
        raw = os.read(descriptor, LIMIT_BYTES)
        lines = raw.decode("utf-8", "backslashreplace").split("\n")
        self._files[key] = state, lines
        while len(self._files) > KEPT_FILES:
            self._files.popitem(last=False)
        return lines
