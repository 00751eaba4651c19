"""CPU, memory and disks from text as the kernel writes it, and from this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cockpit.collect import host
from cockpit.collect.host import Counters, HostSource
from cockpit.model.text import GIB

MEMINFO = b"""MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    400 kB
SwapTotal:        50 kB
SwapFree:         20 kB
HugePages_Total:   0
"""
DISKSTATS = b"""   7       0 loop0 9 0 900 0 9 0 900 0 0 0 0
 259       0 nvme0n1 1 0 100 0 1 0 10 0 0 0 0
 259       1 nvme0n1p1 1 0 100 0 1 0 10 0 0 0 0
   8       0 sda 1 0 7 0 1 0 3 0 0 0 0
   8       1 sda1 1 0 7 0 1 0 3 0 0 0 0
 253       0 dm-0 1 0 100 0 1 0 10 0 0 0 0
   9       0 md127 1 0 100 0 1 0 10 0 0 0 0
 254       0 vda 1 0 1 0 1 0 1 0 0 0 0
"""


def test_used_is_total_without_what_is_available() -> None:
    assert host.memory_of(MEMINFO) == (1000 * 1024, 600 * 1024, 30 * 1024)
    assert host.memory_of(b"MemTotal: 5 kB\n") == (5 * 1024, None, None)


def test_partitions_and_mapped_devices_are_not_counted_twice() -> None:
    assert host.disk_sectors(DISKSTATS) == (108, 14)


def test_rates_lie_between_two_readings() -> None:
    before = Counters(10.0, 100, 10, 1000, 0, 0)
    now = Counters(12.0, 150, 30, 1200, 2000, 400)
    assert host.rates(before, now) == (25.0, 10.0, 512000, 102400)
    assert host.rates(None, now) == (None, None, None, None)
    assert host.rates(now, now) == (None, None, None, None)
    backwards = Counters(12.0, 150, 5, 1200, 0, 0)
    assert host.rates(before, backwards)[1] == 0.0


def test_the_containers_limit_counts_and_its_page_cache_does_not(tmp_path: Path) -> None:
    inner = tmp_path / "cg" / "job"
    inner.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/job/step\n")
    (inner / "memory.max").write_text(f"{8 * GIB}\n")
    (inner / "memory.current").write_text(f"{5 * GIB}\n")
    (inner / "memory.stat").write_text(f"anon 1\ninactive_file {2 * GIB}\n")
    (tmp_path / "cg" / "memory.max").write_text("max\n")
    limit = host.cgroup_limit(str(tmp_path), str(tmp_path / "cg"))
    assert limit is not None
    assert limit.usage(64 * GIB) == (8 * GIB, 3 * GIB)
    assert limit.usage(4 * GIB) is None


def test_the_first_generation_of_cgroups_has_other_names(tmp_path: Path) -> None:
    folder = tmp_path / "cg" / "memory" / "docker"
    folder.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/docker\n1:cpu:/docker\n0::/\n")
    (folder / "memory.limit_in_bytes").write_text(str(GIB))
    (folder / "memory.usage_in_bytes").write_text("700")
    (folder / "memory.stat").write_text("inactive_file 9\ntotal_inactive_file 100\n")
    limit = host.cgroup_limit(str(tmp_path), str(tmp_path / "cg"))
    assert limit is not None
    assert limit.usage(2 * GIB) == (GIB, 600)


def test_this_machine() -> None:
    source = HostSource()
    first = source.read()
    assert first.cpu_pct is None
    assert first.gaps["cpu_pct"] == first.gaps["disk_read_bytes_per_s"] == "not_read_yet"
    time.sleep(0.1)
    second = source.read()
    assert second.cpu_pct is not None
    assert 0 <= second.cpu_pct <= 100
    assert second.cpu_count == os.cpu_count()
    assert second.memory_total_bytes
    assert second.memory_used_bytes
    assert 0 < second.memory_used_bytes < second.memory_total_bytes
    assert second.disk_read_bytes_per_s is not None


def test_files_that_are_not_there_are_gaps(tmp_path: Path) -> None:
    read = HostSource(str(tmp_path), shm=str(tmp_path / "none")).read()
    assert (read.cpu_pct, read.memory_total_bytes, read.shm_total_bytes) == (None, None, None)
    assert read.gaps["memory_total_bytes"] == "gone"
    assert read.gaps["shm_total_bytes"] == "not_supported"


def test_kubernetes_is_told_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert host.container_kind() == "kubernetes"
