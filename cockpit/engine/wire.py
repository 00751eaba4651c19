"""Whole lines over file descriptors: the transport under the protocol, for both of its ends."""

from __future__ import annotations

import os
import threading

MAX_LINE_BYTES = 64 << 20
"""A longer "line" is not ours: 500 processes are 0.3 MB."""


class LineReader:
    """Cuts what a descriptor delivers into lines."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._rest = bytearray()
        self.ended = False

    def read(self) -> list[bytes]:
        """What one read() brings, as whole lines without line ends; sets ``ended`` at the end.

        Blocks when nothing is there and the descriptor is blocking; a non-blocking one gives [].
        """
        try:
            data = os.read(self.fd, 1 << 18)
        except BlockingIOError:
            return []
        except OSError:  # EIO of a closed pseudo-terminal, EBADF after close: the same to us
            data = b""
        if not data or len(self._rest) > MAX_LINE_BYTES:
            self.ended = True
            return []
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [bytes(line) for line in lines if line]


class LineWriter:
    """Writes whole lines; several threads may share one."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.Lock()

    def write(self, line: bytes) -> bool:
        """Blocks until all of it is written; False when the other end is gone."""
        with self._lock:
            view = memoryview(line)
            try:
                while view:
                    view = view[os.write(self.fd, view) :]
            except OSError:  # EPIPE, EBADF: nobody reads any more
                return False
        return True
