"""Which simulated processes live at a moment, and what a demo kill does to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from cockpit.collect.demo_parts import DemoProcess, Hold, Scenario
from cockpit.model.time import iso

RETURN_S = 0.1
"""A killed holder's memory comes back after 0.11 s on a real H200."""

PID_STEP = 37
UPTIME_S = 41 * 86400
"""The simulated host has been up for 41 days: start ticks count from there."""


class Instance(Struct, frozen=True, kw_only=True):
    """One simulated process with its identity."""

    process: DemoProcess
    pid: int
    born_s: float
    ends_s: float | None

    @property
    def start_ticks(self) -> int:
        """As /proc/PID/stat counts, 100 a second since boot."""
        return int((UPTIME_S + self.born_s) * 100) + self.pid % 89

    def held_bytes(self, hold: Hold, now_s: float) -> int:
        """What it holds by this hold at this moment."""
        return hold.size_bytes(now_s - self.born_s)


class World:
    """The scenario plus what has been done to it. Read by the tick, changed by a kill's thread."""

    def __init__(self, scenario: Scenario, began: datetime) -> None:
        self.scenario = scenario
        self.began = began
        self._lock = threading.Lock()
        self._ended: dict[int, float] = {}
        self._stopped: frozenset[int] = frozenset()
        self._born: dict[tuple[int, int], Instance] = {}

    def iso_at(self, now_s: float) -> str:
        """The wall clock of a moment of the demo."""
        return iso(self.began.timestamp() + now_s)

    def alive(self, now_s: float) -> list[Instance]:
        """Everybody who lives now, in the scenario's order."""
        with self._lock:
            ended = dict(self._ended)
        everybody = {i.pid: i for i in self._born_by(now_s)}
        return [i for i in everybody.values() if not self._is_over(i, now_s, ended)]

    def lingering(self, now_s: float) -> list[Instance]:
        """Those just gone whose memory the driver has not taken back yet."""
        with self._lock:
            fresh = {p for p, end in self._ended.items() if end <= now_s < end + RETURN_S}
        return [i for i in self._born_by(now_s) if i.pid in fresh] if fresh else []

    def is_stopped(self, pid: int) -> bool:
        """SIGSTOP was played on it."""
        return pid in self._stopped

    def end(self, pids: frozenset[int], now_s: float) -> None:
        """They are gone from now on."""
        with self._lock:
            for pid in pids:
                self._ended.setdefault(pid, now_s)

    def stop(self, pid: int, stopped: bool) -> None:
        """SIGSTOP and SIGCONT."""
        with self._lock:
            self._stopped = self._stopped | {pid} if stopped else self._stopped - {pid}

    def _is_over(self, instance: Instance, now_s: float, ended: dict[int, float]) -> bool:
        if ended.get(instance.pid, now_s + 1.0) <= now_s:
            return True
        # a zombie is reaped by init as soon as the child that held on is gone
        return ended.get(instance.process.held_by or 0, now_s + 1.0) <= now_s

    def _born_by(self, now_s: float) -> Iterator[Instance]:
        for index, process in enumerate(self.scenario.processes):
            number = process.life.generation(now_s)
            if number is not None:
                yield self._instance(index, process, number)

    def _instance(self, index: int, process: DemoProcess, number: int) -> Instance:
        known = self._born.get((index, number))
        if known is None:
            life = process.life
            born_s = life.born_s + number * (life.every_s or 0.0)
            ends_s = None if life.lives_s is None else born_s + life.lives_s
            known = Instance(
                process=process, pid=process.pid + number * PID_STEP, born_s=born_s, ends_s=ends_s
            )
            self._born[(index, number)] = known
        return known
