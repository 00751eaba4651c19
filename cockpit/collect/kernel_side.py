"""The kernel's side of the driver, without NVML: PCI devices, modules, device files."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from pathlib import Path

from cockpit import procfs
from cockpit.collect.driver_files import in_wsl, module_version
from cockpit.model.checkup_facts import DeviceNode, KernelFacts, PciDevice

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers (pci_ids.h); 0x0680 is the NVSwitch's."""
SWITCH_CLASS = "0x0680"
FABRIC_MANAGER = ("nv-fabricmanage", "nv-fabricmanager", "nvidia-fabricma")
"""comm keeps 15 bytes."""
_MODULE = re.compile(r"(?:nvidia\w*|nouveau) ")
_NODE = re.compile(r"nvidia(?:\d+|ctl|-uvm)$")
ROOT = Path("/")


def read_kernel(root: Path = ROOT) -> KernelFacts:
    """Small files of /sys and /proc, and the index of the running kernel's modules."""
    release = os.uname().release
    devices = _pci_devices(root / "sys/bus/pci/devices")
    version_file = _read(root / "proc/driver/nvidia/version")
    version = module_version(root)
    switches = [one for one, kind in devices or () if kind.startswith(SWITCH_CLASS)]
    gpus = [one for one, kind in devices or () if kind.startswith(GPU_CLASSES)]
    return KernelFacts(
        release=release,
        gpus=None if devices is None else tuple(gpus),
        module_version=version,
        open_module="Open Kernel Module" in version_file if version_file else None,
        modules=tuple(
            line.split()[0]
            for line in _read(root / "proc/modules").splitlines()
            if _MODULE.match(line)
        ),
        module_on_disk=_module_on_disk(root / "lib/modules" / release),
        nvswitches=len(switches),
        fabric_manager=_fabric_manager(str(root / "proc")),
        wsl=in_wsl(root),
        selinux=_selinux(root),
    )


def read_nodes(root: str = "/") -> tuple[DeviceNode, ...]:
    """/dev/nvidia* below a root directory, as a process in it sees them."""
    folder = os.path.join(root, "dev")
    try:
        names = sorted(name for name in os.listdir(folder) if _NODE.match(name))
    except OSError:
        return ()
    found = []
    for name in names:
        try:
            one = os.stat(os.path.join(folder, name))
        except OSError:
            continue  # gone in this moment
        found.append(
            DeviceNode(
                path=f"/dev/{name}",
                mode=stat.filemode(one.st_mode),
                owner=_name(pwd.getpwuid, one.st_uid),
                group=_name(grp.getgrgid, one.st_gid),
            )
        )
    return tuple(found)


def _pci_devices(folder: Path) -> list[tuple[PciDevice, str]] | None:
    """NVIDIA's devices with their class; None: there is no PCI bus in this sysfs."""
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return None
    found = []
    for address in addresses:
        here = folder / address
        if _read(here / "vendor").strip() != NVIDIA:
            continue
        driver = procfs.read_link(str(here / "driver"))
        device = PciDevice(
            address=address,
            device=_read(here / "device").strip().removeprefix("0x"),
            driver=os.path.basename(driver) if isinstance(driver, str) else None,
        )
        found.append((device, _read(here / "class").strip()))
    return found


def _module_on_disk(folder: Path) -> bool | None:
    """modules.dep lists every module of a kernel (depmod(8)); None: a container has none."""
    listed = _read(folder / "modules.dep")
    return bool(re.search(r"(?:^|/)nvidia\.ko", listed, re.M)) if listed else None


def _fabric_manager(proc: str) -> bool | None:
    if any(stat.name.startswith(FABRIC_MANAGER) for _, stat in procfs.all_stats(proc)):
        return True
    return False if procfs.in_initial_namespace(proc) else None


def _selinux(root: Path) -> bool:
    """A container does not see the file; there the label of its processes tells."""
    enforce = _read(root / "sys/fs/selinux/enforce").strip()
    return enforce == "1" if enforce else ":container" in _read(root / "proc/self/attr/current")


def _name(find: object, number: int) -> str:
    try:
        return str(find(number)[0])  # type: ignore[operator]
    except KeyError:
        return str(number)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
