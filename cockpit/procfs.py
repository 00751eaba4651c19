"""The only door to /proc: small readers and parsers. What the values mean is decided elsewhere.

A base module: every room that looks at processes may import it, and it imports nothing of ours.
Nothing here raises for a process that vanishes or is not ours: the answer is then a :class:`Gap`.
os.open/read/close and an own parse read 500 ``stat`` files in 2.0 ms; psutil needs 11 to 56 ms.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import resource
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

HZ = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
COMMAND_LIMIT_BYTES = 4096
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel (include/linux/proc_ns.h): the host's own namespace."""
SIGHUP_BIT = 1
PF_KTHREAD = 0x00200000
"""include/linux/sched.h: the task is a kernel thread."""


class Gap(NamedTuple):
    """Why something could not be read."""

    reason: str


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that somebody here needs (proc_pid_stat(5))."""

    pid: int
    name: str
    state: str
    ppid: int
    group: int
    session: int
    tty: int = 0
    flags: int = 0
    cpu_ticks: int = 0
    """User and system time of the process and its ended threads, in 1/HZ s."""
    threads: int = 1
    start_ticks: int = 0
    rss_bytes: int = 0

    @property
    def dead(self) -> bool:
        """Zombie. A leader in state Z with living threads is a living process."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def kernel_thread(self) -> bool:
        """Has no user space: signals do nothing to it."""
        return bool(self.flags & PF_KTHREAD)


class Status(NamedTuple):
    """The fields of /proc/PID/status that a process keeps."""

    uid: int
    """Effective."""
    pid_path: tuple[int, ...]
    """NSpid: the pid in our namespace first, in the process's own last."""
    hangup_ignored: bool | None
    """SIGHUP is ignored, as nohup does it; None: the kernel does not say."""


def _gap(error: OSError) -> Gap:
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return Gap("gone")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Gap("no_permission")
    return Gap("not_supported")


def read(path: str, limit: int = 4096) -> bytes | Gap:
    """The first bytes of a file by one read: enough for every short file of /proc."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        return _gap(error)
    try:
        return os.read(descriptor, limit)
    except OSError as error:
        return _gap(error)
    finally:
        os.close(descriptor)


def read_long(path: str, limit: int) -> bytes | Gap:
    """Like :func:`read` for files that the kernel hands out in pieces (environ, maps)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        return _gap(error)
    pieces: list[bytes] = []
    try:
        while limit > 0 and (piece := os.read(descriptor, min(limit, 65536))):
            pieces.append(piece)
            limit -= len(piece)
    except OSError as error:
        return _gap(error)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def read_link(path: str) -> str | Gap:
    """Where a link of /proc points, as text that can be encoded."""
    try:
        return text(os.readlink(os.fsencode(path)))
    except OSError as error:
        return _gap(error)


def text(raw: bytes) -> str:
    """Foreign bytes as text without lone surrogates: what is not UTF-8 becomes ``\\xff``."""
    return raw.decode("utf-8", "backslashreplace")


def parse_stat(raw: bytes) -> Stat | None:
    """None for anything that is not a stat line. The name may hold blanks and brackets itself."""
    begin, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 2 :].split(None, 22)
    if begin < 0 or len(fields) < 22:
        return None
    return Stat(
        int(raw[:begin]),
        text(raw[begin + 1 : end]),
        chr(fields[0][0]),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[4]),
        int(fields[6]),
        int(fields[11]) + int(fields[12]),
        int(fields[17]),
        int(fields[19]),
        int(fields[21]) * PAGE_BYTES,
    )


def stat(root: str, pid: int) -> Stat | Gap:
    """The one file that is read per process and tick."""
    raw = read(f"{root}/{pid}/stat", 1024)
    if isinstance(raw, Gap):
        return raw
    return parse_stat(raw) or Gap("gone")


class StatFile:
    """/proc/PID/stat of one process, for reading in every tick.

    A kept descriptor halves the cost (500 reads: 2.7 ms for 4.9), and answers ESRCH when the
    process is gone instead of showing a later one that has its pid.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, root: str, pid: int) -> None:
        self._path = f"{root}/{pid}/stat"
        self._descriptor = -1

    def keep(self) -> None:
        """From now on the descriptor stays open, until :meth:`close`."""
        if self._descriptor < 0:
            with contextlib.suppress(OSError):  # gone, or too many files: read by the path
                self._descriptor = os.open(self._path, os.O_RDONLY)

    def read(self) -> bytes | Gap:
        """The line as it is."""
        if self._descriptor < 0:
            return read(self._path, 1024)
        try:
            return os.pread(self._descriptor, 1024, 0)
        except OSError as error:
            return _gap(error)

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def descriptors_to_keep() -> int:
    """Half of what this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(4096, soft // 2)) if soft != resource.RLIM_INFINITY else 4096


_UID = re.compile(rb"^Uid:\t\d+\t(\d+)", re.M)
_NSPID = re.compile(rb"^NSpid:\t([\d\t ]+)", re.M)
_SIGIGN = re.compile(rb"^SigIgn:\t([0-9a-f]+)", re.M)


def status(root: str, pid: int) -> Status | Gap:
    """uid, namespace pids and whether SIGHUP is ignored."""
    raw = read_long(f"{root}/{pid}/status", 1 << 18)  # a user may be in thousands of groups
    if isinstance(raw, Gap):
        return raw
    # Three searches instead of taking 60 lines apart: 60 us a process at the first of 500.
    uid, pid_path, ignored = _UID.search(raw), _NSPID.search(raw), _SIGIGN.search(raw)
    if uid is None:
        return Gap("not_supported")
    return Status(
        int(uid[1]),
        tuple(map(int, pid_path[1].split())) if pid_path else (),
        bool(int(ignored[1], 16) & SIGHUP_BIT) if ignored else None,
    )


def command(root: str, pid: int) -> tuple[str, ...] | Gap:
    """argv; empty for kernel threads and zombies. Cut at 4096 bytes, then ending in ``…``."""
    raw = read(f"{root}/{pid}/cmdline", COMMAND_LIMIT_BYTES)
    if isinstance(raw, Gap):
        return raw
    words = raw.rstrip(b"\0").split(b"\0") if raw.rstrip(b"\0") else []
    argv = [text(word) for word in words]
    if len(raw) == COMMAND_LIMIT_BYTES and argv:
        argv[-1] += "…"
    return tuple(argv)


def environment(root: str, pid: int, limit: int = 262144) -> dict[str, str] | Gap:
    """The environment that the process was started with; its own later changes are not in it."""
    raw = read_long(f"{root}/{pid}/environ", limit)
    if isinstance(raw, Gap):
        return raw
    pairs = (text(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs if name}


def pids(root: str) -> list[int]:
    """All process ids that this /proc shows."""
    try:
        return [int(name) for name in os.listdir(root) if name.isdigit()]
    except OSError:
        return []


def all_stats(root: str) -> Iterator[tuple[int, Stat]]:
    """Every visible process: about 4 µs each, so not for every tick."""
    for pid in pids(root):
        found = stat(root, pid)
        if isinstance(found, Stat):
            yield pid, found


def open_files(root: str, pid: int, prefix: str, limit: int = 4096) -> tuple[str, ...] | Gap:
    """Which of a process's open files begin with the prefix; each name once, sorted."""
    folder = f"{root}/{pid}/fd"
    try:
        names = os.listdir(folder)[:limit]
    except OSError as error:
        return _gap(error)
    found: set[str] = set()
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed in the meantime
        if target.startswith(prefix):
            found.add(target.removesuffix(" (deleted)"))
    return tuple(sorted(found))


@lru_cache(maxsize=1024)
def account_name(uid: int) -> str | None:
    """None: no account of that number. Cached: a directory service may answer slowly."""
    try:
        return text(os.fsencode(pwd.getpwuid(uid).pw_name))
    except KeyError:
        return None


def user_name(uid: int) -> str:
    """The account's name, or the number as ps prints it."""
    return account_name(uid) or str(uid)


@lru_cache(maxsize=256)
def terminal(tty: int) -> str | None:
    """Name of the device number in field 7 of stat, such as ``pts/3``."""
    if tty == 0:
        return None
    major, minor = (tty >> 8) & 0xFFF, (tty & 0xFF) | ((tty >> 12) & 0xFFF00)
    if 136 <= major <= 143:
        return f"pts/{(major - 136) * 256 + minor}"
    if major == 4:
        return f"tty{minor}" if minor < 64 else f"ttyS{minor - 64}"
    return f"{major}:{minor}"


def boot_time(root: str) -> float | None:
    """Seconds since the epoch at which the machine started (btime of /proc/stat)."""
    raw = read_long(f"{root}/stat", 1 << 20)
    if isinstance(raw, Gap):
        return None
    begin = raw.find(b"btime ")
    return float(raw[begin + 6 :].split(None, 1)[0]) if begin >= 0 else None


def age_s(start_ticks: int) -> float:
    """How long ago a process started."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / HZ)


def in_initial_namespace(root: str) -> bool:
    """False inside a container with pids of its own: the host's processes are then hidden."""
    return read_link(f"{root}/self/ns/pid") == INITIAL_PID_NAMESPACE


def hides_others(root: str) -> bool:
    """/proc is mounted with hidepid, and we are a user to whom it applies."""
    mounts = read_long(f"{root}/self/mounts", 1 << 20)
    if os.geteuid() == 0 or isinstance(mounts, Gap):
        return False
    options = [
        line.split()[3] for line in mounts.splitlines() if line.split()[1:3] == [b"/proc", b"proc"]
    ]
    return any(b"hidepid=" in option and b"hidepid=0" not in option for option in options[-1:])
