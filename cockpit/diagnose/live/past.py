"""The last two minutes of what the rules need: readings of each GPU, growth of each process.

Bounded: at most two samples a second are kept of a GPU, and of a process only its changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cockpit.model.gpu import Gpu
from cockpit.model.snapshot import Snapshot

SPAN_S = 120.0
LEAST_APART_S = 0.45
FEWEST = 3
"""Where the interval is long, a window holds at least so many samples."""
_MOST_CHANGES = 240
ACTIVE_PCT = 1.0
"""One tick of the kernel's clock a second: an idle notebook has less."""
ACTIVE_FOR_S = 15.0
Value = Callable[[Gpu], float | None]


class Rise(NamedTuple):
    """Memory of one process on one GPU, as its changes."""

    changes: deque[tuple[float, int]]
    """(seconds, bytes) whenever it changed, the first one included."""


class Past:
    """Rings over the snapshots."""

    def __init__(self) -> None:
        self._gpus: dict[int, deque[tuple[float, Gpu]]] = {}
        self._rises: dict[tuple[int, int], Rise] = {}
        self._active_s: dict[int, float] = {}
        self.now_s = 0.0

    def append(self, snapshot: Snapshot, now_s: float) -> None:
        """One snapshot; a GPU that is stale or lost leaves no sample."""
        self.now_s = now_s
        for gpu in snapshot.gpus:
            if gpu.state == "ok":
                self._append_gpu(gpu, now_s)
        self._append_processes(snapshot, now_s)

    def _append_gpu(self, gpu: Gpu, now_s: float) -> None:
        ring = self._gpus.get(gpu.index)
        if ring is None:
            ring = self._gpus[gpu.index] = deque()
        if ring and now_s - ring[-1][0] < LEAST_APART_S:
            return
        ring.append((now_s, gpu))
        while now_s - ring[0][0] > SPAN_S and len(ring) > FEWEST:
            ring.popleft()

    def _append_processes(self, snapshot: Snapshot, now_s: float) -> None:
        rises = self._rises
        for process in snapshot.processes:
            if (process.cpu_pct or 0.0) >= ACTIVE_PCT:
                self._active_s[process.pid] = now_s
            for use in process.devices:
                size = use.vram_bytes
                if size is None:
                    continue
                rise = rises.get((process.pid, use.gpu))
                if rise is None:
                    ring = deque([(now_s, size)], maxlen=_MOST_CHANGES)
                    rises[process.pid, use.gpu] = Rise(ring)
                elif rise.changes[-1][1] != size:
                    rise.changes.append((now_s, size))
        if len(rises) > 2 * len(snapshot.processes) + 64:
            alive = {process.pid for process in snapshot.processes}
            self._rises = {key: rise for key, rise in rises.items() if key[0] in alive}
            self._active_s = {pid: at for pid, at in self._active_s.items() if pid in alive}

    def was_active(self, pid: int) -> bool:
        """It used some CPU a moment ago: a run that only waits for data uses next to none."""
        return self.now_s - self._active_s.get(pid, -1e18) <= ACTIVE_FOR_S

    def window(self, gpu: int, seconds: float) -> list[Gpu]:
        """The readings of the last seconds, oldest first; a few older ones where there are few."""
        ring = self._gpus.get(gpu, ())
        found: list[Gpu] = []
        for at_s, reading in reversed(ring):
            if self.now_s - at_s > seconds and len(found) >= FEWEST:
                break
            found.append(reading)
        found.reverse()
        return found

    def covers(self, gpu: int, seconds: float) -> bool:
        """Whether the GPU has been watched that long."""
        ring = self._gpus.get(gpu)
        return ring is not None and self.now_s - ring[0][0] >= seconds - 0.05

    def mean(self, gpu: int, value: Value, seconds: float) -> float | None:
        """Mean of what is known of a value over the last seconds."""
        known = [one for one in map(value, self.window(gpu, seconds)) if one is not None]
        return sum(known) / len(known) if known else None

    def rise(self, pid: int, gpu: int) -> Rise | None:
        """How a process's memory changed."""
        return self._rises.get((pid, gpu))


def utilization(gpu: Gpu) -> float | None:
    """Percent."""
    return gpu.utilization_pct


def power_share(gpu: Gpu) -> float | None:
    """Power as a share of the limit, 0 to 1."""
    if gpu.power_w is None or not gpu.power_limit_w:
        return None
    return gpu.power_w / gpu.power_limit_w


def clock_share(gpu: Gpu) -> float | None:
    """SM clock as a share of its maximum, 0 to 1."""
    if gpu.sm_clock_mhz is None or not gpu.sm_clock_max_mhz:
        return None
    return gpu.sm_clock_mhz / gpu.sm_clock_max_mhz
