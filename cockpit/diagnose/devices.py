"""Which GPUs a job sees, and which of them nobody uses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cockpit.diagnose.visible_devices import named
from cockpit.model.checkup_facts import CudaDevice
from cockpit.model.gpu import Gpu
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean, plural, size

UNLISTED_BYTES = 1 << 30
"""Used memory without an owner that is still the driver's own (0 to 500 MiB are normal)."""


class Visible(NamedTuple):
    """What CUDA_VISIBLE_DEVICES leaves over."""

    variable: str | None
    """None: not set, all GPUs."""
    gpus: tuple[int, ...]
    """NVML indices in the order of the list; the ordinals of CUDA."""
    bad: str | None = None
    """The first entry that names no device: the list ends before it."""
    mig: str | None = None
    """UUID of the one MIG instance that is used."""
    dropped: tuple[str, ...] = ()
    """Entries that are not used, the bad one first."""


def resolve(variable: str | None, gpus: Sequence[Gpu]) -> Visible:
    """As CUDA reads the variable: numbers, UUIDs or their unique beginnings, MIG UUIDs.

    The first entry says which of the three; the list ends at the first that names no device; a
    device named twice leaves none.
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    if variable is None:
        return Visible(None, tuple(gpu.index for gpu in gpus))
    entries = [entry.strip() for entry in variable.split(",")]
    if entries[0].startswith("MIG-"):
        return _mig(variable, entries, gpus)
    found: list[int] = []
    for place, entry in enumerate(entries):
        index = named(entry, entries[0], gpus)
        if index is None:
            return Visible(variable, tuple(found), entry, dropped=tuple(entries[place:]))
        if index in found:
            return Visible(variable, (), entry, dropped=tuple(entries))
        found.append(index)
    return Visible(variable, tuple(found))


def _mig(variable: str, entries: Sequence[str], gpus: Sequence[Gpu]) -> Visible:
    """One instance a process, whatever else is in the list."""
    for gpu in gpus:
        for one in gpu.mig_instances:
            old = f"MIG-{gpu.uuid}/{one.gpu_instance}/{one.compute_instance}"
            if entries[0] == old or (one.uuid or "").startswith(entries[0]):
                return Visible(variable, (gpu.index,), None, one.uuid, tuple(entries[1:]))
    return Visible(variable, (), entries[0], dropped=tuple(entries))


def gpu_of(device: CudaDevice, gpus: Sequence[Gpu]) -> Gpu | None:
    """The NVML row of a CUDA device: by UUID, that of a MIG instance too, else by bus id."""
    uuid = (device.uuid or "").lower()
    for gpu in gpus:
        uuids = [gpu.uuid, *(one.uuid for one in gpu.mig_instances)]
        if uuid and any((one or "").lower().partition("-")[2] == uuid for one in uuids):
            return gpu
    bus = _bus(device.pci_bus_id)
    return next((gpu for gpu in gpus if bus and _bus(gpu.pci_bus_id) == bus), None)


def _bus(text: str | None) -> str:
    """``0000:1b:00.0``: CUDA writes four digits of the domain, NVML eight."""
    return (text or "").lower()[-12:]


def in_use(gpu: Gpu, snapshot: Snapshot) -> str | None:
    """Why nothing of ours may compute on a GPU now; None: nobody uses it."""
    if gpu.state != "ok":
        return f"GPU {gpu.index} is {gpu.state}"
    shares = [
        (one, use)
        for one in snapshot.processes
        for use in one.devices
        if use.gpu == gpu.index and use.vram_bytes != 0
    ]
    if shares:
        pids = ", ".join(str(one.pid) for one, _ in shares[:4])
        more = f" and {len(shares) - 4} more" if len(shares) > 4 else ""
        first = shares[0][0]
        whose = f", {clean(first.user)}'s" if first.user and len(shares) == 1 else ""
        return f"GPU {gpu.index} is in use by pid {pids}{more}{whose}"
    used = gpu.memory_used_bytes or 0
    if used > UNLISTED_BYTES and not gpu.unified_memory:
        return f"GPU {gpu.index} is in use by somebody who cannot be seen here ({size(used)})"
    return None


def names(gpus: Sequence[int]) -> str:
    """``GPU 0``, ``GPUs 0, 1``, ``8 GPUs``."""
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return plural(len(gpus), "GPU") if len(gpus) > 4 else "GPUs " + ", ".join(map(str, gpus))
