"""Which processes are shown where there is no NVML to say it."""

from __future__ import annotations

import os
from collections.abc import Collection

from cockpit import procfs
from cockpit.procfs import Stat

COUNT = 40
EVERY_S = 5.0
"""Between two selections the rows stay the same ones: no flicker, and no scan in each tick."""


class Selection:
    """Holders of device files first, then the busiest and the biggest. Nobody of our own line."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._chosen: list[int] = []
        self._chosen_at = -1e9
        self._cpu_ticks: dict[int, int] = {}

    def choose(self, now: float, holders: Collection[int]) -> list[int]:
        """Pids, the same as last time when that is less than five seconds ago."""
        if now - self._chosen_at < EVERY_S:
            return self._chosen
        stats = {
            pid: stat
            for pid, stat in procfs.all_stats(self._root)
            if not stat.kernel_thread and stat.state not in "ZX"
        }
        holding = [pid for pid in holders if pid in stats and pid != os.getpid()]
        ours = _line_of(os.getpid(), stats)
        others = {pid: stat for pid, stat in stats.items() if pid not in ours}
        self._chosen = list(dict.fromkeys(holding + self._top(others)))
        self._chosen_at = now
        self._cpu_ticks = {pid: stat.cpu_ticks for pid, stat in stats.items()}
        return self._chosen

    def _top(self, stats: dict[int, Stat]) -> list[int]:
        """Half by CPU since the last selection (at first: of their lives), the rest by memory."""
        moved = {pid: stat.cpu_ticks - self._cpu_ticks.get(pid, 0) for pid, stat in stats.items()}
        by_cpu = sorted((pid for pid in moved if moved[pid] > 0), key=lambda pid: -moved[pid])
        by_memory = sorted(stats, key=lambda pid: -stats[pid].rss_bytes)
        return list(dict.fromkeys(by_cpu[: COUNT // 2] + by_memory))[:COUNT]


def _line_of(pid: int, stats: dict[int, Stat]) -> frozenset[int]:
    """This engine, the cockpit that started it, its shell, and so on up to pid 1."""
    line: set[int] = set()
    while pid in stats and pid not in line:
        line.add(pid)
        pid = stats[pid].ppid
    return frozenset(line)
