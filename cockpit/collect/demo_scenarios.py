"""The demo scenarios as data, by name: who runs what where, and what goes wrong when."""

from __future__ import annotations

from cockpit.collect.demo_cast import (
    DRIVER,
    HOST,
    HOUR,
    JUPYTER,
    SYSTEM,
    before,
    evaluation,
    h200,
    notebook,
    ranks,
    torchrun,
    vllm,
)
from cockpit.collect.demo_parts import (
    DemoProcess,
    Hold,
    Load,
    Scenario,
)
from cockpit.collect.demo_troubles import LOST, OOM, STRAY, THROTTLE
from cockpit.model.gpu import Driver, DriverError
from cockpit.model.process import Relative

_BUSY = Scenario(
    name="busy",
    title="eight H200: training, an evaluation, a notebook, a vLLM server, other users",
    host=HOST,
    driver=DRIVER,
    gpus=tuple(h200(i) for i in range(8)),
    processes=(
        *ranks("train.py", (0, 1, 2, 3), pid=4711, ppid=4700, gib=88.0, load=Load("train", 97.5)),
        evaluation(4),
        notebook(7002, 4, 21.3),
        DemoProcess(
            pid=9120,
            ppid=9101,
            user="ml2",
            command=("python", "ddp.py", "--bs", "32", "--lr", "3e-4"),
            holds=(Hold(gpu=5, gib=99.9, load=Load("dips", 98.0, 24.0)),),
            life=before(0.7 * HOUR),
            cpu_pct=101.0,
            rss_gib=18.0,
            tty="pts/9",
            slurm_job="88123",
            cwd="/scratch/ml2/ddp",
        ),
        vllm(6),
        DemoProcess(
            pid=15210,
            ppid=15200,
            user="ml3",
            command=("python", "finetune.py", "--model", "qwen2.5-7b", "--qlora"),
            holds=(Hold(gpu=7, gib=38.4, load=Load("wave", 71.0, 14.0), swing_gib=1.5),),
            life=before(2.1 * HOUR),
            cpu_pct=390.0,
            rss_gib=22.0,
            tty="pts/11",
            conda_env="qlora",
            cwd="/home/ml3/qlora",
        ),
        DemoProcess(
            pid=1843,
            user="root",
            command=("nvidia-cuda-mps-server", "-force-tegra"),
            name="nvidia-cuda-mps",
            holds=(Hold(gpu=7, gib=0.04),),
            life=before(40 * 24 * HOUR),
            kind="mps",
            cpu_pct=0.1,
            rss_gib=0.03,
            framework=None,
            protected="the CUDA MPS daemon: every client of it on this GPU would fail",
        ),
        DemoProcess(
            pid=4194001,
            user=None,
            command=(),
            name="",
            holds=(Hold(gpu=7, gib=6.1, load=Load("infer", 9.0)),),
            life=before(HOUR),
            visible=False,
        ),
        DemoProcess(
            pid=4194207,
            user=None,
            command=(),
            name="",
            holds=(Hold(gpu=7, gib=2.2, known=False),),
            life=before(HOUR),
            visible=False,
        ),
    ),
    relatives=(
        *torchrun(4700, "train.py", 4),
        Relative(pid=4631, ppid=3105, name="bash", command=("-bash",), user="ml1"),
        Relative(pid=9101, ppid=1, name="slurmstepd", command=("slurmstepd: [88123.0]",)),
        Relative(pid=15200, ppid=1, name="bash", command=("-bash",), user="ml3"),
        JUPYTER,
        *SYSTEM,
    ),
)

_BIG_LOADS = (
    Load("train", 97.0),
    Load("dips", 94.0, 9.0),
    Load("infer", 60.0),
    Load("wave", 90.0, 20.0),
)
_BIG_COMMANDS = (
    ("python", "train.py", "--config", "llama-8b.yaml"),
    ("ray::RolloutWorker.sample",),
    ("python", "-m", "ipykernel_launcher", "-f", "/run/user/1001/kernel.json"),
    ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "meta-llama/Llama-3.1-8B"),
)


def _many(gpus: int, count: int) -> tuple[DemoProcess, ...]:
    """Processes of mixed kinds and owners; 13 on a GPU fit in its memory."""
    return tuple(
        DemoProcess(
            pid=20000 + i * 41,
            ppid=1 if i % 5 == 4 else 3105,
            user=("ml1", "ml1", "ml2", "ml1", "ml3")[i % 5],
            command=(*_BIG_COMMANDS[i // gpus % 4], "--id", str(i)),
            holds=(
                Hold(
                    gpu=i % gpus,
                    gib=4.0 + i * 7919 % 100 * 0.05,
                    load=_BIG_LOADS[i % 4] if i < gpus else Load(),
                ),
            ),
            life=before(600.0 + i * 977.0),
            cpu_pct=95.0 if i < gpus else 0.5,
            rss_gib=1.0 + i % 9,
            framework=("pytorch", "ray", "pytorch", "vllm")[i // gpus % 4],
            cwd=f"/scratch/run-{i:03d}",
        )
        for i in range(count)
    )


_BIG = Scenario(
    name="big",
    title="sixteen H200, 208 processes of three users",
    host=HOST,
    driver=DRIVER,
    gpus=tuple(h200(i) for i in range(16)),
    processes=_many(16, 208),
    relatives=SYSTEM,
)

_NODRIVER = Scenario(
    name="nodriver",
    title="the NVIDIA driver is not loaded: host and processes only",
    host=HOST,
    driver=Driver(
        error=DriverError(
            code="driver_not_loaded",
            message="The NVIDIA kernel driver is not loaded.",
            advice=(
                "See whether the module is there: lsmod | grep nvidia; modinfo nvidia",
                "After a kernel update the module is often missing: dkms status",
                "An administrator loads it with: sudo modprobe nvidia",
            ),
        )
    ),
    processes=(
        DemoProcess(
            pid=9120,
            ppid=9101,
            user="ml1",
            command=("python", "train.py", "--wait-for-gpu"),
            holds=(),
            life=before(0.4 * HOUR),
            cpu_pct=1.0,
            rss_gib=1.2,
            tty="pts/7",
            conda_env="llm",
            cwd="/home/ml1/exp/llama",
        ),
        DemoProcess(
            pid=9455,
            user="ml2",
            command=("python", "prepare_data.py", "--shards", "512"),
            holds=(),
            life=before(1.4 * HOUR),
            cpu_pct=640.0,
            rss_gib=31.0,
            framework=None,
            cwd="/scratch/ml2/data",
        ),
    ),
    relatives=(
        Relative(pid=9101, ppid=3105, name="bash", command=("-bash",), user="ml1"),
        *SYSTEM,
    ),
)

SCENARIOS: dict[str, Scenario] = {
    s.name: s for s in (_BUSY, STRAY, LOST, THROTTLE, OOM, _BIG, _NODRIVER)
}
