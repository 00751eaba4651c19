"""MIG instances of one GPU and where the processes that run on them are listed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cockpit.collect import nvml
from cockpit.collect.nvml import Handle, NvmlError
from cockpit.model.gpu import MigInstance

_PROFILE = re.compile(r"MIG (\S+)")


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance with its device handle."""

    handle: Handle
    model: MigInstance


def is_enabled(handle: Handle) -> bool | None:
    """None: this GPU cannot be cut up. Raises NvmlError when the GPU or the driver is gone."""
    try:
        return bool(nvml.ask("nvmlDeviceGetMigMode", handle)[0])
    except NvmlError as error:
        if error.is_lost or error.is_driver_gone:
            raise
        return None


def instances(handle: Handle) -> tuple[Instance, ...]:
    """All instances; indices are NVML's. Raises NvmlError."""
    found = []
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle)):
        try:
            child = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        except NvmlError as error:
            if error.is_nothing_found or error.name == "invalid_argument":
                continue  # indices may have holes after an instance was destroyed
            raise
        found.append(Instance(child, _describe(child, index)))
    return tuple(found)


def _describe(handle: Handle, index: int) -> MigInstance:
    name = nvml.text(_or_none("nvmlDeviceGetName", handle)) or ""
    profile = _PROFILE.search(name)
    memory = _or_none("nvmlDeviceGetMemoryInfo", handle)
    return MigInstance(
        index=index,
        uuid=nvml.text(_or_none("nvmlDeviceGetUUID", handle)),
        gpu_instance=_or_none("nvmlDeviceGetGpuInstanceId", handle),
        compute_instance=_or_none("nvmlDeviceGetComputeInstanceId", handle),
        profile=profile.group(1) if profile else None,
        memory_total_bytes=None if memory is None else memory.total,
        memory_used_bytes=None if memory is None else memory.used,
    )


def _or_none(name: str, handle: Handle) -> Any:
    try:
        return nvml.ask(name, handle)
    except NvmlError as error:
        if error.is_lost or error.is_driver_gone:
            raise
        return None


def index_of(
    found: tuple[Instance, ...], gpu_instance: int | None, compute_instance: int | None
) -> int | None:
    """Index of the instance that a process list names by its two ids."""
    same_gpu = [i.model for i in found if i.model.gpu_instance == gpu_instance]
    for model in same_gpu:
        if model.compute_instance == compute_instance:
            return model.index
    return same_gpu[0].index if len(same_gpu) == 1 else None
