"""PCI devices, modules and device files from trees as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.collect.job_limits import read_limits
from cockpit.collect.kernel_side import read_kernel, read_nodes
from cockpit.model.text import GIB


def pci(root: Path, address: str, kind: str, driver: str | None, vendor: str = "0x10de") -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("device", "0x2335")):
        (folder / name).write_text(f"{value}\n")
    if driver:
        target = root / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(target)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_gpus_their_drivers_and_the_switches_are_told_apart(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1b:00.0", "0x030200", "nvidia")
    pci(tmp_path, "0000:1c:00.0", "0x030000", "nouveau")
    pci(tmp_path, "0000:1c:00.1", "0x040300", "snd_hda_intel")  # the sound of a display card
    pci(tmp_path, "0000:1d:00.0", "0x068000", "nvidia-nvswitch")
    pci(tmp_path, "0000:00:02.0", "0x030000", "i915", vendor="0x8086")
    facts = read_kernel(tmp_path)
    assert [(one.address, one.driver) for one in facts.gpus or ()] == [
        ("0000:1b:00.0", "nvidia"),
        ("0000:1c:00.0", "nouveau"),
    ]
    assert facts.nvswitches == 1


@pytest.mark.parametrize(("word", "is_open"), [("Open Kernel Module", True), ("Kernel", False)])
def test_the_loaded_module_is_open_or_not(tmp_path: Path, word: str, is_open: bool) -> None:
    line = f"NVRM version: NVIDIA UNIX {word} for x86_64  580.159.04  Release Build\n"
    write(tmp_path, "proc/driver/nvidia/version", line)
    write(tmp_path, "proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 - Live 0x0\next4 1\n")
    facts = read_kernel(tmp_path)
    assert (facts.module_version, facts.open_module) == ("580.159.04", is_open)
    assert facts.modules == ("nvidia_uvm", "nvidia")


def test_a_module_may_lie_on_disk_without_being_loaded(tmp_path: Path) -> None:
    folder = f"lib/modules/{os.uname().release}"
    assert read_kernel(tmp_path).module_on_disk is None
    write(tmp_path, f"{folder}/modules.dep", "kernel/fs/ext4.ko:\n")
    assert read_kernel(tmp_path).module_on_disk is False
    write(tmp_path, f"{folder}/modules.dep", "kernel/fs/ext4.ko:\nupdates/dkms/nvidia.ko.zst: x\n")
    assert read_kernel(tmp_path).module_on_disk is True
    assert read_kernel(tmp_path).module_version is None


def test_without_a_pci_bus_nothing_is_said_of_gpus(tmp_path: Path) -> None:
    assert read_kernel(tmp_path).gpus is None


def test_selinux_is_told_by_its_own_file_and_in_a_container_by_the_label(tmp_path: Path) -> None:
    assert not read_kernel(tmp_path).selinux
    write(tmp_path, "proc/self/attr/current", "docker-default (enforce)\n")  # AppArmor's
    assert not read_kernel(tmp_path).selinux
    write(tmp_path, "proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\0")
    assert read_kernel(tmp_path).selinux
    write(tmp_path, "sys/fs/selinux/enforce", "0")
    assert not read_kernel(tmp_path).selinux


def test_device_files_are_those_of_the_jobs_root(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "null", "nvidia0x"):
        (tmp_path / "dev" / name).touch(mode=0o660)
    found = read_nodes(str(tmp_path))
    assert [one.path for one in found] == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert found[0].mode == "-rw-r-----" or found[0].mode.startswith("-rw-")
    assert read_nodes(str(tmp_path / "none")) == ()


def test_limits_are_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/job/step\n")
    write(tmp_path, "proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\n")
    write(tmp_path, "cg/job/memory.max", f"{8 * GIB}\n")
    write(tmp_path, "cg/job/memory.current", f"{3 * GIB}\n")
    write(tmp_path, "cg/job/memory.stat", "inactive_file 0\n")
    write(tmp_path, "cg/job/cpu.max", "150000 100000\n")
    write(tmp_path, "cg/job/cpu.stat", "nr_periods 200\nnr_throttled 50\n")
    write(tmp_path, "cg/job/step/cpu.max", "max 100000\n")
    (tmp_path / "dev/shm").mkdir(parents=True)
    limits = read_limits(None, str(tmp_path), str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert (limits.memory_limit_bytes, limits.memory_used_bytes) == (8 * GIB, 3 * GIB)
    assert (limits.cpu_quota, limits.throttled_share) == (1.5, 0.25)
    assert limits.shm_total_bytes
    assert limits.cpus == len(os.sched_getaffinity(0))


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "3:cpu,cpuacct:/job\n")
    write(tmp_path, "cg/cpu/job/cpu.cfs_quota_us", "-1\n")
    write(tmp_path, "cg/cpu/job/cpu.cfs_period_us", "100000\n")
    limits = read_limits(None, str(tmp_path), str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert limits.cpu_quota is None
    write(tmp_path, "cg/cpu/job/cpu.cfs_quota_us", "400000\n")
    limits = read_limits(None, str(tmp_path), str(tmp_path / "proc"), str(tmp_path / "cg"))
    assert limits.cpu_quota == 4.0


def test_limits_of_a_process_are_read_from_its_files() -> None:
    limits = read_limits(os.getpid(), f"/proc/{os.getpid()}/root")
    assert limits.shm_total_bytes
    assert limits.cpus
