"""Our numbers against nvidia-smi's on the same real GPU, under load."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cockpit.model.gpu import THROTTLE_REASONS
from cockpit.model.snapshot import Snapshot, decode
from tests.gpu import smi

FIXED = [
    "index", "uuid", "name", "pci.bus_id", "driver_version", "memory.total", "memory.reserved",
    "power.limit", "power.default_limit", "compute_cap", "clocks.max.sm",
    "pcie.link.gen.max", "pcie.link.width.max", "mig.mode.current", "compute_mode",
    "persistence_mode", "ecc.errors.uncorrected.volatile.total",
]  # fmt: skip
MOVING = {
    "utilization.gpu": ("utilization_pct", 12.0),
    "utilization.memory": ("memory_utilization_pct", 12.0),
    "power.draw.instant": ("power_w", 60.0),
    "temperature.gpu": ("temperature_c", 2.0),
    "temperature.memory": ("memory_temperature_c", 2.0),
    "clocks.sm": ("sm_clock_mhz", 90.0),
    "clocks.mem": ("memory_clock_mhz", 1.0),
    "pcie.link.gen.current": ("pcie_generation", 0.0),
    "pcie.link.width.current": ("pcie_width", 0.0),
}
"""nvidia-smi's field → ours, and how far beyond both readings ours may lie."""


GPM = ("sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct")


def snapshot() -> Snapshot:
    run = [sys.executable, "-m", "cockpit", "snapshot", "--json"]
    return decode(subprocess.run(run, capture_output=True, check=True).stdout)


@pytest.mark.usefixtures("trainer")
def test_identity_and_limits_are_equal() -> None:
    before, ours = smi.query("gpu", FIXED), snapshot()
    assert len(ours.gpus) == len(before)
    for theirs, gpu in zip(before, ours.gpus, strict=True):
        assert gpu.index == int(theirs["index"])
        assert gpu.uuid == theirs["uuid"]
        assert gpu.name == theirs["name"]
        assert gpu.pci_bus_id is not None
        assert gpu.pci_bus_id.lower().endswith(theirs["pci.bus_id"].lower()[-12:])
        assert ours.driver.version == theirs["driver_version"]
        assert gpu.memory_total_bytes == int(theirs["memory.total"]) * smi.MIB
        assert gpu.compute_capability == theirs["compute_cap"]
        assert gpu.power_limit_w == float(theirs["power.limit"])
        assert gpu.power_default_limit_w == float(theirs["power.default_limit"])
        assert gpu.sm_clock_max_mhz == int(theirs["clocks.max.sm"])
        assert gpu.pcie_generation_max == int(theirs["pcie.link.gen.max"])
        assert gpu.pcie_width_max == int(theirs["pcie.link.width.max"])
        assert gpu.compute_mode == theirs["compute_mode"].lower()
        assert gpu.persistence_mode == (theirs["persistence_mode"] == "Enabled")
        assert gpu.mig_enabled == (theirs["mig.mode.current"] == "Enabled")
        reserved = gpu.memory_reserved_bytes
        assert reserved is not None
        assert abs(reserved - int(theirs["memory.reserved"]) * smi.MIB) <= 2 * smi.MIB


@pytest.mark.usefixtures("trainer")
def test_memory_and_processes_agree_within_two_mib() -> None:
    used_before, apps_before = smi.used_bytes(), smi.apps()
    ours = snapshot()
    used_after = smi.used_bytes()
    used = ours.gpus[0].memory_used_bytes
    assert used is not None
    assert min(used_before, used_after) - 2 * smi.MIB <= used
    assert used <= max(used_before, used_after) + 2 * smi.MIB
    mine = {one.pid: one.vram_bytes or 0 for one in ours.processes}
    assert set(mine) == set(apps_before)
    for pid, size in apps_before.items():
        assert abs(mine[pid] - size) <= 2 * smi.MIB
    for one in ours.ledger:
        parts = one.free_bytes + one.driver_reserved_bytes + one.unaccounted_bytes
        assert parts + sum(share.bytes for share in one.processes) == one.total_bytes


@pytest.mark.usefixtures("trainer")
def test_moving_values_lie_within_the_readings_taken_around_ours() -> None:
    # At the power cap the SM clock jumps by 100 MHz several times a second, so nvidia-smi is asked
    # again and again while ours is read.
    with ThreadPoolExecutor(1) as pool:
        theirs = [smi.query("gpu", list(MOVING))]
        reading = pool.submit(snapshot)
        while not reading.done():
            theirs.append(smi.query("gpu", list(MOVING)))
    theirs.append(smi.query("gpu", list(MOVING)))
    wrong = []
    for number, gpu in enumerate(reading.result().gpus):
        for name, (field, slack) in MOVING.items():
            known = [float(one[number][name]) for one in theirs if one[number][name] is not None]
            value = getattr(gpu, field)
            if known and (value is None or not min(known) - slack <= value <= max(known) + slack):
                wrong.append(f"{field}: {value}, nvidia-smi {min(known)} … {max(known)}")
    assert not wrong


@pytest.mark.usefixtures("trainer")
def test_throttle_reasons_are_those_of_nvidia_smi() -> None:
    names = [f"clocks_event_reasons.{name}" for name in ("active", "gpu_idle", "sw_power_cap")]
    theirs, gpu = smi.query("gpu", names)[0], snapshot().gpus[0]
    assert gpu.throttle_reasons is not None
    assert set(gpu.throttle_reasons) <= set(THROTTLE_REASONS.values())
    assert ("gpu_idle" in gpu.throttle_reasons) == (
        theirs["clocks_event_reasons.gpu_idle"] == "Active"
    )


@pytest.mark.usefixtures("trainer")
def test_activity_is_measured_on_a_gpu_that_has_gpm() -> None:
    gpu = snapshot().gpus[0]
    if float(gpu.compute_capability or 0) < 9.0:
        pytest.skip("GPM needs Hopper or newer")
    print({name: getattr(gpu, name) for name in GPM}, {n: gpu.gaps.get(n) for n in GPM})
    assert gpu.sm_active_pct is not None
    assert gpu.tensor_active_pct is not None
    assert gpu.sm_active_pct > 30
    assert gpu.tensor_active_pct > 5
