"""What the memory page is about at one moment, and what is known of programs that are not PyTorch's
plain training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cockpit.model.gpu import Gpu
from cockpit.model.memory import SegmentRow, Segments
from cockpit.model.process import Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.run_history import RunHistory
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.memory_bar import Place

MAP_AGREES = 0.02
"""A segment map that is off by more than this share is not that of now."""

OTHERS: dict[str, tuple[str, ...]] = {
    "jax": (
        "A JAX process: it takes 75 % of the GPU at its start (XLA_PYTHON_CLIENT_MEM_FRACTION), "
        "so the driver's number says little about what it needs.",
        "device.memory_stats() tells bytes_in_use and the peak; "
        "jax.profiler.device_memory_profile() tells who holds it. There is no empty_cache.",
    ),
    "tensorflow": (
        "A TensorFlow process: it takes the whole GPU by default, so the driver's number says "
        "little about what it needs.",
        "tf.config.experimental.get_memory_info('GPU:0') tells current and peak; "
        "set_memory_growth makes it take only what it needs.",
    ),
    "vllm": (
        "A vLLM process: most of this is its KV cache, reserved at the start "
        "(--gpu-memory-utilization); it is in use even while no request runs.",
        "Its /metrics tell how full it is: vllm:kv_cache_usage_perc, num_requests_running and "
        "num_requests_waiting. empty_cache is not offered here.",
    ),
}
"""Programs that reserve memory for themselves: explained, not measured wrongly."""


@dataclass(frozen=True)
class Subject:
    """What the page is about, at one moment."""

    pid: int
    process: Process | None
    run: Run | None
    gpus: Mapping[int, Gpu]
    history: RunHistory
    segments: Segments | None = None
    """As last asked for."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """As bound now, by the id of the binding; what is off is missing, and no sentence names it."""

    def key(self, name: str) -> str:
        """``[f]`` for ``fix``; empty where that is off."""
        key = self.keys.get(f"memory.{name}")
        return f"[{foreign(key)}]" if key else ""

    @property
    def framework(self) -> str | None:
        """As the process table recognised it."""
        return None if self.process is None else self.process.framework


def place_of(gpu: Gpu | None) -> Place:
    """Total and used, the driver's reserve among the used."""
    if gpu is None or gpu.memory_total_bytes is None:
        return Place()
    used = gpu.memory_used_bytes
    reserve = gpu.memory_reserved_bytes or 0
    return Place(gpu.memory_total_bytes, None if used is None else used + reserve)


def segments_for(segments: Segments | None, run: Run, device: RunDevice) -> tuple[SegmentRow, ...]:
    """The map of one device, where it still agrees with what the allocator says now.

    A map is asked for once and grows old; a process may also number its devices otherwise.
    """
    if segments is None or segments.left_out or not device.reserved_bytes:
        return ()
    place = run.devices.index(device)
    indices = sorted({one.device for one in segments.segments})
    wanted = [device.gpu, *indices[place : place + 1]]
    for index in wanted if len(run.devices) > 1 else indices[:1]:
        rows = tuple(one for one in segments.segments if one.device == index)
        whole = sum(one.bytes for one in rows)
        if abs(whole - device.reserved_bytes) <= MAP_AGREES * device.reserved_bytes:
            return rows
    return ()
