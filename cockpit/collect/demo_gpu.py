"""The moving values of a simulated GPU: a pure function of the load on it, plus its own warmth.

Figures are those of a real H200 (78 W idle, 700 W limit, 345 to 1980 MHz, NV18) and of an RTX 4090.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cockpit.collect.demo_parts import DemoGpu, Load, LoadKind, Model
from cockpit.model.gpu import Gpu


class _Card(Struct, frozen=True, kw_only=True):
    """What is the same for all cards of a model."""

    memory_total_bytes: int
    memory_reserved_bytes: int
    idle_w: float
    limit_w: float
    idle_mhz: int
    max_mhz: int
    nvlink: bool
    fixed: dict[str, Any]
    gaps: dict[str, str]


_NONE = "not_supported"

CARDS: dict[Model, _Card] = {
    "H200": _Card(
        memory_total_bytes=150754820096,
        memory_reserved_bytes=643825664,
        idle_w=78.0,
        limit_w=700.0,
        idle_mhz=345,
        max_mhz=1980,
        nvlink=True,
        fixed={
            "name": "NVIDIA H200",
            "compute_capability": "9.0",
            "temperature_slowdown_c": 89,
            "memory_clock_mhz": 3201,
            "pcie_generation": 5,
            "pcie_generation_max": 5,
            "ecc_uncorrected": 0,
            "ecc_corrected": 0,
            "remapped_rows_pending": False,
            "remapped_rows_failed": False,
            "persistence_mode": True,
        },
        gaps={"fan_pct": _NONE},
    ),
    "RTX 4090": _Card(
        memory_total_bytes=25757220864,
        memory_reserved_bytes=456130560,
        idle_w=22.0,
        limit_w=450.0,
        idle_mhz=210,
        max_mhz=3105,
        nvlink=False,
        fixed={
            "name": "NVIDIA GeForce RTX 4090",
            "compute_capability": "8.9",
            "temperature_slowdown_c": 90,
            "memory_clock_mhz": 10501,
            "pcie_generation": 4,
            "pcie_generation_max": 4,
            "persistence_mode": False,
        },
        gaps=dict.fromkeys(
            (
                "memory_temperature_c",
                "nvlink_rx_bytes_per_s",
                "nvlink_tx_bytes_per_s",
                "ecc_uncorrected",
                "ecc_corrected",
                "remapped_rows_pending",
                "remapped_rows_failed",
                "sm_active_pct",
                "sm_occupancy_pct",
                "tensor_active_pct",
                "dram_active_pct",
            ),
            _NONE,
        ),
    ),
}

_APPETITE: dict[LoadKind, tuple[float, float, float]] = {
    "idle": (0.0, 0.0, 0.0),
    "train": (0.96, 0.62, 0.48),
    "infer": (0.58, 0.71, 0.21),
    "dips": (0.93, 0.58, 0.44),
    "wave": (0.90, 0.52, 0.37),
    # waiting in NCCL: the spinning kernel fills the utilisation and draws next to nothing
    "hang": (0.075, 0.01, 0.0),
}
"""Share of the power range, of the memory bandwidth and of the tensor cores at 100 %."""

_LOST_FIELDS = tuple(
    f
    for f in Gpu.__struct_fields__
    if f not in ("index", "uuid", "name", "pci_bus_id", "numa_node", "state", "age_s", "gaps")
    and f not in ("mig_instances", "unified_memory")
)


def noise(seed: int, step: int) -> float:
    """Between -1 and 1, the same for the same arguments on every machine."""
    x = (seed * 0x9E3779B1 + step * 0x85EBCA77) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    x = ((x ^ (x >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return ((x ^ (x >> 15)) & 0xFFFF) / 32767.5 - 1.0


def sm_pct(load: Load, seed: int, now_s: float) -> float:
    """What the load takes of the SMs now, whole percent as NVML gives it."""
    if load.kind == "idle":
        return 0.0
    wobble = noise(seed, int(now_s * 2.0))
    level = load.level_pct
    phase = (now_s + seed % 7) % load.period_s / load.period_s
    if load.kind == "dips" and phase > 0.85:
        level *= 0.08
    elif load.kind == "wave":
        level *= 0.6 + 0.4 * math.sin(phase * math.tau)
    spread = {"infer": 14.0, "wave": 5.0, "hang": 0.0}.get(load.kind, 2.0)
    return float(round(min(100.0, max(0.0, level + wobble * spread))))


class GpuLoad(Struct, frozen=True):
    """All that runs on one GPU, added up."""

    sm: float = 0.0
    power: float = 0.0
    memory: float = 0.0
    tensor: float = 0.0

    def plus(self, kind: LoadKind, pct: float) -> GpuLoad:
        """With one process more."""
        power, memory, tensor = (share * pct / 100.0 for share in _APPETITE[kind])
        return GpuLoad(
            self.sm + pct, self.power + power, self.memory + memory, self.tensor + tensor
        )


class GpuSimulation:
    """One GPU: what never changes is built once, warmth and energy go on from tick to tick."""

    def __init__(self, gpu: DemoGpu) -> None:
        self.gpu = gpu
        self.card = CARDS[gpu.model]
        self._seed = gpu.index * 101 + 7
        self._fixed = self._identity()
        self._lost = replace(
            self._fixed, state="lost", gaps=dict.fromkeys(_LOST_FIELDS, "gpu_lost")
        )
        self._warmth_c: float | None = None
        self._energy_j = 8_481_318.0 + gpu.index * 402_771.0
        self._last_s = 0.0

    def is_lost(self, now_s: float) -> bool:
        """It has fallen off the bus."""
        return self.gpu.lost_at_s is not None and now_s >= self.gpu.lost_at_s

    def read(self, load: GpuLoad, used_bytes: int, now_s: float) -> Gpu:
        """The GPU at this moment; ``now_s`` never runs backwards."""
        if self.is_lost(now_s):
            return self._lost
        step_s, self._last_s = max(0.0, now_s - self._last_s), now_s
        sm = min(100.0, load.sm)
        power_w, clock_mhz, reasons = self._power(load, now_s)
        temperature_c = self._warm(power_w, step_s, now_s)
        self._energy_j += power_w * step_s
        return replace(
            self._live,
            utilization_pct=sm,
            memory_utilization_pct=float(round(min(100.0, load.memory * 100.0))),
            memory_used_bytes=used_bytes,
            power_w=round(power_w, 1),
            energy_j=float(round(self._energy_j)),
            temperature_c=round(temperature_c),
            sm_clock_mhz=clock_mhz,
            throttle_reasons=reasons,
            **self._extras(load, temperature_c, now_s),
            **self._traffic(load, now_s),
        )

    def _identity(self) -> Gpu:
        gpu = self.gpu
        digits = f"{0x6D3AEDED + gpu.index * 0x1F3D5B79:08x}"[:8]
        fixed = Gpu(
            index=gpu.index,
            uuid=f"GPU-{digits}-bc55-1092-d7e0-7b25a85f{gpu.index:04x}",
            name=self.card.fixed["name"],
            pci_bus_id=gpu.pci_bus_id,
            numa_node=gpu.numa_node,
        )
        self._live = replace(
            fixed,
            memory_total_bytes=self.card.memory_total_bytes,
            memory_reserved_bytes=self.card.memory_reserved_bytes,
            power_limit_w=self.card.limit_w,
            power_default_limit_w=self.card.limit_w,
            sm_clock_max_mhz=self.card.max_mhz,
            performance_state=0,
            pcie_width=16,
            pcie_width_max=16,
            encoder_pct=0.0,
            decoder_pct=0.0,
            mig_enabled=False,
            compute_mode="default",
            gaps=self.card.gaps,
            **self.card.fixed,
        )
        return fixed

    def _power(self, load: GpuLoad, now_s: float) -> tuple[float, int, tuple[str, ...]]:
        card, wobble = self.card, noise(self._seed, int(now_s * 4.0))
        span = card.limit_w - card.idle_w
        throttle = self.gpu.throttle
        if throttle is not None and now_s >= throttle.from_s and load.sm > 0:
            clock = round(card.max_mhz * (throttle.clock_share + wobble * 0.01) / 15) * 15
            return card.limit_w * (throttle.power_share + wobble * 0.004), clock, throttle.reasons
        if load.sm <= 0:
            return card.idle_w + wobble * 0.8 + self._seed % 3, card.idle_mhz, ("gpu_idle",)
        share = min(0.985, load.power + wobble * 0.012)
        clock = (
            card.max_mhz - round(share * 6.5 + wobble * 0.6) * 15 if share > 0.1 else card.max_mhz
        )
        return card.idle_w + max(0.02, share) * span, clock, ()

    def _warm(self, power_w: float, step_s: float, now_s: float) -> float:
        card, throttle = self.card, self.gpu.throttle
        target = 31.0 + self._seed % 4 + 33.0 * power_w / card.limit_w
        if throttle is not None and now_s >= throttle.from_s - 20.0:
            target = float(throttle.temperature_c)
        if self._warmth_c is None:
            self._warmth_c = target
        # a heat sink follows its chip with a time constant of about eight seconds
        self._warmth_c += (target - self._warmth_c) * (1.0 - math.exp(-step_s / 8.0))
        return self._warmth_c

    def _extras(self, load: GpuLoad, temperature_c: float, now_s: float) -> dict[str, Any]:
        if self.gpu.model != "H200":
            return {"fan_pct": min(100, max(0, round((temperature_c - 30.0) * 1.7)))}
        wobble = noise(self._seed + 1, int(now_s * 2.0))
        busy = min(100.0, load.sm)
        return {
            "memory_temperature_c": round(temperature_c + 6.0 + load.memory * 8.0),
            "sm_active_pct": round(busy * 0.91 + wobble if busy else 0.0, 1),
            "sm_occupancy_pct": round(busy * 0.31 + wobble if busy else 0.0, 1),
            "tensor_active_pct": round(max(0.0, load.tensor * 100.0 + wobble * 2.0), 1),
            "dram_active_pct": round(max(0.04, load.memory * 100.0 + wobble * 2.0), 1),
        }

    def _traffic(self, load: GpuLoad, now_s: float) -> dict[str, Any]:
        wobble = 1.0 + 0.2 * noise(self._seed + 2, int(now_s * 2.0))
        rx = 4.0e6 + load.power * 1.9e9 * wobble
        traffic: dict[str, Any] = {
            "pcie_rx_bytes_per_s": float(round(rx, -4)),
            "pcie_tx_bytes_per_s": float(round(rx * 0.31, -4)),
        }
        if self.card.nvlink:
            # collectives are training's; what serves or waits sends little
            link = load.tensor * 3.1e11 * wobble if load.tensor > 0.3 else load.tensor * 1.1e9
            traffic["nvlink_rx_bytes_per_s"] = float(round(link, -4))
            traffic["nvlink_tx_bytes_per_s"] = float(round(link * 0.997, -4))
        return traffic
