"""What a job may use of the machine: /dev/shm, its cgroup's memory and CPU time, locked memory."""

from __future__ import annotations

import os
import re
import resource

from cockpit import procfs
from cockpit.collect.host import cgroup_limit
from cockpit.model.checkup_facts import LimitFacts
from cockpit.procfs import Gap

_LOCKED = re.compile(r"^Max locked memory\s+(\d+)", re.M)
_THROTTLED = re.compile(r"^nr_throttled (\d+)", re.M)
_PERIODS = re.compile(r"^nr_periods (\d+)", re.M)


def read_limits(
    pid: int | None, root: str = "/", proc: str = "/proc", mount: str = "/sys/fs/cgroup"
) -> LimitFacts:
    """Of a process, or of ourselves. statvfs and cgroup files: may block on a sick file system."""
    who = str(pid) if pid is not None else "self"
    total, free = _shared_memory(os.path.join(root, "dev/shm"))
    limit, used = _memory(who, proc, mount)
    quota, throttled = _cpu(who, proc, mount)
    return LimitFacts(
        shm_total_bytes=total,
        shm_free_bytes=free,
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        cpu_quota=quota,
        throttled_share=throttled,
        cpus=_cpus(pid),
        locked_memory_bytes=_locked(pid, proc),
    )


def _shared_memory(folder: str) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _memory(who: str, proc: str, mount: str) -> tuple[int | None, int | None]:
    meminfo = procfs.read(f"{proc}/meminfo")
    total = None if isinstance(meminfo, Gap) else re.search(rb"MemTotal:\s+(\d+)", meminfo)
    found = cgroup_limit(proc, mount, who)
    usage = found.usage(int(total[1]) * 1024) if found and total else None
    return usage or (None, None)


def _cpu(who: str, proc: str, mount: str) -> tuple[float | None, float | None]:
    """The smallest quota from the cgroup upwards, v2 and v1, and how often it bit."""
    raw = procfs.read_long(f"{proc}/{who}/cgroup", 16384)
    best: tuple[float, float | None] | None = None
    for base, path in () if isinstance(raw, Gap) else _cpu_groups(procfs.text(raw), mount):
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            folder = "/".join([base, *parts[:depth]]).rstrip("/")
            quota = _quota(folder)
            if quota is not None and (best is None or quota < best[0]):
                best = (quota, _throttled(folder))
    return best or (None, None)


def _cpu_groups(cgroup: str, mount: str) -> list[tuple[str, str]]:
    groups = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    v1 = [(f"{mount}/cpu", path) for _, kinds, path in groups if "cpu" in kinds.split(",")]
    return v1 or [(mount, path) for _, kinds, path in groups if not kinds]


def _quota(folder: str) -> float | None:
    """cpu.max is "max 100000" or "200000 100000" (cgroup-v2.rst); v1 has two files, -1: none."""
    words = _text(f"{folder}/cpu.max").split()
    if not words:
        words = [_text(f"{folder}/cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words) or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


def _throttled(folder: str) -> float | None:
    text = _text(f"{folder}/cpu.stat")
    bitten, periods = _THROTTLED.search(text), _PERIODS.search(text)
    if not bitten or not periods or int(periods[1]) == 0:
        return None
    return int(bitten[1]) / int(periods[1])


def _cpus(pid: int | None) -> int | None:
    try:
        return len(os.sched_getaffinity(pid or 0))
    except OSError:
        return None


def _locked(pid: int | None, proc: str) -> int | None:
    if pid is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        return None if soft == resource.RLIM_INFINITY else soft
    found = _LOCKED.search(_text(f"{proc}/{pid}/limits"))
    return int(found[1]) if found else None


def _text(path: str) -> str:
    raw = procfs.read(path)
    return "" if isinstance(raw, Gap) else procfs.text(raw)
