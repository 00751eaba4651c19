"""What a process and its workers do between two looks: CPU, states, and the cgroup's brake.

For looks at a few suspects, some seconds apart: not for every tick (a list of all processes costs
about 4 ms for 1,000 of them).
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from cockpit import procfs
from cockpit.procfs import HZ, Gap

WORKER_LIMIT = 64
_THROTTLED = re.compile(rb"^throttled_(usec|time) (\d+)", re.M)
_NOT_WORKERS = ("resource_tracker", "forkserver", "semaphore_tracker", "compile_worker")


class WorkerReading(NamedTuple):
    """One child at one moment."""

    pid: int
    state: str
    cpu_pct: float | None
    """Percent of one core since the last reading; None at the first."""


class WorkReading(NamedTuple):
    """One process at one moment."""

    main_state: str | None
    main_cpu_pct: float | None
    """Of the main thread alone."""
    workers: tuple[WorkerReading, ...]
    cpus: int | None
    throttled_pct: float | None


class Work:
    """Remembers the counters of one process. Used by one thread."""

    def __init__(self, pid: int, root: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self._pid, self._root, self._cgroups = pid, root, cgroups
        self._at_s: float | None = None
        self._ticks: dict[int, int] = {}
        self._throttled_s: float | None = None

    def read(self) -> WorkReading:
        """Rates are None at the first call and where they cannot be read."""
        now_s = time.monotonic()
        past_s = None if self._at_s is None else max(now_s - self._at_s, 1e-3)
        before, self._at_s = self._ticks, now_s
        self._ticks = {}
        main = procfs.stat(f"{self._root}/{self._pid}/task", self._pid)
        main_state = main_cpu = None
        if not isinstance(main, Gap):
            main_state = main.state
            main_cpu = self._rate(-self._pid, main.cpu_ticks, before, past_s)
        workers = []
        for pid, stat in self._children():
            cpu = self._rate(pid, stat.cpu_ticks, before, past_s)
            workers.append(WorkerReading(pid, stat.state, cpu))
        throttled = self._throttle(past_s)
        return WorkReading(main_state, main_cpu, tuple(workers), _cpus(self._pid), throttled)

    def _rate(
        self, key: int, ticks: int, before: dict[int, int], past_s: float | None
    ) -> float | None:
        self._ticks[key] = ticks
        if past_s is None or key not in before:
            return None
        return max(0.0, 100.0 * (ticks - before[key]) / HZ / past_s)

    def _children(self) -> list[tuple[int, procfs.Stat]]:
        """Workers of a loader, or any other child of Python that computes for it."""
        found = []
        for pid in self._child_pids():
            stat = procfs.stat(self._root, pid)
            if not isinstance(stat, Gap) and stat.ppid == self._pid and not stat.dead:
                found.append((pid, stat))
        return [(pid, stat) for pid, stat in found[:WORKER_LIMIT] if self._is_worker(pid, stat)]

    def _child_pids(self) -> list[int]:
        """By the kernel's own list: with 500 processes a search among all takes 3 ms a look."""
        children: list[int] = []
        try:
            for thread in os.listdir(f"{self._root}/{self._pid}/task"):
                with open(f"{self._root}/{self._pid}/task/{thread}/children") as file:
                    children += [int(word) for word in file.read().split()]
        except FileNotFoundError:  # a thread that has ended, or a kernel without PROC_CHILDREN
            return [pid for pid, one in procfs.all_stats(self._root) if one.ppid == self._pid]
        except (OSError, ValueError):
            return []
        return children

    def _is_worker(self, pid: int, stat: procfs.Stat) -> bool:
        if stat.name.startswith("pt_data_worker"):
            return True
        argv = procfs.command(self._root, pid)
        own = procfs.command(self._root, self._pid)
        if isinstance(argv, Gap) or not argv:
            return False
        joined = " ".join(argv)
        if any(word in joined for word in _NOT_WORKERS):
            return False
        return argv == own or "multiprocessing" in joined  # forked, or spawned

    def _throttle(self, past_s: float | None) -> float | None:
        """Share of the time since the last reading in which the CPU limit stopped its group."""
        total_s = self._throttled_total_s()
        before, self._throttled_s = self._throttled_s, total_s
        if total_s is None or before is None or past_s is None:
            return None
        return min(100.0, max(0.0, 100.0 * (total_s - before) / past_s))

    def _throttled_total_s(self) -> float | None:
        raw = procfs.read(f"{self._root}/{self._pid}/cgroup", 16384)
        if isinstance(raw, Gap):
            return None
        for line in procfs.text(raw).splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0" or "cpu" in controllers.split(","):
                folder = "" if number == "0" else f"/{controllers}"
                stat = procfs.read(f"{self._cgroups}{folder}{path}/cpu.stat")
                if not isinstance(stat, Gap) and (found := _THROTTLED.search(stat)):
                    return int(found[2]) / (1e6 if found[1] == b"usec" else 1e9)
        return None


def _cpus(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None
