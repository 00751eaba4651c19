"""Container, pod, job, environment, pane, rank and framework, from text as the kernel gives it."""

from __future__ import annotations

import os
import sys

import pytest
from real_processes import Processes, wait_until

from cockpit import procfs
from cockpit.collect import owners

ID = "0123456789abcdef" * 4
POD = "0a1b2c3d_1111_2222_3333_444455556666"


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope", "docker:0123456789ab"),
        (f"12:memory:/docker/{ID}\n0::/", "docker:0123456789ab"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
         "podman:0123456789ab"),
        (f"0::/kubepods.slice/kubepods-pod{POD}.slice/cri-containerd-{ID}.scope",
         "containerd:0123456789ab"),
        (f"0::/kubepods/burstable/pod{POD.replace('_', '-')}/{ID}", "containerd:0123456789ab"),
        ("0::/lxc.payload.ml-box/init.scope", "lxc:ml-box"),
        ("0::/machine.slice/machine-trainer.scope/payload", "nspawn:trainer"),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_container_is_told_by_the_cgroup(cgroup: str, container: str | None) -> None:
    assert owners.container_of(cgroup, {}) == container


def test_a_pod_goes_by_its_name_where_the_environment_has_it() -> None:
    cgroup = f"0::/kubepods.slice/kubepods-pod{POD}.slice/cri-containerd-{ID}.scope"
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}
    assert owners.pod_of(cgroup, inside) == "train-0"
    assert owners.pod_of(cgroup, {}) == POD.replace("_", "-")
    assert owners.pod_of("0::/user.slice", {"HOSTNAME": "box"}) is None


@pytest.mark.parametrize(
    ("cgroup", "environment", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", {}, "4711"),
        ("4:memory:/slurm/uid_1000/job_12/step_batch", {"SLURM_JOB_ID": "99"}, "12"),
        ("0::/user.slice", {"SLURM_JOB_ID": "99"}, "99"),
        ("0::/user.slice", {}, None),
    ],
)
def test_the_slurm_job(cgroup: str, environment: dict[str, str], job: str | None) -> None:
    assert owners.slurm_of(cgroup, environment) == job


@pytest.mark.parametrize(
    ("environment", "executable", "name"),
    [
        ({"CONDA_DEFAULT_ENV": "base"}, "/opt/conda/envs/llm/bin/python3.11", "llm"),
        ({"CONDA_DEFAULT_ENV": "base", "VIRTUAL_ENV": "/home/a/proj/.venv"}, None, "proj/.venv"),
        ({"VIRTUAL_ENV": "/home/a/envs/torch26"}, None, "torch26"),
        ({"CONDA_DEFAULT_ENV": "/scratch/envs/big"}, None, "big"),
        ({}, "/usr/bin/python3", None),
    ],
)  # fmt: skip
def test_the_environment(
    environment: dict[str, str], executable: str | None, name: str | None
) -> None:
    assert owners.conda_of(environment, executable) == name


@pytest.mark.parametrize(
    ("environment", "argv", "ranks"),
    [
        ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, (), (9, 1, 16)),
        ({f"OMPI_COMM_WORLD_{key}": "3" for key in ("RANK", "LOCAL_RANK", "SIZE")}, (), (3, 3, 3)),
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, (), (2, 0, 4)),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}, (), (None, None, None)),
        ({}, ("python", "train.py", "--local-rank=1"), (None, 1, None)),
        ({}, ("python", "train.py", "--local_rank", "5"), (None, 5, None)),
        ({"RANK": "first"}, ("train", "--local-rank"), (None, None, None)),
    ],
)  # fmt: skip
def test_ranks(
    environment: dict[str, str], argv: tuple[str, ...], ranks: tuple[int | None, ...]
) -> None:
    assert owners.ranks_of(environment, argv) == ranks


@pytest.mark.parametrize(
    ("argv", "name", "framework"),
    [
        (("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m"), "vllm", "vllm"),
        (("VLLM::EngineCore",), "VLLM::EngineCor", "vllm"),
        (("python", "-m", "sglang.launch_server"), "python", "sglang"),
        (("/usr/bin/ollama", "serve"), "ollama", "ollama"),
        (("python", "train_vllm_like.py"), "python", None),
    ],
)
def test_the_framework_by_its_command(
    argv: tuple[str, ...], name: str, framework: str | None
) -> None:
    assert owners.framework_of_command(argv, name) == framework


@pytest.mark.parametrize(
    ("maps", "framework"),
    [
        (
            b"7f r-xp 0 0:0 1 /v/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so\n",
            "pytorch",
        ),
        (b"7f r-xp 0 0:0 1 /v/site-packages/jaxlib/xla_extension.so\n", "jax"),
        (b"7f r-xp 0 0:0 1 /v/tensorflow/libtensorflow_cc.so.2\n", "tensorflow"),
        (b"7f r-xp 0 0:0 1 /usr/lib/libc.so.6\n", None),
    ],
)
def test_the_framework_by_its_libraries(maps: bytes, framework: str | None) -> None:
    assert owners.framework_of_libraries(maps) == framework


def test_a_real_process_is_read_by_its_environment(processes: Processes) -> None:
    around = {
        **os.environ,
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "TMUX": "/tmp/tmux-1000/default,4711,0",
        "TMUX_PANE": "%7",
        "SLURM_JOB_ID": "1234",
        "VIRTUAL_ENV": "/home/a/envs/torch26",
    }
    pid = processes.sleeper(env=around)
    wait_until(lambda: procfs.command("/proc", pid) == ("sleep", "60"))
    owner = owners.read_owner("/proc", pid, ("sleep", "60"), "sleep")
    assert (owner.rank, owner.local_rank, owner.world_size) == (3, 1, 8)
    assert (owner.tmux, owner.multiplexer) == ("%7", 4711)
    assert (owner.slurm_job, owner.conda_env) == ("1234", "torch26")
    assert owner.gaps == {}


def test_a_vanished_process_gives_gaps_and_no_error() -> None:
    owner = owners.read_owner("/proc", 4194303, (), "x")
    assert owner.gaps["rank"] == owner.gaps["container"] == owner.gaps["framework"] == "gone"


def test_an_unreadable_environment_leaves_what_argv_says(tmp_path: object) -> None:
    owner = owners.read_owner("/proc", 4194303, (sys.executable, "--local-rank=2"), "python")
    assert owner.local_rank == 2
    assert "local_rank" not in owner.gaps
