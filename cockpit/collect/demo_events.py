"""The events of a simulated machine: what changed from one tick to the next, told in sentences."""

from __future__ import annotations

from collections import deque
from typing import Any

from cockpit.collect.demo_world import Instance, World
from cockpit.model.event import Event
from cockpit.model.gpu import Gpu
from cockpit.model.text import clean_command, gib

KEPT = 100


class Events:
    """Keeps the newest hundred."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._told_s = float("-inf")
        self._alive: dict[int, Instance] | None = None
        self._reasons: dict[int, frozenset[str]] = {}
        self._lost: set[int] = set()
        self._killed: set[int] = set()

    def add(self, event: Event) -> None:
        """From elsewhere, such as a demo kill."""
        self._kept.append(event)

    def read(self, alive: list[Instance], gpus: tuple[Gpu, ...], now_s: float) -> tuple[Event, ...]:
        """All that are kept, oldest first, after what this tick brings."""
        self._scripted(now_s)
        self._processes({i.pid: i for i in alive}, now_s)
        for gpu in gpus:
            self._gpu(gpu, now_s)
        return tuple(self._kept)

    def _say(self, now_s: float, **fields: Any) -> None:
        self._kept.append(Event(at=self._world.iso_at(now_s), **fields))

    def _scripted(self, now_s: float) -> None:
        for e in self._world.scenario.events:
            if self._told_s < e.at_s <= now_s:
                about = {"gpu": e.gpu, "kind": e.kind, "sentence": e.sentence}
                self._say(e.at_s, severity=e.severity, xid=e.xid, **about)
        self._told_s = now_s

    def _processes(self, alive: dict[int, Instance], now_s: float) -> None:
        before, self._alive = self._alive, alive
        if before is None:
            return
        for pid, instance in before.items():
            if pid not in alive:
                self._ended(instance, now_s)
        for pid, instance in alive.items():
            if pid not in before:
                sentence = f"pid {pid} started{_where(instance)}: {_what(instance)}"
                self._say(
                    now_s,
                    gpu=_gpu_of(instance),
                    kind="process_started",
                    sentence=sentence,
                    severity="info",
                )

    def _ended(self, instance: Instance, now_s: float) -> None:
        by_itself = instance.ends_s is not None and now_s >= instance.ends_s
        if instance.process.ends_with_oom and by_itself:
            self._out_of_memory(instance, now_s)
        self._say(
            now_s,
            gpu=_gpu_of(instance),
            kind="process_ended",
            sentence=f"pid {instance.pid} ended{_where(instance)}: {_what(instance)}",
            severity="info",
        )

    def _out_of_memory(self, instance: Instance, now_s: float) -> None:
        hold = instance.process.holds[0]
        held = gib(instance.held_bytes(hold, instance.ends_s or now_s))
        self._say(
            now_s,
            gpu=hold.gpu,
            kind="oom",
            sentence=f"pid {instance.pid} ran out of memory on GPU {hold.gpu}: it held {held} GiB",
            severity="error",
        )

    def _gpu(self, gpu: Gpu, now_s: float) -> None:
        if gpu.state == "lost":
            if gpu.index not in self._lost:
                self._lost.add(gpu.index)
                sentence = f"GPU {gpu.index} is lost: the driver no longer reaches it"
                about = {"gpu": gpu.index, "kind": "lost", "sentence": sentence}
                self._say(now_s, severity="error", **about)
            return
        reasons = frozenset(gpu.throttle_reasons or ()) - {"gpu_idle"}
        if reasons != self._reasons.get(gpu.index, frozenset()):
            self._reasons[gpu.index] = reasons
            self._throttle(gpu, reasons, now_s)

    def _throttle(self, gpu: Gpu, reasons: frozenset[str], now_s: float) -> None:
        names = ", ".join(sorted(reasons))
        heat = any("thermal" in r for r in reasons)
        why = f"by heat at {gpu.temperature_c} °C" if heat else "by its power cap"
        slowed = f"GPU {gpu.index} is slowed {why}: {names}"
        self._say(
            now_s,
            gpu=gpu.index,
            kind="throttle",
            sentence=slowed if reasons else f"GPU {gpu.index} is no longer slowed",
            severity="warning" if reasons else "info",
        )


def _gpu_of(instance: Instance) -> int | None:
    return instance.process.holds[0].gpu if instance.process.holds else None


def _where(instance: Instance) -> str:
    gpu = _gpu_of(instance)
    return "" if gpu is None else f" on GPU {gpu}"


def _what(instance: Instance) -> str:
    return clean_command(instance.process.command, instance.process.name)
