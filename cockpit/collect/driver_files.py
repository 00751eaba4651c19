"""What the kernel's files say about the NVIDIA driver, also when NVML says nothing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The circumstances of a driver that does not work."""

    module_version: str | None
    """Of the loaded kernel module; None: not loaded (or hidden from a container)."""
    in_container: bool
    in_wsl: bool
    has_device_files: bool
    """/dev/nvidiactl exists."""
    worked_before: bool = False
    """The driver has answered in this engine's life."""


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU that the kernel module has, lost or not."""

    bus_id: str
    name: str | None
    uuid: str | None


def read_facts(root: Path = ROOT) -> DriverFacts:
    """Reads four small files; 0.2 ms."""
    return DriverFacts(
        module_version=module_version(root),
        in_container=in_container(root),
        in_wsl=in_wsl(root),
        has_device_files=(root / "dev/nvidiactl").exists() or (root / "dev/dxg").exists(),
    )


def module_version(root: Path = ROOT) -> str | None:
    """Such as ``580.159.04``, of the module that is loaded now (not of the one on disk)."""
    short = _read(root / "sys/module/nvidia/version").strip()
    if short:
        return short
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", _read(root / "proc/driver/nvidia/version"))
    return found.group(1) if found else None


def in_wsl(root: Path = ROOT) -> bool:
    """The Windows driver behind /dev/dxg answers only a part of NVML."""
    return "microsoft" in _read(root / "proc/version").lower()


def in_container(root: Path = ROOT) -> bool:
    """Docker, podman, Kubernetes or LXC leave one of these marks."""
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    if "KUBERNETES_SERVICE_HOST" in os.environ or "container" in os.environ:
        return True
    return bool(re.search(r"docker|kubepods|lxc|containerd", _read(root / "proc/1/cgroup")))


def known_gpus(root: Path = ROOT) -> list[KnownGpu]:
    """In the order of their bus ids, which is NVML's order too."""
    folder = root / "proc/driver/nvidia/gpus"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [_known_gpu(name, _read(folder / name / "information")) for name in names]


def _known_gpu(bus_id: str, information: str) -> KnownGpu:
    model = re.search(r"^Model:\s*(.+?)\s*$", information, re.MULTILINE)
    uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", information, re.MULTILINE)
    return KnownGpu(
        bus_id.lower(), model.group(1) if model else None, uuid.group(1) if uuid else None
    )


def host_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """total, used (total - available), bytes: the memory of a GPU that shares the CPU's."""
    found = dict(re.findall(r"^(\w+):\s*(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE))
    if "MemTotal" not in found or "MemAvailable" not in found:
        return None
    total, available = int(found["MemTotal"]) * 1024, int(found["MemAvailable"]) * 1024
    return total, total - available


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
