"""Scenes in which nothing is wrong, however odd they look: not one finding."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cockpit.collect.recording import load
from cockpit.diagnose.live.look import CpuRun, Worker
from cockpit.diagnose.live.watch import LiveFindings
from cockpit.model.gpu import TopologyLink
from cockpit.model.process import DeviceUse
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import GIB, MIB
from tests.diagnose.live.scenes import (
    ASLEEP,
    BACKWARD,
    FORWARD,
    ITEM,
    LOADER,
    LOADING,
    SAVE,
    SELECT,
    TORCH,
    ScriptedLooks,
    a_gpu,
    a_host,
    a_process,
    a_rank,
    a_run,
    a_snapshot,
    frames,
    idle,
    play,
    starving,
    waiting_in_nccl,
)

RECORDING = "tests/recordings/h200-stray.jsonl.gz"
IN_ITS_LOOP = (FORWARD, BACKWARD, ITEM, LOADER)


def healthy(second: float) -> Snapshot:
    """bf16: 89 to 100 %, at the power cap, activations that come and go."""
    tick = int(second)
    gpu = a_gpu(
        utilization_pct=89.0 + tick * 7 % 12,
        power_w=640.0 + tick * 13 % 60,
        memory_used_bytes=60 * GIB,
        throttle_reasons=("sw_power_cap",) if tick % 3 else (),
    )
    saw = (tick * 5 % 13) * GIB
    run = a_run(step=3 * tick, allocated_bytes=20 * GIB + saw, reserved_bytes=38 * GIB)
    return a_snapshot(second, gpu, processes=(a_process(),), runs=(run,))


def healthy_unattached(second: float) -> Snapshot:
    return a_snapshot(second, a_gpu(), processes=(a_process(),))


def memory_bound(second: float) -> Snapshot:
    """Half of the power at full clock and full utilisation: bandwidth, not launches."""
    gpu = a_gpu(power_w=320.0, sm_active_pct=30.0, dram_active_pct=70.0, throttle_reasons=())
    return a_snapshot(second, gpu, processes=(a_process(),))


def memory_bound_without_gpm(second: float) -> Snapshot:
    gpu = a_gpu(power_w=320.0, sm_active_pct=None, dram_active_pct=None, throttle_reasons=())
    return a_snapshot(second, gpu, processes=(a_process(),))


def notebook(second: float) -> Snapshot:
    one = a_process(cpu_pct=0.4, sm_pct=0.0, command=("python", "-m", "ipykernel_launcher"))
    return a_snapshot(second, idle(memory_used_bytes=40 * GIB), processes=(one,))


def first_steps(second: float) -> Snapshot:
    """Contexts, libraries, the first activations: memory rises for a quarter minute."""
    gib = min(2 + 2 * second, 40)
    gpu = starving(util=30.0) if second < 12 else a_gpu()
    run = a_run(step=int(second), allocated_bytes=int(gib * GIB), reserved_bytes=int(gib * GIB))
    return a_snapshot(second, gpu, processes=(a_process(gib=gib),), runs=(run,))


def loading_a_checkpoint(second: float) -> Snapshot:
    gib = min(2 + second, 100)
    gpu = idle(memory_used_bytes=int(gib * GIB), utilization_pct=3.0)
    return a_snapshot(second, gpu, processes=(a_process(gib=gib, cpu_pct=100.0, sm_pct=1.0),))


def evaluating(second: float) -> Snapshot:
    """Every two minutes half a minute of smaller batches without gradients."""
    phase = second % 120
    evaluates = 80 <= phase < 110
    gpu = a_gpu(utilization_pct=96.0, power_w=420.0) if evaluates else a_gpu()
    size = (12 if evaluates else 30) * GIB
    run = a_run(step=int(3 * second), allocated_bytes=size)
    return a_snapshot(second, gpu, processes=(a_process(),), runs=(run,))


def saving(second: float) -> Snapshot:
    """A checkpoint of twenty seconds each minute."""
    gpu = starving(util=0.0) if second % 60 >= 40 else a_gpu()
    run = a_run(step=int(2 * second), step_age_s=max(0.2, second % 60 - 40))
    return a_snapshot(second, gpu, processes=(a_process(),), runs=(run,))


def rank_zero_saves(second: float) -> Snapshot:
    saves = second % 120 >= 80
    gpus = (starving(0, util=0.0), waiting_in_nccl(1)) if saves else (a_gpu(0), a_gpu(1))
    return a_snapshot(second, *gpus, processes=(a_rank(0), a_rank(1)))


def healthy_ranks(second: float) -> Snapshot:
    topology = (TopologyLink(a=0, b=1, level="NODE", nvlinks=18, p2p="ok"),)
    gpus = tuple(a_gpu(i, nvlink_rx_bytes_per_s=4e10, nvlink_tx_bytes_per_s=4e10) for i in (0, 1))
    runs = tuple(a_run(4711 + i, gpu=i, step=int(3 * second)) for i in (0, 1))
    ranks = (a_rank(0, gib=41.0), a_rank(1))
    return a_snapshot(second, *gpus, processes=ranks, runs=runs, topology=topology)


def nothing_runs(second: float) -> Snapshot:
    return a_snapshot(second, idle(0), idle(1))


def limit_lowered_but_not_reached(second: float) -> Snapshot:
    return a_snapshot(second, idle(power_limit_w=450.0))


def a_full_cache(second: float) -> Snapshot:
    """Between steps little is alive and much is reserved: no fragmentation."""
    run = a_run(
        allocated_bytes=20 * GIB,
        reserved_bytes=130 * GIB,
        allocated_peak_bytes=128 * GIB,
        inactive_split_bytes=100 * GIB,
    )
    gpu = a_gpu(memory_used_bytes=134 * GIB)
    return a_snapshot(second, gpu, processes=(a_process(gib=132),), runs=(run,))


def flickering_heat(second: float) -> Snapshot:
    """One sample a minute is no slowdown."""
    hot = int(second) % 60 == 30
    gpu = a_gpu(throttle_reasons=("sw_thermal_slowdown",) if hot else ())
    return a_snapshot(second, gpu, processes=(a_process(),))


def workers_share(second: float) -> Snapshot:
    """Two processes of one program on a GPU, and an idle notebook beside them."""
    some = (
        a_process(sm_pct=50.0),
        a_process(4712, sm_pct=45.0, ppid=4711),
        a_process(9, sm_pct=0.0, cpu_pct=0.2, ppid=1, command=("jupyter",)),
    )
    return a_snapshot(second, a_gpu(), processes=some)


def pipeline(second: float) -> Snapshot:
    """Stages of different size are meant to differ."""
    ranks = tuple(a_rank(r, size=4, gib=40 + 12 * r) for r in range(4))
    return a_snapshot(second, *(a_gpu(r) for r in range(4)), processes=ranks)


def a_server(second: float) -> Snapshot:
    """vLLM waits for requests."""
    one = a_process(framework="vllm", cpu_pct=100.0, sm_pct=4.0)
    return a_snapshot(second, starving(util=12.0), processes=(one,))


def plenty_of_memory(second: float) -> Snapshot:
    """96 % of two terabytes: 80 GiB are left."""
    host = a_host(memory_total_bytes=2000 * GIB, memory_used_bytes=1920 * GIB)
    return a_snapshot(second, idle(), host=host)


def preparing(second: float) -> Snapshot:
    return a_snapshot(second, idle())


def data_parallel(second: float) -> Snapshot:
    uses = (
        DeviceUse(gpu=0, vram_bytes=40 * GIB, sm_pct=90.0),
        DeviceUse(gpu=1, vram_bytes=500 * MIB, sm_pct=0.0),
    )
    one = a_process(devices=uses)
    gpus = (a_gpu(0), idle(1, name="Tesla T4"))
    return a_snapshot(second, *gpus, processes=(one,))


COMPILING = frames(
    (f"{TORCH}/_inductor/codecache.py", 10, "compile"),
    (f"{TORCH}/_dynamo/convert_frame.py", 7, "_compile"),
    ("/home/ml1/train.py", 41, "main"),
)
TOKENIZING = frames(
    ("/opt/env/lib/python3.12/site-packages/tokenizers/__init__.py", 5, "encode"),
    ("/home/ml1/prepare.py", 9, "main"),
)
FINE_WORKERS = tuple(Worker(9000 + n, "S", 20.0) for n in range(8))
PREPARING = CpuRun(77, 5, "python prepare.py", 900.0, 400.0, 4000)

SCENES: dict[str, tuple[Callable[[float], Snapshot], Callable[[], ScriptedLooks]]] = {
    "bf16": (healthy, lambda: ScriptedLooks(*IN_ITS_LOOP)),
    "bf16, unattached, waits in item": (healthy_unattached, lambda: ScriptedLooks(ITEM)),
    "bf16 with a DataLoader that keeps up": (
        healthy,
        lambda: ScriptedLooks(LOADER, workers=FINE_WORKERS),
    ),
    "memory-bound": (memory_bound, lambda: ScriptedLooks(FORWARD, BACKWARD)),
    "memory-bound, no GPM": (memory_bound_without_gpm, lambda: ScriptedLooks(FORWARD)),
    "idle notebook": (notebook, lambda: ScriptedLooks(SELECT)),
    "first steps": (first_steps, lambda: ScriptedLooks(LOADING, FORWARD, COMPILING)),
    "compiling": (
        lambda s: a_snapshot(s, starving(), processes=(a_process(),)),
        lambda: ScriptedLooks(COMPILING),
    ),
    "loading a checkpoint": (loading_a_checkpoint, lambda: ScriptedLooks(SAVE)),
    "evaluating": (evaluating, lambda: ScriptedLooks(FORWARD, ITEM)),
    "saving": (saving, lambda: ScriptedLooks(SAVE)),
    "rank 0 saves": (rank_zero_saves, lambda: ScriptedLooks(by_pid={4711: [SAVE], 4712: [ITEM]})),
    "ranks": (healthy_ranks, lambda: ScriptedLooks(ITEM, FORWARD)),
    "nothing runs": (nothing_runs, ScriptedLooks),
    "low limit, idle": (limit_lowered_but_not_reached, ScriptedLooks),
    "full cache": (a_full_cache, lambda: ScriptedLooks(FORWARD)),
    "flickering heat": (flickering_heat, lambda: ScriptedLooks(FORWARD)),
    "workers share": (workers_share, lambda: ScriptedLooks(FORWARD)),
    "pipeline": (pipeline, lambda: ScriptedLooks(FORWARD)),
    "a server waits": (a_server, lambda: ScriptedLooks(ASLEEP)),
    "plenty of host memory": (plenty_of_memory, ScriptedLooks),
    "preparing data with torch loaded": (
        preparing,
        lambda: ScriptedLooks(TOKENIZING, cpu_runs=(PREPARING,)),
    ),
    "a stray context on another kind of GPU": (data_parallel, lambda: ScriptedLooks(FORWARD)),
}


@pytest.mark.parametrize("interval_s", [1.0, 5.0])
@pytest.mark.parametrize("name", SCENES)
def test_five_minutes_without_a_finding(name: str, interval_s: float) -> None:
    make, looks = SCENES[name]
    told = play(make, 300.0, looks(), interval_s=interval_s)
    assert not told, [(second, finding.title) for second, finding in told]


def test_a_busy_gpu_and_an_idle_notebook_are_not_even_looked_at() -> None:
    looks = ScriptedLooks(FORWARD)
    play(healthy, 60.0, looks)
    play(notebook, 60.0, looks)
    assert not looks.wished


def test_a_real_recording_of_a_training_and_a_stray_names_the_stray_alone() -> None:
    recording = load(RECORDING)
    live = LiveFindings()
    causes: dict[str, set[int | None]] = {}
    for number in range(len(recording)):
        snapshot = recording.snapshot(number)
        strays = {one.pid for one in snapshot.processes if one.stray is not None}
        for finding in live.observe(snapshot, ScriptedLooks()):
            causes.setdefault(finding.cause, set()).add(finding.pid)
            assert finding.cause == "orphans" or strays
    assert set(causes) <= {"orphans"}
