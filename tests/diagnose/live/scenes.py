"""Snapshots of a small machine, second by second, and looks that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from cockpit.diagnose.live.look import CpuRun, Look, LookFrame, NoLooks, Worker
from cockpit.diagnose.live.watch import LiveFindings
from cockpit.model.finding import Finding
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB
from cockpit.model.time import iso, moment

ZERO_S = 1_790_000_000.0
TOTAL = 140 * GIB
TORCH = "/opt/env/lib/python3.12/site-packages/torch"


def a_gpu(index: int = 0, **values: Any) -> Gpu:
    """A busy H200 at its default power limit, with the values of a real one."""
    healthy: dict[str, Any] = {
        "name": "NVIDIA H200",
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"00000000:{index:02x}:00.0",
        "utilization_pct": 100.0,
        "memory_utilization_pct": 48.0,
        "memory_total_bytes": TOTAL,
        "memory_used_bytes": 60 * GIB,
        "power_w": 690.0,
        "power_limit_w": 700.0,
        "power_default_limit_w": 700.0,
        "temperature_c": 62,
        "temperature_slowdown_c": 87,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "performance_state": 0,
        "throttle_reasons": ("sw_power_cap",),
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "ecc_uncorrected": 0,
        "remapped_rows_pending": False,
        "remapped_rows_failed": False,
        "compute_capability": "9.0",
        "sm_active_pct": 89.0,
        "tensor_active_pct": 33.0,
        "dram_active_pct": 37.0,
        "mig_enabled": False,
        "compute_mode": "default",
    }
    return Gpu(index=index, **{**healthy, **values})


def idle(index: int = 0, **values: Any) -> Gpu:
    """Nothing runs on it."""
    quiet: dict[str, Any] = {
        "utilization_pct": 0.0,
        "memory_utilization_pct": 0.0,
        "memory_used_bytes": 600 << 20,
        "power_w": 75.0,
        "sm_clock_mhz": 345,
        "performance_state": 8,
        "pcie_generation": 1,
        "throttle_reasons": ("gpu_idle",),
        "sm_active_pct": 0.0,
        "tensor_active_pct": 0.0,
        "dram_active_pct": 0.0,
    }
    return a_gpu(index, **{**quiet, **values})


def starving(index: int = 0, util: float = 20.0, **values: Any) -> Gpu:
    """Works now and then."""
    seldom: dict[str, Any] = {
        "utilization_pct": util,
        "power_w": 180.0,
        "sm_clock_mhz": 1980,
        "throttle_reasons": (),
        "sm_active_pct": util / 2,
        "dram_active_pct": 5.0,
        "memory_utilization_pct": 5.0,
    }
    return a_gpu(index, **{**seldom, **values})


def waiting_in_nccl(index: int = 0, **values: Any) -> Gpu:
    """As measured on a real H200: 100 % at 124 W and full clock, no memory moved."""
    spin: dict[str, Any] = {
        "power_w": 124.0,
        "sm_clock_mhz": 1980,
        "throttle_reasons": (),
        "memory_utilization_pct": 0.0,
        "sm_active_pct": 12.0,
        "dram_active_pct": 0.1,
    }
    return a_gpu(index, **{**spin, **values})


def a_process(pid: int = 4711, gpu: int = 0, gib: float = 40.0, **values: Any) -> Process:
    """A trainer on one GPU."""
    vram = int(gib * GIB)
    usual: dict[str, Any] = {
        "start_ticks": 1000 + pid,
        "framework": "pytorch",
        "user": "ml1",
        "uid": 1000,
        "command": ("python", "train.py"),
        "name": "python",
        "state": "R",
        "ppid": 4000,
        "cpu_pct": 101.0,
        "rss_bytes": 4 * GIB,
        "kind": "compute",
        "vram_bytes": vram,
        "devices": (DeviceUse(gpu=gpu, vram_bytes=vram, sm_pct=values.pop("sm_pct", 95.0)),),
    }
    return Process(pid=pid, **{**usual, **values})


def a_rank(rank: int, *, size: int = 2, **values: Any) -> Process:
    """One of several, on the GPU of its number."""
    usual: dict[str, Any] = {"gpu": rank, "rank": rank, "local_rank": rank, "world_size": size}
    return a_process(4711 + rank, **{**usual, **values})


def a_run(pid: int = 4711, *, step: int = 1000, gpu: int = 0, **values: Any) -> Run:
    """An attached run; allocator values by their names."""
    device: dict[str, Any] = {
        "allocated_bytes": 20 * GIB,
        "reserved_bytes": 38 * GIB,
        "allocated_peak_bytes": 36 * GIB,
        "inactive_split_bytes": 2 * GIB,
        "alloc_retries": 0,
        "ooms": 0,
    }
    names = set(RunDevice.__struct_fields__)
    device |= {name: values.pop(name) for name in list(values) if name in names}
    usual: dict[str, Any] = {
        "start_ticks": 1000 + pid,
        "step_age_s": 0.2,
        "steps_per_s": 3.0,
        "cuda_initialized": True,
        "torch_version": "2.11.0",
        "devices": (RunDevice(gpu=gpu, **device),),
    }
    return Run(pid=pid, step=step, **{**usual, **values})


def a_host(**values: Any) -> Host:
    """With plenty of everything."""
    usual: dict[str, Any] = {
        "name": "box",
        "cpu_count": 64,
        "cpu_pct": 12.0,
        "memory_total_bytes": 512 * GIB,
        "memory_used_bytes": 90 * GIB,
        "swap_used_bytes": 0,
        "iowait_pct": 0.3,
        "shm_total_bytes": 256 * GIB,
        "shm_used_bytes": 2 * GIB,
    }
    return Host(**{**usual, **values})


def a_snapshot(second: float, *gpus: Gpu, **values: Any) -> Snapshot:
    usual: dict[str, Any] = {
        "host": a_host(),
        "driver": Driver(version="580.159.04", cuda_version="13.0", nvml_version="13.580.159.04"),
        "sampler": SamplerStatus(interval_s=1.0),
    }
    return Snapshot(taken_at=iso(ZERO_S + second), gpus=gpus, **{**usual, **values})


# -- looks


def frames(*places: tuple[str, int, str] | tuple[str, int, str, str]) -> tuple[LookFrame, ...]:
    """Innermost first."""
    return tuple(LookFrame(*place) for place in places)


OWN = ("/home/ml1/train.py", 41, "main")
LOADER = frames(
    ("/usr/lib/python3.12/selectors.py", 415, "select"),
    ("/usr/lib/python3.12/multiprocessing/connection.py", 257, "poll"),
    ("/usr/lib/python3.12/multiprocessing/queues.py", 113, "get"),
    (f"{TORCH}/utils/data/dataloader.py", 1275, "_try_get_data"),
    (f"{TORCH}/utils/data/dataloader.py", 1445, "_get_data"),
    (f"{TORCH}/utils/data/dataloader.py", 1500, "_next_data"),
    (f"{TORCH}/utils/data/dataloader.py", 733, "__next__"),
    OWN,
)
LOADING = frames(
    ("/home/ml1/data.py", 17, "__getitem__", "image = Image.open(path).convert('RGB')"),
    (f"{TORCH}/utils/data/_utils/fetch.py", 54, "fetch"),
    (f"{TORCH}/utils/data/dataloader.py", 789, "_next_data"),
    (f"{TORCH}/utils/data/dataloader.py", 733, "__next__"),
    OWN,
)
ITEM = frames((*OWN[:2], "main", "total += loss.item()"))
FORWARD = frames(
    (f"{TORCH}/nn/modules/linear.py", 134, "forward"),
    (f"{TORCH}/nn/modules/module.py", 1786, "_call_impl"),
    OWN,
)
BACKWARD = frames(
    (f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"),
    (f"{TORCH}/_tensor.py", 630, "backward"),
    OWN,
)
SAVE = frames((f"{TORCH}/serialization.py", 971, "_save"), OWN)
ASLEEP = frames((*OWN[:2], "main", "time.sleep(3600)"))
SELECT = frames(
    ("/usr/lib/python3.12/selectors.py", 468, "select"),
    ("/usr/lib/python3.12/asyncio/base_events.py", 1898, "_run_once"),
    ("/opt/env/lib/python3.12/site-packages/ipykernel/kernelapp.py", 739, "start"),
)


class ScriptedLooks(NoLooks):
    """Every 2.5 s of the snapshots' own time each wished process is seen at the next stack."""

    def __init__(
        self,
        *stacks: tuple[LookFrame, ...],
        workers: tuple[Worker, ...] = (),
        cpus: int | None = 16,
        throttled_pct: float | None = 0.0,
        by_pid: dict[int, Iterable[tuple[LookFrame, ...]]] | None = None,
        cpu_runs: tuple[CpuRun, ...] = (),
    ) -> None:
        self.now_s = 0.0
        self._stacks = list(stacks)
        self._by_pid = {pid: list(some) for pid, some in (by_pid or {}).items()}
        self._details: dict[str, Any] = {
            "workers": workers,
            "cpus": cpus,
            "throttled_pct": throttled_pct,
        }
        self._seen: dict[int, list[Look]] = {}
        self._cpu_runs = cpu_runs

    @property
    def wished(self) -> set[int]:
        return set(self._seen)

    def want(self, pid: int, start_ticks: int | None) -> tuple[Look, ...]:
        seen = self._seen.setdefault(pid, [])
        stacks = self._by_pid.get(pid, self._stacks)
        if stacks and (not seen or self.now_s - seen[-1].at_s >= 2.5):
            stack = stacks[len(seen) % len(stacks)]
            seen.append(Look(at_s=self.now_s, frames=stack, **self._details))
        return tuple(look for look in seen if self.now_s - look.at_s <= 60.0)[-8:]

    def cpu_runs(self) -> tuple[CpuRun, ...]:
        return self._cpu_runs


class Told(list[tuple[float, Finding]]):
    """(second, finding) for every finding when it first appeared."""

    @property
    def causes(self) -> set[str]:
        return {finding.cause for _, finding in self}

    def first(self, cause: str) -> tuple[float, Finding]:
        return next(one for one in self if one[1].cause == cause)


def play(
    make: Callable[[float], Snapshot],
    seconds: float = 60.0,
    looks: ScriptedLooks | None = None,
    *,
    interval_s: float = 1.0,
    live: LiveFindings | None = None,
    begin_s: float = 0.0,
) -> Told:
    """Runs a scene through the rules."""
    live, told, known = live or LiveFindings(), Told(), set()
    for number in range(int(seconds / interval_s) + 1):
        second = begin_s + number * interval_s
        status = SamplerStatus(interval_s=interval_s)
        snapshot = replace(make(second), sampler=status)
        if looks is not None:
            looks.now_s = moment(snapshot.taken_at) or 0.0
        for finding in live.observe(snapshot, looks or NoLooks()):
            key = finding.cause, finding.gpu, finding.pid
            if key not in known:
                known.add(key)
                told.append((second, finding))
    return told
