"""Samples of many moving values, in rings of fixed size: one sample of each for every snapshot."""

from __future__ import annotations

from array import array
from math import nan
from typing import Generic, Literal, TypeVar

from cockpit.model.snapshot import Snapshot
from cockpit.model.time import moment

SIZE = 600
K = TypeVar("K")


class Rings(Generic[K]):
    """The last ``size`` samples of every value; NaN where a value was not known."""

    TYPECODE: Literal["f", "d"] = "d"

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.count = 0
        """Samples written so far; the newest is number ``count - 1``."""
        self._at = array("d", [nan]) * size
        self._rings: dict[K, array[float]] = {}
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
        self._sample(snapshot, slot)
        self.count += 1

    def _sample(self, snapshot: Snapshot, slot: int) -> None:
        """Write what this snapshot knows."""
        raise NotImplementedError

    def _write(self, key: K, slot: int, value: float | None) -> None:
        if value is None:
            return
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = array(self.TYPECODE, [nan]) * self.size
        ring[slot] = value

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self._rings.clear()
        self._newest_at = ""

    def ages(self, count: int) -> list[float]:
        """Seconds from the newest sample to each of the newest ``count``, oldest first: at most 0.

        The interval may have been another one meanwhile, and an engine may have been gone.
        """
        first = max(0, self.count - min(count, self.size))
        newest = self._at[(self.count - 1) % self.size]
        return [self._at[number % self.size] - newest for number in range(first, self.count)]
