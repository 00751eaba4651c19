"""What ended agents leave behind: sockets at which nobody listens, logs that nobody writes.

Only in our own private directories of this mount namespace, and only what belongs to no living
process: a pid that runs and began before the file was written keeps it. A container's process may
serve its socket in a shared /tmp under a pid that is not ours: it answers, so all of it stays.

And, in /tmp, the scripts of attaches to processes that ended before they ran them
(``script_name``).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from cockpit import procfs
from cockpit.agent.agent import socket_directories
from cockpit.attach import script_name
from cockpit.attach.client import AgentError, Client, EndedError

LOG_KEPT_S = 86400.0
"""The agent's log says who did what in the run: it is worth a day after the last line."""
_SCRIPT_KEPT_S = 300.0
_TOO_YOUNG_S = 5.0
"""A socket between bind and listen refuses as a dead one does."""
_CONNECT_S = 0.2
_CLOCK_SLACK_S = 60.0
"""btime of /proc/stat moves when the clock is set."""
_SOCKET = re.compile(r"(\d+)\.(?:sock|new)")
_LOG = re.compile(r"(\d+)\.log")


def unlink_stale(uid: int | None = None, runtime_dir: str | None = None) -> list[str]:
    """Remove dead sockets, old logs and left scripts of ours; the sentences to show."""
    own = os.geteuid() if uid is None else uid
    runtime = runtime_dir if runtime_dir is not None else os.environ.get("XDG_RUNTIME_DIR")
    _unlink_scripts(own)
    return [s for folder in socket_directories(own, runtime) for s in _unlink_in(folder, own)]


def _unlink_scripts(uid: int) -> None:
    """Never through a link: the folder is opened as what it is, and unlink follows none."""
    with suppress(OSError), _directory(script_name.FOLDER) as descriptor:
        for name in os.listdir(descriptor):
            whose = script_name.addressee(name)
            if whose is not None and _is_old_file(descriptor, name, uid) and whose.has_ended():
                with suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)


def _is_old_file(descriptor: int, name: str, uid: int) -> bool:
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    old = time.time() - status.st_mtime > _SCRIPT_KEPT_S
    return stat.S_ISREG(status.st_mode) and status.st_uid == uid and old


def _unlink_in(folder: str, uid: int) -> Iterator[str]:
    with _opened(folder, uid) as descriptor:
        names = os.listdir(descriptor) if descriptor is not None else []
        for name in sorted(names, key=_logs_last):
            pid = _pid_of(name)
            if descriptor is None or pid is None or not _is_dead(descriptor, folder, name, pid):
                continue
            with suppress(OSError):
                os.unlink(name, dir_fd=descriptor)
                if not name.endswith(".log"):
                    yield f"pid {pid} has ended; its socket was removed."


@contextmanager
def _opened(folder: str, uid: int) -> Iterator[int | None]:
    """A descriptor of the directory; None where it is not ours alone."""
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_directory(folder))
        except OSError:
            yield None
            return
        status = os.fstat(descriptor)
        yield descriptor if status.st_uid == uid and not status.st_mode & 0o077 else None


@contextmanager
def _directory(folder: str) -> Iterator[int]:
    """A descriptor of it. Raises OSError, also where it is a link."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _logs_last(name: str) -> bool:
    return name.endswith(".log")


def _pid_of(name: str) -> int | None:
    found = _SOCKET.fullmatch(name) or _LOG.fullmatch(name)
    return int(found[1]) if found else None


def _is_dead(descriptor: int, folder: str, name: str, pid: int) -> bool:
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    if _may_be_its(pid, status.st_mtime):
        return False
    age_s = time.time() - status.st_mtime
    if name.endswith(".log"):
        served = any(_exists(descriptor, f"{pid}.{end}") for end in ("sock", "new"))
        return stat.S_ISREG(status.st_mode) and age_s > LOG_KEPT_S and not served
    return stat.S_ISSOCK(status.st_mode) and age_s > _TOO_YOUNG_S and _refuses(folder, name, pid)


def _may_be_its(pid: int, written_at: float) -> bool:
    """A process with that pid runs that may have written the file; True where we cannot know."""
    found = procfs.stat("/proc", pid)
    if isinstance(found, procfs.Gap):
        return found.reason != "gone"
    boot = procfs.boot_time("/proc")
    return boot is None or boot + found.start_ticks / procfs.HZ < written_at + _CLOCK_SLACK_S


def _refuses(folder: str, name: str, pid: int) -> bool:
    try:
        Client.connect(pid, f"{folder}/{name}", _CONNECT_S).close()
    except EndedError as error:
        return error.refused
    except AgentError:
        return False
    return False


def _exists(descriptor: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True
