"""Who a pid is right now, and a hold on it that a reused pid cannot slip under.

A pid alone names nobody: it is (pid, start time in clock ticks since boot), field 22 of
/proc/PID/stat. Reads /proc only; what may be done to a process is said in ``policy``.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from cockpit import procfs
from cockpit.errors import TargetGoneError
from cockpit.procfs import Gap, Stat

_PROC = "/proc"
_LONGEST = 1 << 18
"""Of /proc/PID/status: a user may be in thousands of groups."""
_NO_PIDFD = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EMFILE, errno.ENFILE})
"""Kernel before 5.3, a container's old seccomp filter, or no descriptors left: go on without."""


@dataclass(frozen=True, slots=True)
class Subject:
    """All that the policy and a plan ask of one process, read at one moment."""

    stat: Stat
    uid: int
    """Real uid: the one that decides who may signal it."""
    leader_pid: int
    """Differs from the pid when that is the id of a thread."""
    executable: str | None = None
    """Base name of the file that really runs; None: not readable (other user, kernel thread)."""
    command: tuple[str, ...] = ()
    ignored: int = 0
    """Mask of ignored signals (bit 0 is signal 1)."""
    caught: int = 0

    @property
    def pid(self) -> int:
        """Short for ``stat.pid``."""
        return self.stat.pid

    def ignores(self, number: int) -> bool:
        """The signal would be dropped."""
        return bool(self.ignored >> (number - 1) & 1)

    def catches(self, number: int) -> bool:
        """It has a handler for the signal."""
        return bool(self.caught >> (number - 1) & 1)


def read_stat(pid: int) -> Stat | None:
    """None: no such process, or not for us to see."""
    found = procfs.stat(_PROC, pid) if pid > 0 else None
    return found if isinstance(found, Stat) else None


def all_stats() -> dict[int, Stat]:
    """Every process of this /proc; 500 of them take about 2 ms."""
    return dict(procfs.all_stats(_PROC))


def look(pid: int) -> Subject | None:
    """Read everything about one process; None when it is gone, hidden, or replaced meanwhile."""
    stat = read_stat(pid)
    status = _read(pid, "status") if stat else ""
    if stat is None or not status:
        return None
    field = dict(line.partition(":")[::2] for line in status.splitlines())
    subject = Subject(
        stat=stat,
        uid=int(field["Uid"].split()[0]),
        leader_pid=int(field["Tgid"]),
        executable=_executable(pid),
        command=read_command(pid),
        ignored=int(field.get("SigIgn", "0"), 16),
        caught=int(field.get("SigCgt", "0"), 16),
    )
    # Several files were read: were they all of the same process?
    last = read_stat(pid)
    return subject if last is not None and last.start_ticks == stat.start_ticks else None


def exists_hidden(pid: int) -> bool:
    """There is such a process, but /proc does not show it to us (hidepid)."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def read_command(pid: int) -> tuple[str, ...]:
    """argv as it is; empty for zombies and kernel threads. Bytes that are no text are escaped."""
    found = procfs.command(_PROC, pid)
    return () if isinstance(found, Gap) else found


def read_environment(pid: int) -> dict[str, str]:
    """The environment it was started with; empty when not readable."""
    found = procfs.environment(_PROC, pid)
    return {} if isinstance(found, Gap) else found


def kernel_wait(pid: int) -> str | None:
    """``nvidia_ioctl``: where a thread of it waits uninterruptibly (state D); None: no thread does.

    Empty text when the kernel does not tell the function.
    """
    folder = f"{_PROC}/{pid}/task"
    for thread, stat in sorted(procfs.all_stats(folder)):
        if stat.state == "D":
            name = _read(thread, "wchan", folder)
            return "" if name == "0" else name
    return None


def holds_device(pid: int) -> bool | None:
    """Has a /dev/nvidia* file open; None when that cannot be told (no permission, WSL)."""
    if not os.path.exists("/dev/nvidiactl"):
        return None
    found = procfs.open_files(_PROC, pid, "/dev/nvidia")
    return None if isinstance(found, Gap) else bool(found)


class Handle:
    """A hold on one process, by pidfd where the kernel has it. Close it."""

    def __init__(self, pid: int, start_ticks: int, descriptor: int | None) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.descriptor = descriptor

    @classmethod
    def open(cls, pid: int, start_ticks: int) -> Handle:
        """Raises TargetGoneError when that process is gone or the pid is another's.

        The start time is compared after opening: from then on the descriptor cannot mean anyone
        else, and before it a reused pid shows another start time.
        """
        handle = cls(pid, start_ticks, _pidfd(pid))
        stat = read_stat(pid)
        if stat is not None and stat.start_ticks == start_ticks:
            return handle
        handle.close()
        raise TargetGoneError(
            f"pid {pid} has ended" if stat is None else f"pid {pid} is another process now"
        )

    def send(self, number: int) -> None:
        """Raises ProcessLookupError (gone, or replaced) and PermissionError."""
        if self.descriptor is not None:
            signal.pidfd_send_signal(self.descriptor, number)
            return
        stat = read_stat(self.pid)
        if stat is None or stat.start_ticks != self.start_ticks:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        os.kill(self.pid, number)

    def gone(self) -> bool:
        """Ended: not there, replaced, or a zombie that only waits for its parent."""
        if self.descriptor is not None:
            return bool(_poll([self.descriptor], 0))
        stat = read_stat(self.pid)
        return stat is None or stat.start_ticks != self.start_ticks or stat.dead

    def close(self) -> None:
        """May be called twice."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def wait_any(handles: Iterable[Handle], timeout_s: float) -> None:
    """Return when one of them has ended, at the latest after ``timeout_s``."""
    descriptors = [handle.descriptor for handle in handles if handle.descriptor is not None]
    if descriptors:
        _poll(descriptors, timeout_s)
    else:
        time.sleep(timeout_s)


def _poll(descriptors: Iterable[int], timeout_s: float) -> list[tuple[int, int]]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll.poll(timeout_s * 1000)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise TargetGoneError(f"pid {pid} has ended") from None
    except OSError as error:
        if error.errno not in _NO_PIDFD:
            raise
        return None


def _executable(pid: int) -> str | None:
    link = procfs.read_link(f"{_PROC}/{pid}/exe")
    path = "" if isinstance(link, Gap) else link
    return os.path.basename(path.removesuffix(" (deleted)")) or None


def _read(pid: int, name: str, folder: str = _PROC) -> str:
    """Empty when it cannot be read."""
    raw = procfs.read_long(f"{folder}/{pid}/{name}", _LONGEST)
    return "" if isinstance(raw, Gap) else procfs.text(raw)
