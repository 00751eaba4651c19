"""Each rule: a scene in, the finding out, in time and with numbers. One row a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from cockpit.diagnose.live.look import CpuRun, Worker
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.model.event import Event
from cockpit.model.gpu import Driver, DriverError, TopologyLink
from cockpit.model.process import DeviceUse, Stray
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import GIB, MIB
from cockpit.model.time import iso
from tests.diagnose.live.scenes import (
    ASLEEP,
    BACKWARD,
    FORWARD,
    ITEM,
    LOADER,
    LOADING,
    ZERO_S,
    ScriptedLooks,
    a_gpu,
    a_host,
    a_process,
    a_rank,
    a_run,
    a_snapshot,
    idle,
    play,
    starving,
    waiting_in_nccl,
)

Make = Callable[[float], Snapshot]


class Row(NamedTuple):
    """A scene and what has to be said about it."""

    cause: str
    make: Make
    by_s: float
    """At the latest."""
    says: str
    """In title or evidence."""
    looks: Callable[[], ScriptedLooks] | None = None
    gpu: int | None = 0
    pid: int | None = None
    also: frozenset[str] = frozenset()
    """Other causes that this scene may name."""
    seconds: float = 90.0


def trainer(**values: Any) -> Make:
    """One trainer on one GPU that starves."""
    return lambda second: a_snapshot(
        second, starving(), processes=(a_process(cpu_pct=5.0, sm_pct=8.0, **values),)
    )


def launching(second: float) -> Snapshot:
    gpu = starving(util=97.0, sm_active_pct=6.0)
    return a_snapshot(second, gpu, processes=(a_process(cpu_pct=101.0),))


def launching_without_gpm(second: float) -> Snapshot:
    gpu = starving(util=97.0, sm_active_pct=None, dram_active_pct=None)
    return a_snapshot(second, gpu, processes=(a_process(cpu_pct=101.0),))


def leaking(second: float) -> Snapshot:
    steps = int(3 * second)
    size = 20 * GIB + 100 * MIB * steps + (steps * 37 % 11) * 20 * MIB
    run = a_run(step=steps, allocated_bytes=size, reserved_bytes=size + 2 * GIB)
    gpu = a_gpu(memory_used_bytes=size + 3 * GIB)
    return a_snapshot(second, gpu, processes=(a_process(),), runs=(run,))


def leaking_unattached(second: float) -> Snapshot:
    gib = 20 + 0.5 * second
    gpu = a_gpu(memory_used_bytes=int(gib * GIB))
    return a_snapshot(second, gpu, processes=(a_process(gib=gib),))


def fragmented(second: float) -> Snapshot:
    run = a_run(
        reserved_bytes=130 * GIB,
        allocated_peak_bytes=90 * GIB,
        inactive_split_bytes=35 * GIB,
        largest_free_block_bytes=900 * MIB,
    )
    gpu = a_gpu(memory_used_bytes=134 * GIB)
    return a_snapshot(second, gpu, processes=(a_process(gib=132),), runs=(run,))


def retrying(second: float) -> Snapshot:
    run = a_run(alloc_retries=int(second / 4))
    return a_snapshot(second, a_gpu(), processes=(a_process(),), runs=(run,))


def hanging(second: float) -> Snapshot:
    gpus = (a_gpu(0), a_gpu(1)) if second < 20 else (waiting_in_nccl(0), starving(1, util=0.0))
    return a_snapshot(second, *gpus, processes=(a_rank(0), a_rank(1)))


def hanging_attached(second: float) -> Snapshot:
    runs = tuple(
        a_run(4711 + rank, gpu=rank, step=120 - rank, step_age_s=max(0.1, second - 20))
        for rank in (0, 1)
    )
    return Snapshot(
        **{name: getattr(hanging(second), name) for name in Snapshot.__struct_fields__}
        | {"runs": runs}
    )


def all_waiting(second: float) -> Snapshot:
    ranks = tuple(a_rank(rank) for rank in (0, 1))
    return a_snapshot(second, waiting_in_nccl(0), waiting_in_nccl(1), processes=ranks)


def one_slow(second: float) -> Snapshot:
    gpus = (a_gpu(0), starving(1, util=55.0), a_gpu(2))
    return a_snapshot(second, *gpus, processes=tuple(a_rank(r, size=3) for r in range(3)))


def one_slow_clock(second: float) -> Snapshot:
    gpus = (a_gpu(0), a_gpu(1, sm_clock_mhz=1100), a_gpu(2))
    return a_snapshot(second, *gpus, processes=tuple(a_rank(r, size=3) for r in range(3)))


def one_fat(second: float) -> Snapshot:
    ranks = tuple(a_rank(r, size=4, gib=90 if r == 0 else 40) for r in range(4))
    return a_snapshot(second, *(a_gpu(r) for r in range(4)), processes=ranks)


def uneven_batches(second: float) -> Snapshot:
    runs = tuple(
        a_run(4711 + r, gpu=r, step=1000 + int(second * (3 if r else 2))) for r in range(2)
    )
    return a_snapshot(second, a_gpu(0), a_gpu(1), processes=(a_rank(0), a_rank(1)), runs=runs)


def unequal_gpus(second: float) -> Snapshot:
    gpus = (a_gpu(0), a_gpu(1, name="NVIDIA A100", compute_capability="8.0"))
    return a_snapshot(second, *gpus, processes=(a_rank(0), a_rank(1)))


def _links(*pairs: tuple[int, int, int]) -> tuple[TopologyLink, ...]:
    return tuple(
        TopologyLink(a=a, b=b, level="SYS" if not n else "NODE", nvlinks=n, p2p="ok")
        for a, b, n in pairs
    )


def across_islands(second: float) -> Snapshot:
    gpus = (a_gpu(0), idle(1), a_gpu(2), idle(3))
    topology = _links((0, 1, 12), (0, 2, 0), (0, 3, 0), (1, 2, 0), (1, 3, 0), (2, 3, 12))
    ranks = (a_rank(0), a_rank(1, gpu=2))
    return a_snapshot(second, *gpus, processes=ranks, topology=topology)


def nvlink_unused(second: float) -> Snapshot:
    gpus = tuple(
        a_gpu(
            index,
            nvlink_rx_bytes_per_s=0.0,
            nvlink_tx_bytes_per_s=0.0,
            pcie_rx_bytes_per_s=9e9,
            pcie_tx_bytes_per_s=9e9,
        )
        for index in (0, 1)
    )
    ranks = (a_rank(0), a_rank(1))
    return a_snapshot(second, *gpus, processes=ranks, topology=_links((0, 1, 18)))


def sharing(second: float) -> Snapshot:
    two = (a_process(sm_pct=50.0), a_process(50, sm_pct=40.0, ppid=9, user="eve", uid=1001))
    return a_snapshot(second, a_gpu(), processes=two)


def two_ranks_on_one(second: float) -> Snapshot:
    ranks = (a_rank(0, sm_pct=50.0), a_rank(1, gpu=0, sm_pct=45.0))
    return a_snapshot(second, a_gpu(), processes=ranks)


def stray(reason: Any, state: str = "S") -> Make:
    why = Stray(reason=reason, sentence="Its launcher is gone.")
    one = a_process(cpu_pct=0.0, sm_pct=0.0, stray=why, state=state)
    return lambda second: a_snapshot(second, idle(), processes=(one,))


def gpu_with(**values: Any) -> Make:
    return lambda second: a_snapshot(second, a_gpu(**values), processes=(a_process(),))


def xid(code: int, at: float = 0.0) -> Make:
    event = Event(
        at=iso(ZERO_S + at),
        gpu=0,
        kind="xid",
        xid=code,
        severity="error",
        sentence=f"GPU 0: Xid {code}",
    )
    return lambda second: a_snapshot(second, a_gpu(), events=(event,))


def driver_error(code: str, message: str, container: str | None = None) -> Make:
    driver = Driver(
        version="580.159.04", nvml_version="13.590.1", error=DriverError(code=code, message=message)
    )
    return lambda second: a_snapshot(second, driver=driver, host=a_host(container=container))


def host_with(**values: Any) -> Make:
    return lambda second: a_snapshot(second, idle(), host=a_host(**values))


def on_cpu(second: float) -> Snapshot:
    run = a_run(step=int(second * 2), steps_per_s=2.0, cuda_initialized=False, devices=())
    return a_snapshot(second, idle(), runs=(run,))


def nobody(second: float) -> Snapshot:
    return a_snapshot(second, idle())


def workers(state: str, cpu: float, count: int = 4) -> tuple[Worker, ...]:
    return tuple(Worker(9000 + number, state, cpu) for number in range(count))


HOT = {"throttle_reasons": ("hw_thermal_slowdown",), "temperature_c": 91, "sm_clock_mhz": 1100}
BRAKE = {"throttle_reasons": ("hw_power_brake_slowdown", "hw_slowdown"), "sm_clock_mhz": 700}
LOWERED = {"power_limit_w": 450.0, "power_w": 448.0}
A_CPU_RUN = CpuRun(77, 5, "python train.py", 300.0, 780.0, 4000)

ROWS = {
    "data, workers at the disk": Row(
        "dataloader",
        trainer(),
        30,
        "100 % waiting for the disk",
        lambda: ScriptedLooks(LOADER, workers=workers("D", 3.0)),
        pid=4711,
    ),
    "data, most of the time": Row(
        "dataloader",
        trainer(),
        30,
        "In 4 of 6 looks",
        lambda: ScriptedLooks(LOADER, LOADER, FORWARD),
    ),
    "data made by the trainer itself": Row(
        "num_workers_low",
        trainer(),
        30,
        "It has no worker processes",
        lambda: ScriptedLooks(LOADING),
        pid=4711,
    ),
    "too many workers": Row(
        "cpu_oversubscribed",
        trainer(),
        30,
        "32 workers: 100 % computing",
        lambda: ScriptedLooks(LOADER, workers=workers("R", 40.0, 32), cpus=8),
    ),
    "throttled by the cgroup": Row(
        "cpu_oversubscribed",
        trainer(),
        30,
        "stopped it 45 % of the time",
        lambda: ScriptedLooks(LOADER, workers=workers("R", 80.0), throttled_pct=45.0),
    ),
    "sync": Row(
        "sync",
        lambda s: a_snapshot(s, starving(util=40.0), processes=(a_process(),)),
        30,
        "train.py:41: total += loss.item()",
        lambda: ScriptedLooks(ITEM, ITEM, FORWARD),
        pid=4711,
    ),
    "launches": Row(
        "launch_bound",
        launching,
        30,
        "Only 6 % of the SM time",
        lambda: ScriptedLooks(FORWARD, BACKWARD),
        pid=4711,
    ),
    "launches, no GPM": Row(
        "launch_bound",
        launching_without_gpm,
        30,
        "at 26 % of its power limit",
        lambda: ScriptedLooks(FORWARD, BACKWARD),
        pid=4711,
    ),
    "leak": Row("oom_growth", leaking, 30, "MiB/step, full in", pid=4711),
    "leak, unattached": Row("oom_growth", leaking_unattached, 30, "+30.0 GiB/min", pid=4711),
    "fragmentation": Row("oom_fragmentation", fragmented, 15, "35.0 GiB stuck", pid=4711),
    "retries": Row("alloc_retries", retrying, 60, "retries/min", pid=4711),
    "a rank stays away": Row(
        "rank_behind",
        hanging,
        45,
        "Rank 1 is behind: train.py:41",
        lambda: ScriptedLooks(by_pid={4711: [ITEM], 4712: [ASLEEP]}),
        gpu=1,
        pid=4712,
    ),
    "a rank stays away, attached": Row(
        "rank_behind",
        hanging_attached,
        45,
        "rank 1: step 119",
        lambda: ScriptedLooks(by_pid={4711: [ITEM], 4712: [ASLEEP]}),
        gpu=1,
        pid=4712,
    ),
    "a rank stays away, nobody may look": Row(
        "rank_behind", hanging, 60, "Rank 1 is behind", gpu=1, pid=4712
    ),
    "all wait": Row(
        "collective_timeout",
        all_waiting,
        75,
        "All 2 ranks wait in NCCL: train.py:41",
        lambda: ScriptedLooks(ITEM),
        pid=4711,
    ),
    "one slow rank": Row("straggler", one_slow, 60, "Rank 1 slows the job", gpu=1, pid=4712),
    "one slow clock": Row("straggler", one_slow_clock, 60, "at 56% of its clock", gpu=1),
    "unequal memory": Row("uneven_inputs", one_fat, 80, "Rank 0 holds 50.0 GiB more", pid=4711),
    "unequal batches": Row("uneven_inputs", uneven_batches, 80, "different numbers of steps"),
    "unequal GPUs": Row("straggler", unequal_gpus, 20, "NVIDIA A100", gpu=None, pid=4711),
    "over PCIe between islands": Row(
        "pcie_width", across_islands, 20, "GPUs 0, 1 are joined by NVLink", gpu=None
    ),
    "over PCIe beside NVLink": Row("pcie_width", nvlink_unused, 30, "nothing over", gpu=None),
    "shared": Row("shared_gpu", sharing, 20, "pid 50 of eve uses 40 % of the SMs"),
    "two ranks on one": Row("duplicate_gpu", two_ranks_on_one, 20, "ranks 0, 1 share it"),
    "stray": Row("orphans", stray("orphan_idle"), 6, "40.0 GiB held by stray pid 4711", pid=4711),
    "zombie leader": Row("orphans", stray("leader_gone", "Z"), 6, "40.0 GiB", pid=4711),
    "unkillable": Row("unkillable", stray("orphan_idle", "D"), 6, "40.0 GiB", pid=4711),
    "heat": Row("thermal", gpu_with(**HOT), 10, "1100 of 1980 MHz, 91 °C"),
    "brake": Row("power_brake", gpu_with(**BRAKE), 10, "power brake"),
    "limit": Row("power_limit_lowered", gpu_with(**LOWERED), 15, "limit 450 of 700 W"),
    "narrow link": Row("pcie_width", gpu_with(pcie_width=4), 15, "PCIe x4 of x16"),
    "old link": Row("pcie_width", gpu_with(pcie_generation=1), 15, "gen 1 of gen 5"),
    "ecc": Row("ecc_dbe", gpu_with(ecc_uncorrected=3), 2, "3 uncorrectable ECC errors"),
    "remap": Row("ecc_contained", gpu_with(remapped_rows_pending=True), 2, "at the next reset"),
    "remap failed": Row("remap_failure", gpu_with(remapped_rows_failed=True), 2, "remapping"),
    "lost": Row("gpu_off_bus", gpu_with(state="lost"), 2, "GPU 0 is lost"),
    "Xid 79": Row("gpu_off_bus", xid(79), 2, "Xid 79"),
    "Xid 31": Row("illegal_access", xid(31), 2, "Xid 31"),
    "Xid 74": Row("nvlink_fault", xid(74), 2, "NVLink error"),
    "Xid 119": Row("gsp_timeout", xid(119), 2, "GSP"),
    "mismatch": Row(
        "nvml_mismatch",
        driver_error("lib_rm_version_mismatch", "Driver/library version mismatch"),
        5,
        "The driver is 580.159.04, its library 13.590.1",
        gpu=None,
    ),
    "container lost its devices": Row(
        "cgroup_devices_lost",
        driver_error("unknown", "Unknown Error", "docker"),
        5,
        "docker container",
        gpu=None,
    ),
    "container without a GPU": Row(
        "container_without_gpu",
        driver_error("library_not_found", "not found", "docker"),
        5,
        "given no GPU",
        gpu=None,
    ),
    "host memory": Row(
        "host_oom", host_with(memory_used_bytes=500 * GIB), 6, "98 % full", gpu=None
    ),
    "shm": Row(
        "shm_too_small",
        host_with(shm_total_bytes=64 * MIB, shm_used_bytes=60 * MIB),
        6,
        "60 MiB of 64 MiB",
        gpu=None,
    ),
    "CPU, attached": Row("code_uses_cpu", on_cpu, 30, "CUDA was never", gpu=None, pid=4711),
    "CPU, unattached": Row(
        "code_uses_cpu",
        nobody,
        40,
        "300 s of CPU time",
        lambda: ScriptedLooks(FORWARD, BACKWARD, cpu_runs=(A_CPU_RUN,)),
        gpu=None,
        pid=77,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_right_cause_is_named_in_time_with_numbers_and_nothing_else_is(name: str) -> None:
    row = ROWS[name]
    told = play(row.make, row.seconds, row.looks() if row.looks else None)
    assert told.causes == {row.cause} | (told.causes & row.also), [f.title for _, f in told]
    second, finding = told.first(row.cause)
    assert second <= row.by_s
    assert finding.flow == CAUSES[row.cause].flow
    assert 0.0 < finding.confidence <= 1.0
    assert (finding.gpu, finding.pid) == (row.gpu, row.pid or finding.pid)
    last = told[-1][1]
    text = " ".join([finding.title, *(one.text for one in (*finding.evidence, *last.evidence))])
    assert row.says in text, text
    assert len(finding.title) <= 56, finding.title


@pytest.mark.parametrize("name", ROWS)
def test_a_slower_interval_tells_the_same(name: str) -> None:
    row = ROWS[name]
    told = play(row.make, 300.0, row.looks() if row.looks else None, interval_s=5.0)
    assert row.cause in told.causes


@pytest.mark.parametrize(
    "name", ["sync", "leak", "a rank stays away", "heat", "shared", "leak, unattached"]
)
def test_ten_snapshots_a_second_tell_it_no_earlier_than_one(name: str) -> None:
    row = ROWS[name]
    slow = play(row.make, row.seconds, row.looks() if row.looks else None)
    fast = play(row.make, row.seconds, row.looks() if row.looks else None, interval_s=0.1)
    assert fast.causes == {row.cause}
    assert fast.first(row.cause)[0] >= slow.first(row.cause)[0] - 3.0


def lost_and_waited_for(second: float) -> Snapshot:
    """GPU 2's rank is gone with its GPU, the two others wait for it."""
    gpus = (waiting_in_nccl(0), waiting_in_nccl(1), a_gpu(2, state="lost"))
    ranks = tuple(a_rank(rank, size=3) for rank in (0, 1))
    return a_snapshot(second, *gpus, processes=ranks)


def test_a_hang_after_a_lost_gpu_names_it_and_whose_stacks_to_take() -> None:
    told = play(lost_and_waited_for, 90)
    _, hang = told.first("collective_timeout")
    assert any(one.text.startswith("GPU 2 is lost") for one in hang.evidence)
    assert hang.title == "2 of 3 ranks wait in NCCL"
    assert hang.also[0].cause == "gpu_off_bus"
    values = [one.value for one in hang.fixes]
    assert "for pid in 4711 4712; do py-spy dump --pid $pid; done" in values
    assert not any("<" in value for value in values)


def test_a_lost_gpu_is_left_out_by_the_numbers_of_the_others_where_there_are_any() -> None:
    _, lost = play(lost_and_waited_for, 5).first("gpu_off_bus")
    assert lost.fixes[0].value == "CUDA_VISIBLE_DEVICES=0,1"
    _, only = play(lambda s: a_snapshot(s, a_gpu(0, state="lost")), 5).first("gpu_off_bus")
    assert not any("CUDA_VISIBLE_DEVICES" in one.value for one in only.fixes)


def test_the_stacks_of_the_rank_that_is_behind_are_asked_for_by_its_pid() -> None:
    _, finding = play(hanging, 60).first("rank_behind")
    assert finding.fixes[0].value == "py-spy dump --pid 4712"


def test_the_brake_of_many_gpus_is_one_finding() -> None:
    told = play(lambda s: a_snapshot(s, *(a_gpu(i, **BRAKE) for i in range(8))), 20)
    assert [finding.title for _, finding in told] == ["8 GPUs: slowed by the power brake"]


def test_a_group_of_strays_is_one_finding_that_names_each() -> None:
    why = Stray(reason="orphan_idle", sentence="Its launcher is gone.")
    some = tuple(a_process(pid, gib=pid, sm_pct=0.0, stray=why) for pid in (3, 7, 5))
    told = play(lambda s: a_snapshot(s, idle(), processes=some), 10)
    assert [finding.title for _, finding in told] == ["GPU 0: 15.0 GiB held by 3 strays"]
    assert told[0][1].pid == 7
    assert told[0][1].facts["pids"] == [7, 5, 3]


def test_a_program_on_unequal_gpus_is_named_although_it_has_no_ranks() -> None:
    uses = tuple(DeviceUse(gpu=gpu, vram_bytes=9 * GIB, sm_pct=90.0) for gpu in (0, 1))
    one = a_process(devices=uses, vram_bytes=18 * GIB)
    gpus = (a_gpu(0), a_gpu(1, name="Tesla T4", compute_capability="7.5"))
    told = play(lambda s: a_snapshot(s, *gpus, processes=(one,)), 20)
    assert told.causes == {"straggler"}
