"""The machine round the GPUs: CPU, memory, disks, shared memory, kind of container.

Plain files of /proc and the cgroup, by one read each; rates are made between two readings.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from cockpit import procfs
from cockpit.model.host import Host
from cockpit.procfs import Gap

SECTOR_BYTES = 512
"""Unit of /proc/diskstats, whatever the disk's own sectors are (Documentation/iostats)."""

_WHOLE_DISK = re.compile(
    rb"(?:[shv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|dasd[a-z]+|pmem\d+|rbd\d+|nbd\d+)$"
)
"""Disks, not their partitions, and no loop, dm or md device, which would count twice."""

_LIMIT_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_INACTIVE = re.compile(rb"^(?:total_)?inactive_file (\d+)", re.M)


class Counters(NamedTuple):
    """What only grows."""

    at: float
    busy: int
    iowait: int
    all_cpu: int
    read_sectors: int
    written_sectors: int


class HostSource:
    """Reads the host once a tick. Used by one thread."""

    def __init__(self, root: str = "/proc", shm: str = "/dev/shm") -> None:
        self._root = root
        self._shm = shm
        self._container = container_kind()
        self._limit = cgroup_limit(root) if self._container else None
        self._name = os.uname().nodename
        self._before: Counters | None = None

    def read(self) -> Host:
        """CPU and disk rates are None, with a gap, on the first call."""
        gaps: dict[str, str] = {}
        before, now = self._before, self._counters(gaps)
        self._before = now
        cpu, iowait, read, written = rates(before, now)
        for field in ("cpu_pct", "iowait_pct", "disk_read_bytes_per_s", "disk_write_bytes_per_s"):
            if cpu is None:
                gaps.setdefault(field, "not_read_yet")
        total, used, swap = self._memory(gaps)
        shm = self._shared_memory(gaps)
        return Host(
            name=self._name,
            cpu_count=os.cpu_count(),
            cpu_pct=cpu,
            load_1m=self._load(),
            memory_total_bytes=total,
            memory_used_bytes=used,
            swap_used_bytes=swap,
            iowait_pct=iowait,
            disk_read_bytes_per_s=read,
            disk_write_bytes_per_s=written,
            shm_total_bytes=shm[0],
            shm_used_bytes=shm[1],
            container=self._container,
            gaps=gaps,
        )

    def _counters(self, gaps: dict[str, str]) -> Counters | None:
        # The first line is enough; the kernel writes one for each CPU and interrupt behind it.
        cpu = procfs.read(f"{self._root}/stat", 512)
        disks = procfs.read_long(f"{self._root}/diskstats", 1 << 18)
        if isinstance(cpu, Gap):
            gaps.update(dict.fromkeys(("cpu_pct", "iowait_pct"), cpu.reason))
            return None
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, cpu.split(None, 9)[1:9])
        busy = user + nice + system + irq + softirq + steal
        sectors = disk_sectors(b"" if isinstance(disks, Gap) else disks)
        return Counters(time.monotonic(), busy, iowait, busy + idle + iowait, *sectors)

    def _load(self) -> float | None:
        raw = procfs.read(f"{self._root}/loadavg", 64)
        return None if isinstance(raw, Gap) else float(raw.split(None, 1)[0])

    def _memory(self, gaps: dict[str, str]) -> tuple[int | None, int | None, int | None]:
        """(total, used, swap used); of the container when it has less than the host."""
        raw = procfs.read(f"{self._root}/meminfo")
        if isinstance(raw, Gap):
            gaps.update(dict.fromkeys(("memory_total_bytes", "memory_used_bytes"), raw.reason))
            return None, None, None
        total, used, swap = memory_of(raw)
        limited = self._limit.usage(total) if self._limit and total is not None else None
        if limited:
            total, used = limited
            gaps["memory_total_bytes"] = "cgroup_limit"
        return total, used, swap

    def _shared_memory(self, gaps: dict[str, str]) -> tuple[int | None, int | None]:
        try:
            found = os.statvfs(self._shm)
        except OSError:
            gaps.update(dict.fromkeys(("shm_total_bytes", "shm_used_bytes"), "not_supported"))
            return None, None
        total = found.f_blocks * found.f_frsize
        return total, total - found.f_bfree * found.f_frsize


def rates(
    before: Counters | None, now: Counters | None
) -> tuple[float | None, float | None, float | None, float | None]:
    """(CPU %, iowait %, bytes read per second, written) between two readings."""
    if before is None or now is None or now.all_cpu <= before.all_cpu or now.at <= before.at:
        return None, None, None, None
    ticks, seconds = now.all_cpu - before.all_cpu, now.at - before.at
    return (
        round(_share(now.busy - before.busy, ticks), 1),
        round(_share(now.iowait - before.iowait, ticks), 1),
        round(max(0, now.read_sectors - before.read_sectors) * SECTOR_BYTES / seconds),
        round(max(0, now.written_sectors - before.written_sectors) * SECTOR_BYTES / seconds),
    )


def _share(part: int, whole: int) -> float:
    # iowait may go backwards (proc_stat(5)).
    return min(100.0, max(0.0, part / whole * 100))


def disk_sectors(diskstats: bytes) -> tuple[int, int]:
    """Sectors read and written by all whole disks."""
    read = written = 0
    for line in diskstats.splitlines():
        fields = line.split(None, 10)
        if len(fields) > 9 and _WHOLE_DISK.match(fields[2]):
            read += int(fields[5])
            written += int(fields[9])
    return read, written


def memory_of(meminfo: bytes) -> tuple[int | None, int | None, int | None]:
    """(total, used, swap used) in bytes; used is total - available."""
    fields = dict(line.split(b":", 1) for line in meminfo.splitlines() if b":" in line)
    values = {key: int(fields[key].split()[0]) * 1024 for key in fields if fields[key].split()}
    total, available = values.get(b"MemTotal"), values.get(b"MemAvailable")
    swap, swap_free = values.get(b"SwapTotal"), values.get(b"SwapFree")
    return (
        total,
        None if total is None or available is None else total - available,
        None if swap is None or swap_free is None else swap - swap_free,
    )


class CgroupLimit(NamedTuple):
    """The folder of the cgroup with the smallest memory limit, and its two files."""

    folder: str
    limit_file: str
    usage_file: str

    def usage(self, host_total: int) -> tuple[int, int] | None:
        """(limit, used) when the limit is below the host's memory. Page cache is not "used"."""
        limit = _integer(f"{self.folder}/{self.limit_file}")
        used = _integer(f"{self.folder}/{self.usage_file}")
        if limit is None or used is None or limit >= host_total:
            return None
        stat = procfs.read_long(f"{self.folder}/memory.stat", 16384)
        found = None if isinstance(stat, Gap) else _INACTIVE.findall(stat)
        return limit, max(0, used - (int(found[-1]) if found else 0))


def cgroup_limit(root: str, mount: str = "/sys/fs/cgroup", who: str = "self") -> CgroupLimit | None:
    """Looks from a process's cgroup upwards, v2 and v1, for the smallest limit."""
    raw = procfs.read(f"{root}/{who}/cgroup")
    best: tuple[int, CgroupLimit] | None = None
    for base, path in () if isinstance(raw, Gap) else _memory_groups(procfs.text(raw), mount):
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            folder = "/".join([base, *parts[:depth]]).rstrip("/")
            for names in _LIMIT_FILES:
                limit = _integer(f"{folder}/{names[0]}")
                if limit is not None and (best is None or limit < best[0]):
                    best = (limit, CgroupLimit(folder, *names))
    return best[1] if best else None


def _memory_groups(cgroup: str, mount: str) -> list[tuple[str, str]]:
    groups = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    v1 = [(f"{mount}/memory", path) for _, kinds, path in groups if "memory" in kinds.split(",")]
    return v1 or [(mount, path) for _, kinds, path in groups if not kinds]


def _integer(path: str) -> int | None:
    raw = procfs.read(path, 64)
    return int(raw) if isinstance(raw, bytes) and raw.strip().isdigit() else None


def container_kind() -> str | None:
    """``kubernetes``, ``podman``, ``docker``, ``lxc``, ``systemd-nspawn`` …; None: none seen."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    for mark, kind in (("/run/.containerenv", "podman"), ("/.dockerenv", "docker")):
        if os.path.exists(mark):
            return kind
    raw = procfs.read("/run/systemd/container", 64)
    if isinstance(raw, bytes) and raw.strip():
        return procfs.text(raw).strip()
    return os.environ.get("container")  # noqa: SIM112 - lxc, nspawn and podman spell it so
