"""Where the ranks of a kept run write their flight recorders' dumps, and the bytes of one.

torch writes them when NCCL's time-out comes, over those of before: PREFIX and the global rank, for
us ``flight/rank_N`` of the run's folder. A run may have set a prefix of its own.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import datetime
from typing import NamedTuple

from cockpit.attach.run_record import RunRecord

MOST_BYTES = 64 << 20
"""2000 collectives with their frames take some 3 MB."""
_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


class DumpFile(NamedTuple):
    """One rank's file."""

    rank: int
    path: str
    written_at: float
    """Seconds since 1970, by the file system."""
    size_bytes: int


def dump_files(record: RunRecord) -> tuple[DumpFile, ...]:
    """In the order of the ranks. Below a prefix of the run's own, what is older than it is not its.

    What lies there is only listed: a pipe, a link or a folder is found when it is read.
    """
    prefix = _prefix(record)
    folder, start = os.path.split(prefix)
    form = re.compile(re.escape(start) + r"(\d{1,6})", re.ASCII)
    since = 0.0 if folder.startswith(record.directory) else _begin(record)
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    matches = (match for match in map(form.fullmatch, names) if match is not None)
    found = (_listed(int(one[1]), os.path.join(folder, one[0])) for one in matches)
    return tuple(sorted(one for one in found if one is not None and one.written_at >= since))


def _listed(rank: int, path: str) -> DumpFile | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return DumpFile(rank, path, found.st_mtime, found.st_size)


def read_dump(path: str) -> bytes:
    """Raises ValueError with the reason, as the end of a sentence."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ValueError(_why(error)) from error
    try:
        _check(os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise ValueError(_why(error)) from error
    finally:
        os.close(descriptor)


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no plain file")
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError("it belongs to another user")
    if found.st_size > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _prefix(record: RunRecord) -> str:
    """As the processes of the run see it. Old torch knows only the second name; where a run has
    set just that, the cockpit sets neither."""
    meta = record.meta
    for name in _NAMES:
        value = meta.set_for_run.get(name) or meta.environment.get(name)
        if value:
            return os.path.join(meta.cwd or "/", value)
    return os.path.join(record.directory, "flight", "rank_")


def _begin(record: RunRecord) -> float:
    """Less two seconds: clocks of file systems are coarse. 0: not known."""
    try:
        return datetime.fromisoformat(record.meta.started_at.replace("Z", "+00:00")).timestamp() - 2
    except ValueError:
        return 0.0
