"""Demo scenarios in which something goes wrong with a GPU, its memory or its holders, as data."""

from __future__ import annotations

from cockpit.collect.demo_cast import (
    DRIVER,
    HOST,
    HOUR,
    JUPYTER,
    SYSTEM,
    before,
    h200,
    notebook,
    ranks,
    torchrun,
)
from cockpit.collect.demo_parts import (
    DemoEvent,
    DemoGpu,
    DemoHost,
    DemoProcess,
    Hold,
    Life,
    Load,
    Scenario,
    Throttle,
)
from cockpit.model.process import Relative, Stray


def _left(
    pid: int,
    gpu: int,
    gib: float,
    command: tuple[str, ...],
    stray: Stray | None,
    *,
    user: str = "ml1",
    age_s: float = 2.2 * 24 * HOUR,
    cwd: str = "/home/ml1/exp/llama",
    ignores_term: bool = False,
    held_by: int | None = None,
    ppid: int = 1,
) -> DemoProcess:
    """A process that nobody waits for."""
    return DemoProcess(
        pid=pid,
        ppid=ppid,
        user=user,
        command=command,
        holds=(Hold(gpu=gpu, gib=gib),),
        life=before(age_s),
        cpu_pct=0.0,
        rss_gib=0.0 if held_by else 2.4,
        stray=stray,
        cwd=cwd,
        ignores_term=ignores_term,
        held_by=held_by,
    )


_WORKER = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")

STRAY = Scenario(
    name="stray",
    title="four H200 with stray holders: a demo kill frees them",
    host=HOST,
    driver=DRIVER,
    gpus=tuple(h200(i) for i in range(4)),
    processes=(
        *ranks("train.py", (0, 1), pid=4711, ppid=4700, gib=71.5, load=Load("train", 96.0)),
        _left(
            5233,
            2,
            38.4,
            ("python", "-m", "ipykernel_launcher", "-f", "/run/user/1001/kernel-1f0a.json"),
            Stray(
                reason="orphan_idle",
                sentence="its parent is gone, it has no terminal and has computed nothing for 2d04",
            ),
        ),
        _left(
            5391,
            2,
            15.1,
            ("python", "-u", "train.py", "--config", "llama-8b.yaml", "--local-rank=1"),
            Stray(
                reason="launcher_gone",
                sentence="rank 1 of a job whose torchrun (pid 5380) is gone; it computes nothing",
            ),
            age_s=9 * HOUR,
        ),
        _left(
            5240,
            2,
            12.0,
            ("python", "finetune.py", "--resume"),
            Stray(
                reason="directory_deleted",
                sentence="its working directory /scratch/tmp/run-17 is deleted and it idles",
            ),
            cwd="/scratch/tmp/run-17 (deleted)",
            ignores_term=True,
        ),
        _left(
            5602,
            3,
            61.0,
            ("python", "train.py", "--num-workers", "4"),
            Stray(
                reason="leader_gone",
                sentence="it is a zombie; its child 5617 of the same session keeps the GPU open",
            ),
            held_by=5617,
            age_s=27 * HOUR,
        ),
        DemoProcess(
            pid=5617,
            ppid=1,
            user="ml1",
            command=(*_WORKER, "--multiprocessing-fork"),
            holds=(),
            life=before(27 * HOUR),
            cpu_pct=0.0,
            rss_gib=1.9,
            cwd="/home/ml1/exp/llama",
        ),
        _left(
            5844,
            3,
            9.0,
            (*_WORKER, "--multiprocessing-fork"),
            Stray(
                reason="launcher_gone",
                sentence="a multiprocessing worker whose parent (pid 5840) is gone; it is idle",
            ),
            user="ml2",
            age_s=31 * HOUR,
            cwd="/home/ml2/dpo",
        ),
        notebook(7002, 3, 4.8),
    ),
    relatives=(*torchrun(4700, "train.py", 2), JUPYTER, *SYSTEM),
)

LOST = Scenario(
    name="lost",
    title="four H200: GPU 3 falls off the bus after 8 seconds (Xid 79)",
    host=HOST,
    driver=DRIVER,
    gpus=tuple(h200(i, lost_at_s=8.0 if i == 3 else None) for i in range(4)),
    processes=(
        *ranks(
            "train.py",
            (0, 1, 2, 3),
            pid=4711,
            ppid=4700,
            gib=88.0,
            load=Load("train", 97.0),
            last_lives_s=11.0,
            hang_at_s=9.0,
        ),
        notebook(7002, 0, 9.2),
    ),
    relatives=(*torchrun(4700, "train.py", 4), JUPYTER, *SYSTEM),
    events=(
        DemoEvent(
            at_s=7.8,
            gpu=3,
            kind="xid",
            xid=79,
            sentence="Xid 79 on GPU 3: the GPU has fallen off the bus",
            severity="error",
        ),
    ),
)


_DISPLAY = "a display server: the desktop and all its windows would end"


def _desktop(pid: int, gib: float, user: str, command: tuple[str, ...]) -> DemoProcess:
    return DemoProcess(
        pid=pid,
        user=user,
        command=command,
        name=command[0].rsplit("/", 1)[-1],
        holds=(Hold(gpu=0, gib=gib, load=Load("infer", 2.0)),),
        life=before(8 * HOUR),
        kind="graphics",
        cpu_pct=3.0,
        rss_gib=0.3,
        framework=None,
        tty="tty2",
        protected=_DISPLAY,
    )


THROTTLE = Scenario(
    name="throttle",
    title="a workstation of four RTX 4090: GPU 1 slowed by heat, GPU 2 by its power cap",
    host=DemoHost(
        name="ws-7",
        cpu_count=64,
        memory_gib=503,
        memory_used_gib=96.0,
        cpu_pct=21.0,
        disk_read_bytes_per_s=2.2e8,
        shm_used_gib=4.0,
    ),
    driver=DRIVER,
    gpus=tuple(
        DemoGpu(
            index=i,
            model="RTX 4090",
            pci_bus_id=f"00000000:{bus}:00.0",
            throttle=throttle,
        )
        for i, (bus, throttle) in enumerate(
            (
                ("01", None),
                (
                    "21",
                    Throttle(
                        reasons=("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown"),
                        from_s=6.0,
                        temperature_c=91,
                        clock_share=0.55,
                        power_share=0.52,
                    ),
                ),
                (
                    "41",
                    Throttle(
                        reasons=("sw_power_cap",),
                        from_s=3.0,
                        temperature_c=74,
                        clock_share=0.82,
                        power_share=0.995,
                    ),
                ),
                ("61", None),
            )
        )
    ),
    processes=(
        _desktop(2210, 0.4, "root", ("/usr/lib/xorg/Xorg", "vt2")),
        _desktop(2388, 0.23, "ml1", ("/usr/bin/gnome-shell",)),
        *ranks(
            "train_vit.py",
            (0, 1, 2, 3),
            pid=4711,
            ppid=4700,
            gib=19.4,
            load=Load("train", 97.0),
            args=("--bs", "256", "--amp"),
        ),
    ),
    relatives=(*torchrun(4700, "train_vit.py", 4), *SYSTEM),
)

OOM = Scenario(
    name="oom",
    title="two H200: a leak fills GPU 1 in 90 seconds, the process dies, and it begins again",
    host=HOST,
    driver=DRIVER,
    gpus=tuple(h200(i) for i in range(2)),
    processes=(
        *ranks("train.py", (0,), pid=4711, ppid=4700, gib=88.0, load=Load("train", 97.0)),
        notebook(7002, 1, 5.5),
        DemoProcess(
            pid=9120,
            ppid=9101,
            user="ml1",
            command=("python", "finetune.py", "--bs", "32", "--log-every", "1"),
            # 134.1 GiB are left beside the notebook: full after 90 s
            holds=(Hold(gpu=1, gib=41.0, load=Load("train", 95.0), grow_gib_per_s=1.03),),
            life=Life(born_s=-4.0, lives_s=90.0, every_s=98.0),
            cpu_pct=106.0,
            rss_gib=12.0,
            tty="pts/7",
            conda_env="llm",
            tmux="train:2.0",
            cwd="/home/ml1/exp/finetune",
            ends_with_oom=True,
        ),
    ),
    relatives=(
        *torchrun(4700, "train.py", 1),
        Relative(pid=9101, ppid=3105, name="bash", command=("bash", "retry.sh"), user="ml1"),
        JUPYTER,
        *SYSTEM,
    ),
)
