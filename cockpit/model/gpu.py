"""One GPU, its MIG instances, the links between GPUs, and the driver under them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

GpuState = Literal["ok", "stale", "lost"]

THROTTLE_REASONS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bit of nvmlDeviceGetCurrentClocksEventReasons → name in ``nvidia-smi --help-query-gpu``."""


class MigInstance(Struct, frozen=True, kw_only=True):
    """One MIG compute instance; NVML gives no utilisation for it."""

    index: int
    uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None
    """Such as ``3g.40gb``, from the device name."""
    memory_total_bytes: int | None
    memory_used_bytes: int | None


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU at one moment. Every field that could not be read is None and named in ``gaps``."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    numa_node: int | None = None
    energy_j: float | None = None
    """Since the driver was loaded (nvmlDeviceGetTotalEnergyConsumption)."""
    state: GpuState = "ok"
    """``stale``: the last reading came late, values are ``age_s`` old. ``lost``: GPU_IS_LOST."""
    age_s: float = 0.0
    """Age of the moving values, seconds."""
    compute_capability: str | None = None
    """Such as ``9.0``."""
    utilization_pct: float | None = None
    """Share of time in which any kernel ran: 100 does not mean that the GPU is full."""
    memory_utilization_pct: float | None = None
    """Share of time in which memory was read or written: not how full it is."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Without the driver's reserve, as nvidia-smi shows it (memory v2)."""
    memory_reserved_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_limit_w: float | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    memory_temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    fan_pct: int | None = None
    performance_state: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Names of :data:`THROTTLE_REASONS`; an empty tuple: none, None: not known."""
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    encoder_pct: float | None = None
    decoder_pct: float | None = None
    ecc_uncorrected: int | None = None
    """Volatile: since the driver was loaded."""
    ecc_corrected: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    sm_active_pct: float | None = None
    """GPM: share of SM-cycles with at least one warp."""
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    compute_mode: str | None = None
    """``default``, ``exclusive_process`` or ``prohibited``."""
    persistence_mode: bool | None = None
    unified_memory: bool = False
    """CPU and GPU share one memory (GB10, Jetson): the memory fields are then the host's."""
    gaps: dict[str, str] = {}


class TopologyLink(Struct, frozen=True, kw_only=True):
    """How two GPUs of the machine reach each other (``a < b``)."""

    a: int
    b: int
    level: str | None
    """INTERNAL, PIX, PXB, PHB, NODE or SYS, as ``nvidia-smi topo -m`` prints the PCIe way."""
    nvlinks: int | None
    """Active NVLinks (to each other or to the same switches); 0: none."""
    p2p: str | None
    """``ok`` or NVML's reason why peer reads do not work, such as ``chipset_not_supported``."""


class DriverError(Struct, frozen=True, kw_only=True):
    """Why NVML cannot be used."""

    code: str
    """NVML's return name in lower case without its prefix, or ``no_devices``, ``no_such_gpu``."""
    message: str
    advice: tuple[str, ...] = ()


class Driver(Struct, frozen=True, kw_only=True):
    """The NVIDIA driver as NVML names it."""

    version: str | None = None
    cuda_version: str | None = None
    """The newest CUDA that the driver serves, such as ``13.0``."""
    nvml_version: str | None = None
    error: DriverError | None = None
