"""The last ten minutes of what attached runs say about their memory, and where it is going.

One ring for each (pid, GPU, value), written once a snapshot as :mod:`cockpit.model.rings` does
it. A run that does not answer leaves a gap: its old numbers never become new samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, isnan, sqrt
from statistics import median
from typing import Literal, NamedTuple

from cockpit.model.rings import SIZE, Rings
from cockpit.model.run import Run, RunDevice
from cockpit.model.snapshot import Snapshot

RunMetric = Literal["allocated", "reserved", "driver", "retries", "step"]
"""Bytes; ``retries`` are the allocator's, ``step`` the optimizer's (its GPU is :data:`NO_GPU`)."""

NO_GPU = -1
LEAST_SAMPLES = 12
"""Fewer say nothing about a trend."""
_MOST_POINTS = 64
"""Theil and Sen look at every pair: 64 points are 2,016 pairs, half a millisecond."""
_SURE = 4.0
"""Standard deviations of Kendall's S beyond which a slope is no accident."""
_LEAST_CHANGE_BYTES = 8 << 20
"""Four pages of the driver: less is no trend, whatever the statistics say."""


class Trend(NamedTuple):
    """Where a value is going; ``steady`` when the slope drowns in the noise."""

    bytes_per_s: float
    bytes_per_step: float | None
    """None: no steps were counted."""
    steady: bool
    span_s: float
    steps: int | None

    def full_in_s(self, room_bytes: float | None) -> float | None:
        """Seconds until so much more is used at this slope; None: not going there, not known."""
        if self.steady or room_bytes is None or self.bytes_per_s <= 0.0:
            return None
        return max(0.0, room_bytes) / self.bytes_per_s


class RunHistory(Rings[tuple[int, int, RunMetric]]):
    """Rings of the last ``size`` samples of every attached run."""

    def __init__(self, size: int = SIZE) -> None:
        super().__init__(size)
        self._last: dict[int, int] = {}
        self._trends: dict[tuple[int, int, RunMetric], tuple[int, Trend | None]] = {}

    def append(self, snapshot: Snapshot) -> None:
        """As :meth:`Rings.append`."""
        super().append(snapshot)
        self._forget()

    def _sample(self, snapshot: Snapshot, slot: int) -> None:
        for run in snapshot.runs:
            if run.state == "running":  # an old value must not become a new sample
                self._sample_run(run, slot)

    def clear(self) -> None:
        """As :meth:`Rings.clear`."""
        super().clear()
        self._last.clear()
        self._trends.clear()

    def values(
        self, pid: int, gpu: int, metric: RunMetric, count: int | None = None
    ) -> list[float | None]:
        """The newest ``count`` samples, oldest first; None where nothing was said."""
        wanted = self.size if count is None else min(count, self.size)
        first = max(0, self.count - wanted)
        ring = self._rings.get((pid, gpu, metric))
        if ring is None:
            return [None] * (self.count - first)
        return [_known(ring[number % self.size]) for number in range(first, self.count)]

    def known_at(self, pid: int) -> float | None:
        """When the run last answered, seconds since the epoch; None: never seen to."""
        number = self._last.get(pid)
        if number is None or number < self.count - self.size:
            return None
        return _known(self._at[number % self.size])

    def per_minute(self, pid: int, gpu: int, metric: RunMetric = "retries") -> float | None:
        """How fast a counter went up during the last minute; None with less than two samples."""
        points = self._points(pid, gpu, metric)
        recent = [(t, v) for t, v in points if points[-1][0] - t <= 60.0]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return None
        rise = max(0.0, recent[-1][1] - recent[0][1])
        return rise * 60.0 / max(60.0, recent[-1][0] - recent[0][0])

    def trend(self, pid: int, gpu: int, metric: RunMetric) -> Trend | None:
        """The median of all slopes (Theil, Sen); None while there are too few samples."""
        key = (pid, gpu, metric)
        known = self._trends.get(key)
        # A long series turns slowly: a new look every fifth sample.
        beat = self.count if self.count < _MOST_POINTS else self.count - self.count % 5
        if known is None or known[0] != beat:
            known = self._trends[key] = (beat, self._trend(pid, gpu, metric))
        return known[1]

    def _trend(self, pid: int, gpu: int, metric: RunMetric) -> Trend | None:
        points = self._points(pid, gpu, metric)
        if len(points) < LEAST_SAMPLES:
            return None
        slope, steady = robust_slope(points)
        steps = self._steps(pid)
        span_s = points[-1][0] - points[0][0]
        per_step = slope * span_s / steps if steps else None
        return Trend(slope, per_step, steady, span_s, steps)

    def _steps(self, pid: int) -> int | None:
        known = self._points(pid, NO_GPU, "step")
        return int(known[-1][1] - known[0][1]) if len(known) > 1 else None

    def _points(self, pid: int, gpu: int, metric: RunMetric) -> list[tuple[float, float]]:
        ring = self._rings.get((pid, gpu, metric))
        if ring is None:
            return []
        numbers = range(max(0, self.count - self.size), self.count)
        slots = (number % self.size for number in numbers)
        return [
            (self._at[slot], ring[slot])
            for slot in slots
            if not (isnan(ring[slot]) or isnan(self._at[slot]))
        ]

    def _sample_run(self, run: Run, slot: int) -> None:
        before = self._latest(run.pid, NO_GPU, "step")
        if run.step is not None and before is not None and run.step < before:
            self._drop(run.pid)  # another process has the pid now
        self._last[run.pid] = self.count
        self._write((run.pid, NO_GPU, "step"), slot, run.step)
        for device in run.devices:
            self._sample_device(run.pid, device, slot)

    def _sample_device(self, pid: int, device: RunDevice, slot: int) -> None:
        gpu = device.gpu
        self._write((pid, gpu, "allocated"), slot, device.allocated_bytes)
        self._write((pid, gpu, "reserved"), slot, device.reserved_bytes)
        self._write((pid, gpu, "driver"), slot, device.driver_seen_bytes)
        self._write((pid, gpu, "retries"), slot, device.alloc_retries)

    def _latest(self, pid: int, gpu: int, metric: RunMetric) -> float | None:
        number = self._last.get(pid)
        ring = self._rings.get((pid, gpu, metric))
        return None if ring is None or number is None else _known(ring[number % self.size])

    def _drop(self, pid: int) -> None:
        self._rings = {key: ring for key, ring in self._rings.items() if key[0] != pid}
        self._trends = {key: kept for key, kept in self._trends.items() if key[0] != pid}
        self._last.pop(pid, None)

    def _forget(self) -> None:
        """Runs of which no sample is left."""
        for pid in [p for p, number in self._last.items() if number <= self.count - self.size]:
            self._drop(pid)


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def robust_slope(points: Sequence[tuple[float, float]]) -> tuple[float, bool]:
    """Median slope, and whether it is nothing but noise (Mann–Kendall, and the residuals' size).

    A sawtooth of activations has a slope in every short piece; it counts as steady as long as the
    change over the whole span is not larger than what the values scatter about the line.
    """
    thin = _thinned(points)
    slopes: list[float] = []
    kendall = 0
    for number, (x, y) in enumerate(thin):
        for later_x, later_y in thin[number + 1 :]:
            if later_x > x:
                slopes.append((later_y - y) / (later_x - x))
                kendall += 0 if later_y == y else int(copysign(1, later_y - y))
    if not slopes:
        return 0.0, True
    slope, n = median(slopes), len(thin)
    deviation = sqrt(n * (n - 1) * (2 * n + 5) / 18)
    offset = median(y - slope * x for x, y in thin)
    scatter = median(abs(y - slope * x - offset) for x, y in thin)
    change = abs(slope) * (thin[-1][0] - thin[0][0])
    sure = abs(kendall) > _SURE * deviation
    return slope, not (sure and change > max(_LEAST_CHANGE_BYTES, 3.0 * scatter))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many, both ends among them."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    last = len(points) - 1
    return [points[round(n * last / (_MOST_POINTS - 1))] for n in range(_MOST_POINTS)]
