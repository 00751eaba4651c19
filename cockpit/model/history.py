"""The last ten minutes of a few moving values, in rings of fixed size. Filled by the face.

Every snapshot writes one sample for every GPU; what is not known (lost, stale, not supported) is a
gap and stays one. Samples are counted from the first snapshot on, so that a trace can put sample
number *k* at place *k modulo width* and advance in place.
"""

from __future__ import annotations

from math import isnan
from typing import Literal

from cockpit.model.gpu import Gpu
from cockpit.model.rings import Rings
from cockpit.model.snapshot import Snapshot

Metric = Literal["util", "vram", "power", "temp", "cpu"]
"""Percent, percent of the memory, W, °C; ``cpu`` (percent) is the host's."""

HOST = -1
"""Stands where the number of a GPU stands, for the host's own values."""


class History(Rings[tuple[int, Metric]]):
    """Rings of the last ``size`` samples."""

    TYPECODE = "f"

    def _sample(self, snapshot: Snapshot, slot: int) -> None:
        self._write((HOST, "cpu"), slot, snapshot.host.cpu_pct)
        for gpu in snapshot.gpus:
            self._sample_gpu(gpu, slot)

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

    def reach_s(self, samples: int, interval_s: float) -> float:
        """How far the last ``samples`` reach back; ``interval_s`` for each still to come."""
        known = self.ages(samples + 1)
        missing = samples - max(0, len(known) - 1)
        return (-known[0] if known else 0.0) + missing * interval_s

    def latest(self, gpu: int, metric: Metric) -> float | None:
        """The newest sample."""
        return self.sample(gpu, metric, self.count - 1)

    def _sample_gpu(self, gpu: Gpu, slot: int) -> None:
        if gpu.state != "ok":  # an old value must not become a new sample
            return
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        share = 100.0 * used / total if used is not None and total else None
        self._write((gpu.index, "util"), slot, gpu.utilization_pct)
        self._write((gpu.index, "vram"), slot, share)
        self._write((gpu.index, "power"), slot, gpu.power_w)
        self._write((gpu.index, "temp"), slot, gpu.temperature_c)
