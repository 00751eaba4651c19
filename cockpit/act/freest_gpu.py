"""Which GPU a run would best be moved to, by one snapshot. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cockpit.model.gpu import Gpu
from cockpit.model.snapshot import Snapshot


def freest_gpu(snapshot: Snapshot, except_gpus: Collection[int] = ()) -> Gpu | None:
    """The GPU on which nobody computes and most memory is free; None: there is none.

    Not one that is lost, stale, closed to new processes (compute mode), cut into MIG instances, or
    of unknown memory. Desktop clients (graphics) do not count as computing.
    """
    busy = _computing(snapshot)
    fit = [
        (free, -gpu.index, gpu)
        for gpu in snapshot.gpus
        if gpu.index not in busy and gpu.index not in except_gpus and _open(gpu)
        if (free := free_bytes(gpu)) is not None
    ]
    return max(fit, key=lambda one: one[:2])[2] if fit else None


def free_bytes(gpu: Gpu) -> int | None:
    """Total less used and the driver's reserve; None: not known, or shared with the host."""
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None or gpu.unified_memory:
        return None
    return gpu.memory_total_bytes - gpu.memory_used_bytes - (gpu.memory_reserved_bytes or 0)


def visible_devices(gpu: Gpu, snapshot: Snapshot, environment: Mapping[str, str]) -> str:
    """The value for CUDA_VISIBLE_DEVICES.

    CUDA counts the fastest first, NVML by the bus: the index is only the same with
    CUDA_DEVICE_ORDER=PCI_BUS_ID or where all GPUs are one model. Else the UUID.
    """
    models = {one.name for one in snapshot.gpus}
    same_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or (
        len(models) == 1 and None not in models
    )
    return str(gpu.index) if same_order or gpu.uuid is None else gpu.uuid


def _computing(snapshot: Snapshot) -> set[int]:
    return {
        use.gpu
        for process in snapshot.processes
        if process.kind != "graphics"
        for use in process.devices
    }


def _open(gpu: Gpu) -> bool:
    return gpu.state == "ok" and not gpu.mig_enabled and gpu.compute_mode != "prohibited"
