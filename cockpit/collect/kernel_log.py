"""NVIDIA's lines in the kernel log: Xid errors with the process that caused them, lost GPUs.

Reads /dev/kmsg, which only root and group adm may read on most machines, without ever blocking.
"""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
HISTORY_S = 3600.0
"""How far back the lines of the ring are of interest."""
_MOST_RECORDS = 4000
"""A tick: a ring of 16,000 lines is caught up with in four, and a flood does not hold us."""
_RECORD_BYTES = 8192

_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)(?: [^)]*)?\): (?P<code>\d+)"
    r"(?:, pid=(?P<pid>'?<?[^,>']+>?'?))?(?:, name=(?P<name>[^,]*))?(?:, (?P<rest>.*))?"
)
_FALLEN = re.compile(
    r"NVRM: .*GPU (?:at PCI:)?(?P<bus>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}).*fallen off"
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line about one GPU."""

    at_s: float
    """Wall clock, seconds since 1970."""
    bus: tuple[int, int, int]
    """Domain, bus, device."""
    xid: int | None
    """None: the GPU has fallen off the bus, told without a number."""
    pid: int | None = None
    name: str | None = None
    text: str = ""


def parse_bus(text: str) -> tuple[int, int, int] | None:
    """``0000:1b:00``, ``00000000:1B:00.0``: the same place in all its spellings."""
    parts = text.split(".")[0].split(":")
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        return None
    if len(numbers) == 2:
        numbers.insert(0, 0)
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def parse_line(message: str, at_s: float) -> KernelLine | None:
    """None: the line is about something else."""
    if "NVRM" not in message:
        return None
    if (found := _XID.search(message)) is not None:
        bus = parse_bus(found["bus"])
        pid = found["pid"]
        name = (found["name"] or "").strip("'")
        return bus and KernelLine(
            at_s,
            bus,
            int(found["code"]),
            int(pid) if pid and pid.isdigit() else None,
            None if not name or name.startswith("<") else name,
            (found["rest"] or "").strip(),
        )
    if (found := _FALLEN.search(message)) is not None:
        bus = parse_bus(found["bus"])
        return bus and KernelLine(at_s, bus, None, text="fallen off the bus")
    return None


class KernelLog:
    """Hands out the lines that are new. Never blocks, never raises."""

    def __init__(self, path: Path = KMSG) -> None:
        self.gap: str | None = None
        """Why nothing can be read: ``no_permission`` or ``not_supported``."""
        self._fd = -1
        self._oldest_s = time.time() - HISTORY_S
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            self.gap = "no_permission"
        except OSError:  # a container without it
            self.gap = "not_supported"

    def close(self) -> None:
        """Ends the reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self) -> list[KernelLine]:
        """New lines about GPUs; the first calls bring those of the last hour."""
        found: list[KernelLine] = []
        for _ in range(_MOST_RECORDS if self._fd >= 0 else 0):
            record = self._record()
            if record is None:
                break
            if b"NVRM" in record and (line := _parse_record(record)) is not None:
                found.append(line)
        return [line for line in found if line.at_s >= self._oldest_s]

    def _record(self) -> bytes | None:
        """One record; empty for one that was overwritten before we came; None: no more now."""
        try:
            return os.read(self._fd, _RECORD_BYTES) or None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EPIPE:
                return b""
            self.gap = "not_supported"
            self.close()
            return None


def _parse_record(record: bytes) -> KernelLine | None:
    """``priority,sequence,microseconds,flags;message`` and lines with a blank for its details."""
    head, _, body = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    try:
        since_boot_s = int(fields[2]) / 1e6
    except (IndexError, ValueError):
        return None
    at_s = time.time() - (time.monotonic() - since_boot_s)
    return parse_line(body.split("\n", 1)[0], at_s)
