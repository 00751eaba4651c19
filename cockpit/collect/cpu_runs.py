"""Python processes of this user that have torch loaded and compute: runs on the CPU, perhaps.

For a scan every ten seconds in the background: one pass over all ``stat`` files, and ``maps`` of a
process once in its life (1 to 3 ms, and only after a minute of CPU time).
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from cockpit import procfs
from cockpit.collect.owners import MAPS_LIMIT_BYTES, framework_of_libraries
from cockpit.model.text import clean_command
from cockpit.procfs import HZ, Gap, Stat

LEAST_CPU_S = 60.0
_NOT_RUNS = ("pt_data_worker",)


class CpuRunReading(NamedTuple):
    """One process."""

    pid: int
    start_ticks: int
    command: str
    cpu_s: float
    cpu_pct: float
    ppid: int


class CpuRunScan:
    """Remembers CPU times and who has torch between two scans. Used by one thread."""

    def __init__(self, root: str = "/proc", least_cpu_s: float = LEAST_CPU_S) -> None:
        self._root, self._least_cpu_s = root, least_cpu_s
        self._uid = os.geteuid()
        self._at_s: float | None = None
        self._ticks: dict[tuple[int, int], int] = {}
        self._has_torch: dict[tuple[int, int], bool] = {}

    def scan(self) -> tuple[CpuRunReading, ...]:
        """Empty at the first call: whether somebody computes now is a difference of two."""
        now_s = time.monotonic()
        past_s = None if self._at_s is None else max(now_s - self._at_s, 1e-3)
        before, self._at_s, self._ticks = self._ticks, now_s, {}
        found = []
        for pid, stat in procfs.all_stats(self._root):
            if stat.cpu_ticks < self._least_cpu_s * HZ or stat.name in _NOT_RUNS:
                continue
            key = pid, stat.start_ticks
            self._ticks[key] = stat.cpu_ticks
            if past_s is None or key not in before or not self._is_run(pid, stat):
                continue
            pct = 100.0 * (stat.cpu_ticks - before[key]) / HZ / past_s
            found.append(self._reading(pid, stat, max(0.0, pct)))
        self._has_torch = {key: it for key, it in self._has_torch.items() if key in self._ticks}
        torches = {one.pid for one in found}
        # Workers and children of a run are part of it.
        return tuple(one for one in found if one.ppid not in torches)

    def _is_run(self, pid: int, stat: Stat) -> bool:
        key = pid, stat.start_ticks
        known = self._has_torch.get(key)
        if known is None:
            known = self._has_torch[key] = self._loaded_torch(pid)
        return known

    def _loaded_torch(self, pid: int) -> bool:
        status = procfs.status(self._root, pid)
        if isinstance(status, Gap) or status.uid != self._uid:
            return False
        maps = procfs.read_long(f"{self._root}/{pid}/maps", MAPS_LIMIT_BYTES)
        return not isinstance(maps, Gap) and framework_of_libraries(maps) == "pytorch"

    def _reading(self, pid: int, stat: Stat, pct: float) -> CpuRunReading:
        argv = procfs.command(self._root, pid)
        command = clean_command(() if isinstance(argv, Gap) else argv, stat.name)
        cpu_s = stat.cpu_ticks / HZ
        return CpuRunReading(pid, stat.start_ticks, command[:200], cpu_s, pct, stat.ppid)
