"""Which processes are shown where there is no NVML to say it."""

from __future__ import annotations

from collections.abc import Collection

from cockpit import procfs
from cockpit.procfs import Stat

COUNT = 40
EVERY_S = 5.0
"""Between two selections the rows stay the same ones: no flicker, and no scan in each tick."""
KTHREADD = 2


class Selection:
    """Holders of device files first, then the busiest and the biggest."""

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
            if KTHREADD not in (pid, stat.ppid) and stat.state not in "ZX"
        }
        self._chosen = list(
            dict.fromkeys([pid for pid in holders if pid in stats] + self._top(stats))
        )
        self._chosen_at = now
        self._cpu_ticks = {pid: stat.cpu_ticks for pid, stat in stats.items()}
        return self._chosen

    def _top(self, stats: dict[int, Stat]) -> list[int]:
        """Half by CPU since the last selection (at first: of their lives), the rest by memory."""
        moved = {pid: stat.cpu_ticks - self._cpu_ticks.get(pid, 0) for pid, stat in stats.items()}
        by_cpu = sorted((pid for pid in moved if moved[pid] > 0), key=lambda pid: -moved[pid])
        by_memory = sorted(stats, key=lambda pid: -stats[pid].rss_bytes)
        return list(dict.fromkeys(by_cpu[: COUNT // 2] + by_memory))[:COUNT]
