"""Who and what appears in several demo scenarios: the host, its GPUs and the usual processes."""

from __future__ import annotations

from cockpit.collect.demo_parts import (
    DemoGpu,
    DemoHost,
    DemoProcess,
    Hold,
    Life,
    Load,
    Throttle,
)
from cockpit.model.gpu import Driver
from cockpit.model.process import Relative

DRIVER = Driver(version="580.159.04", cuda_version="13.0", nvml_version="13.580.159.04")
HOST = DemoHost(
    name="gpu-box-3",
    cpu_count=192,
    memory_gib=2016,
    memory_used_gib=412.0,
    cpu_pct=38.0,
    disk_read_bytes_per_s=1.9e9,
    shm_used_gib=31.0,
)
HOUR = 3600.0
_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")


def h200(
    index: int, *, throttle: Throttle | None = None, lost_at_s: float | None = None
) -> DemoGpu:
    return DemoGpu(
        index=index,
        numa_node=index % 8 // 4,
        pci_bus_id=f"{index // 8:08X}:{_BUSES[index % 8]}:00.0",
        throttle=throttle,
        lost_at_s=lost_at_s,
    )


def before(age_s: float) -> Life:
    return Life(born_s=-age_s)


def ranks(
    script: str,
    gpus: tuple[int, ...],
    *,
    pid: int,
    ppid: int,
    gib: float,
    load: Load,
    user: str = "ml1",
    age_s: float = 3.2 * HOUR,
    last_lives_s: float | None = None,
    hang_at_s: float | None = None,
    args: tuple[str, ...] = ("--config", "llama-8b.yaml"),
) -> tuple[DemoProcess, ...]:
    """The ranks that one torchrun started, one on each GPU."""
    last = len(gpus) - 1
    return tuple(
        DemoProcess(
            pid=pid + rank,
            ppid=ppid,
            user=user,
            command=("/opt/conda/envs/llm/bin/python", "-u", script, *args),
            holds=(Hold(gpu=gpu, gib=gib + rank * 0.02, load=load, hangs_at_s=hang_at_s),),
            life=Life(
                born_s=-age_s - rank * 0.05,
                lives_s=age_s + last_lives_s if last_lives_s and rank == last else None,
            ),
            cpu_pct=103.0,
            rss_gib=11.4,
            tty="pts/4",
            conda_env="llm",
            tmux="train:0.1",
            cwd=f"/home/{user}/exp/llama",
            rank=rank,
            world_size=len(gpus),
            job=script,
        )
        for rank, gpu in enumerate(gpus)
    )


def torchrun(pid: int, script: str, count: int, user: str = "ml1") -> tuple[Relative, ...]:
    """The launcher of such ranks and the shells over it."""
    command = ("python", "/opt/conda/envs/llm/bin/torchrun", f"--nproc-per-node={count}", script)
    return (
        Relative(pid=pid, ppid=pid - 40, name="torchrun", command=command, user=user),
        Relative(pid=pid - 40, ppid=3105, name="bash", command=("-bash",), user=user),
    )


SYSTEM = (
    Relative(
        pid=3105,
        ppid=1,
        name="tmux: server",
        command=("tmux", "new-session", "-s", "train"),
        user="ml1",
    ),
    Relative(pid=1, ppid=0, name="systemd", command=("/sbin/init",), user="root"),
)

JUPYTER = Relative(
    pid=6990, ppid=1, name="jupyter-lab", command=("jupyter-lab", "--no-browser"), user="ml1"
)


def notebook(pid: int, gpu: int, gib: float, age_s: float = 5.5 * HOUR) -> DemoProcess:
    kernel = "/home/ml1/.local/share/jupyter/runtime/kernel-8f2c11.json"
    return DemoProcess(
        pid=pid,
        ppid=6990,
        user="ml1",
        command=("python", "-m", "ipykernel_launcher", "-f", kernel),
        holds=(Hold(gpu=gpu, gib=gib),),
        life=before(age_s),
        cpu_pct=0.3,
        rss_gib=3.1,
        conda_env="base",
        cwd="/home/ml1/notebooks",
    )


def evaluation(gpu: int) -> DemoProcess:
    """An evaluation of every new checkpoint: comes, works, goes."""
    return DemoProcess(
        pid=21002,
        ppid=4631,
        user="ml1",
        command=("python", "eval.py", "--ckpt", "last.pt", "--tasks", "mmlu,gsm8k"),
        holds=(Hold(gpu=gpu, gib=17.2, load=Load("infer", 64.0), grow_gib_per_s=0.08),),
        life=Life(born_s=-12.0, lives_s=38.0, every_s=55.0),
        cpu_pct=140.0,
        rss_gib=9.3,
        tty="pts/6",
        conda_env="llm",
        tmux="train:1.0",
        cwd="/home/ml1/exp/llama",
    )


def vllm(gpu: int, pid: int = 12044) -> DemoProcess:
    command = ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "meta-llama/Llama-3.1-8B")
    return DemoProcess(
        pid=pid,
        user="svc",
        command=(*command, "--port", "8000"),
        name="vllm",
        holds=(Hold(gpu=gpu, gib=125.6, load=Load("infer", 47.0)),),
        life=before(6 * 24 * HOUR),
        cpu_pct=118.0,
        rss_gib=14.0,
        framework="vllm",
        container="docker:9f1c0d2b77aa",
    )
