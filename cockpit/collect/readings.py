"""What the GPU side hands to the rest of ``collect``, before it becomes a Snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cockpit.model.event import Event
from cockpit.model.gpu import Driver, Gpu, TopologyLink
from cockpit.model.process import ProcessKind


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One line of one of NVML's process lists, merged per (pid, GPU, MIG instance)."""

    pid: int
    gpu: int
    kind: ProcessKind
    vram_bytes: int | None
    sm_pct: float | None
    mig_instance: int | None = None
    gap: str | None = None
    """Why ``vram_bytes`` is None."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of one GPU, read around its process list. Bytes; None where not supported."""

    gpu: int
    total_bytes: int | None
    free_bytes: int | None
    reserved_bytes: int | None
    """The driver's own reserve (memory v2); None with an old driver, whose "used" includes it."""
    moved: bool = False
    """Memory changed between both readings around the list, twice."""


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """One tick of the GPU side."""

    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    uses: tuple[ProcessUse, ...] = ()
    memory: tuple[MemoryReading, ...] = ()
    topology: tuple[TopologyLink, ...] = ()
    events: tuple[Event, ...] = ()
    """New since the last tick."""


def by_gpu(uses: Iterable[ProcessUse]) -> dict[int, tuple[ProcessUse, ...]]:
    """Index of the GPU → its lines, in their order."""
    found: dict[int, list[ProcessUse]] = {}
    for use in uses:
        found.setdefault(use.gpu, []).append(use)
    return {gpu: tuple(group) for gpu, group in found.items()}
