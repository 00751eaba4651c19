"""Hand-made snapshots: a busy box of eight with one of each trouble, and parts of it."""

from __future__ import annotations

from cockpit.model.event import Event
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.history import History
from cockpit.model.host import Host
from cockpit.model.ledger import Explanation, Ledger, LedgerProcess
from cockpit.model.process import DeviceUse, Process, Relative, Stray
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB

TAKEN_AT = "2026-11-30T14:02:11.000Z"


def a_gpu(index: int, **changes) -> Gpu:
    """A busy H200."""
    values = {
        "index": index,
        "uuid": f"GPU-0000000{index}",
        "name": "NVIDIA H200",
        "pci_bus_id": f"00000000:{index:02X}:00.0",
        "numa_node": index // 4,
        "compute_capability": "9.0",
        "utilization_pct": 98.0,
        "memory_utilization_pct": 61.0,
        "memory_total_bytes": int(139.8 * GIB),
        "memory_used_bytes": int(88.0 * GIB),
        "memory_reserved_bytes": int(0.6 * GIB),
        "power_w": 680.0,
        "power_limit_w": 700.0,
        "power_default_limit_w": 700.0,
        "temperature_c": 63,
        "temperature_slowdown_c": 92,
        "memory_temperature_c": 71,
        "sm_clock_mhz": 1875,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 3201,
        "performance_state": 0,
        "throttle_reasons": ("sw_power_cap",),
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_rx_bytes_per_s": 2.1e9,
        "pcie_tx_bytes_per_s": 310e6,
        "nvlink_rx_bytes_per_s": 88e9,
        "nvlink_tx_bytes_per_s": 87e9,
        "ecc_uncorrected": 0,
        "ecc_corrected": 0,
        "remapped_rows_pending": False,
        "remapped_rows_failed": False,
        "sm_active_pct": 71.0,
        "sm_occupancy_pct": 22.0,
        "tensor_active_pct": 34.0,
        "dram_active_pct": 41.0,
        "mig_enabled": False,
        "compute_mode": "default",
        "persistence_mode": True,
        "gaps": {"fan_pct": "not_supported"},
    }
    return Gpu(**(values | changes))


def an_idle_gpu(index: int, **changes) -> Gpu:
    """An H200 that nobody uses."""
    idle = {
        "utilization_pct": 0.0,
        "memory_utilization_pct": 0.0,
        "memory_used_bytes": int(1.2 * GIB),
        "power_w": 79.0,
        "temperature_c": 38,
        "sm_clock_mhz": 345,
        "throttle_reasons": ("gpu_idle",),
        "sm_active_pct": 0.0,
        "sm_occupancy_pct": 0.0,
        "tensor_active_pct": 0.0,
        "dram_active_pct": 0.0,
        "pcie_generation": 1,
        "pcie_rx_bytes_per_s": 0.0,
        "pcie_tx_bytes_per_s": 0.0,
        "nvlink_rx_bytes_per_s": 0.0,
        "nvlink_tx_bytes_per_s": 0.0,
    }
    return a_gpu(index, **(idle | changes))


def eight_gpus() -> tuple[Gpu, ...]:
    """The box of SCREENS: training, heat, a stray, a lost one."""
    return (
        a_gpu(0),
        a_gpu(1, utilization_pct=97.0, power_w=675.0, temperature_c=62, sm_clock_mhz=1890),
        a_gpu(2, utilization_pct=99.0, power_w=690.0, power_limit_w=500.0),
        a_gpu(
            3,
            utilization_pct=41.0,
            power_w=310.0,
            temperature_c=91,
            sm_clock_mhz=1110,
            throttle_reasons=("sw_thermal_slowdown",),
        ),
        an_idle_gpu(4),
        a_gpu(
            5, utilization_pct=100.0, memory_used_bytes=int(137.9 * GIB), state="stale", age_s=12
        ),
        an_idle_gpu(6, memory_used_bytes=int(38.4 * GIB)),
        Gpu(index=7, name="NVIDIA H200", state="lost", gaps={"power_w": "gpu_lost"}),
    )


def a_process(pid: int, **changes) -> Process:
    """A training process on GPU 0."""
    values = {
        "pid": pid,
        "start_ticks": pid * 10,
        "started_at": "2026-11-30T10:50:00.000Z",
        "user": "ml1",
        "uid": 1001,
        "command": ("/opt/conda/bin/python3.11", "-u", "/home/ml1/exp/train.py", "--bs", "32"),
        "name": "python3.11",
        "state": "R",
        "ppid": 4000,
        "cpu_pct": 101.4,
        "rss_bytes": int(12.5 * GIB),
        "kind": "compute",
        "vram_bytes": int(88.0 * GIB),
        "devices": (DeviceUse(gpu=0, vram_bytes=int(88.0 * GIB), sm_pct=96.0),),
    }
    return Process(**(values | changes))


def _use(gpu: int, size_gib: float, sm: float | None, mig: int | None = None) -> DeviceUse:
    return DeviceUse(gpu=gpu, vram_bytes=int(size_gib * GIB), sm_pct=sm, mig_instance=mig)


def ten_processes() -> tuple[Process, ...]:
    """Ranks, a stray, a notebook, a container, a foreign namespace, a zombie."""
    ranks = [
        a_process(
            4711 + n,
            command=("/opt/conda/bin/python3.11", "-u", "train.py", "--config", "conf/7b.yaml"),
            devices=(_use(n, 88.0, 96.0 - n),),
            rank=n,
            local_rank=n,
            world_size=4,
            conda_env="llm",
            tmux="0:1.0",
        )
        for n in range(4)
    ]
    return (
        a_process(
            9120,
            user="ml1",
            command=("python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "ddp.py"),
            vram_bytes=int(99.9 * GIB),
            devices=(_use(5, 60.0, 80.0), _use(4, 39.9, None)),
            slurm_job="88123",
            container="docker:3f2a9c01be77",
        ),
        *ranks,
        a_process(
            5233,
            user="ml2",
            command=("python", "-m", "ipykernel_launcher", "-f", "/run/kernel.json"),
            vram_bytes=int(38.4 * GIB),
            devices=(_use(6, 38.4, None),),
            cpu_pct=0.0,
            state="S",
            started_at="2026-11-28T10:00:00.000Z",
            stray=Stray(reason="orphan_idle", sentence="Its parent is gone and it is idle."),
        ),
        a_process(
            7002,
            user="ml3",
            command=("python", "eval.py", "--ckpt", "last.pt"),
            vram_bytes=int(1.2 * GIB),
            devices=(_use(4, 1.2, 0.0),),
            cpu_pct=0.2,
            state="S",
            started_at="2026-11-30T13:57:00.000Z",
        ),
        a_process(
            812345,
            user=None,
            uid=None,
            command=(),
            name=None,
            started_at=None,
            start_ticks=None,
            state=None,
            cpu_pct=None,
            rss_bytes=None,
            vram_bytes=int(0.5 * GIB),
            devices=(_use(4, 0.5, None),),
            visible=False,
            gaps={"pid": "other_namespace"},
        ),
        a_process(
            6001,
            user="ml2",
            command=(),
            name="python",
            state="Z",
            vram_bytes=None,
            cpu_pct=0.0,
            devices=(DeviceUse(gpu=6, vram_bytes=None, sm_pct=None),),
        ),
        a_process(
            6100,
            command=("python", "训练.py", "--名前", "👩‍🔬 \x1b[31mred"),
            devices=(_use(1, 0.5, None, 0),),
            vram_bytes=int(0.5 * GIB),
        ),
    )


def some_relatives() -> tuple[Relative, ...]:
    """A tmux server, a shell and a launcher."""
    return (
        Relative(pid=900, ppid=1, name="tmux: server", command=("tmux",), user="ml1"),
        Relative(pid=950, ppid=900, name="bash", command=("-bash",), user="ml1"),
        Relative(
            pid=4000,
            ppid=950,
            name="torchrun",
            command=("/opt/conda/bin/python", "/opt/conda/bin/torchrun", "train.py"),
            user="ml1",
        ),
    )


def a_host() -> Host:
    """A host of that size."""
    return Host(
        name="gpu-box-3",
        cpu_count=192,
        cpu_pct=38.2,
        load_1m=42.3,
        memory_total_bytes=2016 * GIB,
        memory_used_bytes=412 * GIB,
        swap_used_bytes=0,
        iowait_pct=2.1,
        disk_read_bytes_per_s=1.9e9,
        disk_write_bytes_per_s=12e6,
        shm_total_bytes=1008 * GIB,
        shm_used_bytes=30 * GIB,
    )


def a_ledger() -> Ledger:
    """GPU 6: a stray holder and something that nobody owns."""
    total, free, reserved = int(139.8 * GIB), int(95.0 * GIB), int(0.6 * GIB)
    held, lost = int(38.4 * GIB), 0
    lost = total - free - reserved - held
    return Ledger(
        gpu=6,
        total_bytes=total,
        free_bytes=free,
        driver_reserved_bytes=reserved,
        processes=(LedgerProcess(pid=5233, bytes=held),),
        unaccounted_bytes=lost,
        explanations=(
            Explanation(
                kind="device_holders",
                pids=(6001,),
                sentence="Process 6001 holds the device file and is not in the driver's list.",
            ),
        ),
    )


def some_events() -> tuple[Event, ...]:
    """Oldest first."""
    return (
        Event(
            at="2026-11-30T13:10:00.000Z",
            gpu=None,
            kind="process_started",
            sentence="Process 4711 (ml1, train.py) started on GPU 0.",
            severity="info",
        ),
        Event(
            at="2026-11-30T13:58:00.000Z",
            gpu=3,
            kind="throttle",
            sentence="GPU 3 is slowed by heat (91 °C).",
            severity="warning",
        ),
        Event(
            at="2026-11-30T14:01:30.000Z",
            gpu=7,
            kind="xid",
            sentence="Xid 79 on GPU 7: it has fallen off the bus.",
            severity="error",
            xid=79,
        ),
    )


def a_snapshot(**changes) -> Snapshot:
    """All of the above."""
    values = {
        "taken_at": TAKEN_AT,
        "host": a_host(),
        "driver": Driver(version="580.159.04", cuda_version="13.0", nvml_version="13.580.159"),
        "gpus": eight_gpus(),
        "processes": ten_processes(),
        "ledger": (a_ledger(),),
        "events": some_events(),
        "sampler": SamplerStatus(interval_s=1.0, cpu_pct=0.7),
    }
    return Snapshot(**(values | changes))


def a_history(snapshot: Snapshot, samples: int = 40) -> History:
    """The same snapshot again and again, utilisation going up and down."""
    from msgspec.structs import replace

    history = History()
    for n in range(samples):
        gpus = tuple(
            replace(gpu, utilization_pct=max(0.0, gpu.utilization_pct - 17 * (n % 3)))
            if gpu.utilization_pct
            else gpu
            for gpu in snapshot.gpus
        )
        at = f"2026-11-30T14:{n // 60:02d}:{n % 60:02d}.000Z"
        history.append(replace(snapshot, gpus=gpus, taken_at=at))
    return history
