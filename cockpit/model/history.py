"""The last ten minutes of a few moving values, in rings of fixed size. Filled by the face.

Every snapshot writes one sample for every GPU; what is not known (lost, stale, not supported) is a
gap and stays one. Samples are counted from the first snapshot on, so that a trace can put sample
number *k* at place *k modulo width* and advance in place.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import Literal

from cockpit.model.gpu import Gpu
from cockpit.model.snapshot import Snapshot
from cockpit.model.time import moment

Metric = Literal["util", "vram", "power", "temp", "cpu"]
"""Percent, percent of the memory, W, °C; ``cpu`` (percent) is the host's."""

SIZE = 600
HOST = -1
"""Stands where the number of a GPU stands, for the host's own values."""


def ages(at: array[float], written: int, count: int) -> list[float]:
    """Of the newest ``count`` places of a ring of times: seconds after the newest, oldest first."""
    size = len(at)
    first = max(0, written - min(count, size))
    newest = at[(written - 1) % size]
    return [at[number % size] - newest for number in range(first, written)]


class History:
    """Rings of the last ``size`` samples."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.count = 0
        """Samples written so far; the newest is number ``count - 1``."""
        self._at = array("d", [nan]) * size
        self._rings: dict[tuple[int, Metric], array[float]] = {}
        self._newest_at = ""

    def append(self, snapshot: Snapshot) -> None:
        """Write one sample; the same snapshot twice counts once, an older one starts anew."""
        if snapshot.taken_at == self._newest_at:
            return
        if snapshot.taken_at < self._newest_at:  # a replay was moved back
            self.clear()
        self._newest_at = snapshot.taken_at
        slot = self.count % self.size
        self._at[slot] = moment(snapshot.taken_at) or 0.0
        for ring in self._rings.values():
            ring[slot] = nan
        self._write(HOST, "cpu", slot, snapshot.host.cpu_pct)
        for gpu in snapshot.gpus:
            self._append_gpu(gpu, slot)
        self.count += 1

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self._rings.clear()
        self._newest_at = ""

    def sample(self, gpu: int, metric: Metric, number: int) -> float | None:
        """Sample ``number``, or None where it is a gap, not written yet or overwritten."""
        ring = self._rings.get((gpu, metric))
        if ring is None or not max(0, self.count - self.size) <= number < self.count:
            return None
        value = ring[number % self.size]
        return None if isnan(value) else value

    def values(self, gpu: int, metric: Metric, count: int) -> list[float | None]:
        """The newest ``count`` samples, oldest first; fewer while there are fewer."""
        first = max(0, self.count - min(count, self.size))
        ring = self._rings.get((gpu, metric))
        if ring is None or count <= 0:
            return [None] * (self.count - first)
        start, end = first % self.size, (self.count - 1) % self.size + 1
        kept = ring[start:end] if start < end else ring[start:] + ring[:end]
        return [value if value == value else None for value in kept]  # nan differs from itself

    def ages(self, count: int) -> list[float]:
        """Seconds from the newest sample to each of the newest ``count``, oldest first: at most 0.

        The interval may have been another one meanwhile, and an engine may have been gone.
        """
        return ages(self._at, self.count, count)

    def reach_s(self, samples: int, interval_s: float) -> float:
        """How far the last ``samples`` reach back; ``interval_s`` for each still to come."""
        known = self.ages(samples + 1)
        missing = samples - max(0, len(known) - 1)
        return (-known[0] if known else 0.0) + missing * interval_s

    def latest(self, gpu: int, metric: Metric) -> float | None:
        """The newest sample."""
        return self.sample(gpu, metric, self.count - 1)

    def _append_gpu(self, gpu: Gpu, slot: int) -> None:
        if gpu.state != "ok":  # an old value must not become a new sample
            return
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        share = 100.0 * used / total if used is not None and total else None
        self._write(gpu.index, "util", slot, gpu.utilization_pct)
        self._write(gpu.index, "vram", slot, share)
        self._write(gpu.index, "power", slot, gpu.power_w)
        self._write(gpu.index, "temp", slot, gpu.temperature_c)

    def _write(self, gpu: int, metric: Metric, slot: int, value: float | None) -> None:
        if value is None:
            return
        ring = self._rings.get((gpu, metric))
        if ring is None:
            ring = self._rings[gpu, metric] = array("f", [nan]) * self.size
        ring[slot] = value
