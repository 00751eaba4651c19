"""Programs that start other programs, and which of their options take a word: data.

Sources: the manual pages of env, nice, taskset, numactl, timeout, stdbuf, srun, mpirun; torchrun
(Elastic Launch), ``accelerate launch --help``, ``deepspeed --help``; uv, conda and docker command
references.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Launcher(NamedTuple):
    """How to get past one of them."""

    takes: dict[str, int] = {}
    """Option → words that follow it. Without ``=``."""
    subcommands: tuple[str, ...] = ()
    """One of these has to follow its name."""
    positional: int = 0
    """Words before the command: a mask, a duration, an image."""
    unknown_take: bool = False
    """An option that is neither here nor in ``switches`` takes a word that looks like no script."""
    switches: frozenset[str] = frozenset()
    python: bool = False
    """What follows is a script of Python; ``-m`` makes it a module."""
    refusal: str | None = None


def _one(text: str) -> dict[str, int]:
    return dict.fromkeys(text.split(), 1)


_DOCKER = Launcher(
    takes=_one(
        "-e --env --env-file -v --volume --mount -w --workdir -u --user --name --gpus --shm-size "
        "--ipc --network --net -p --publish -h --hostname --entrypoint --ulimit --runtime -m "
        "--memory --cpus --cpuset-cpus --device -l --label --group-add --cap-add --security-opt "
        "--pid --restart --platform --tmpfs --pull --add-host --memory-swap -a --attach --userns "
        "--log-driver --log-opt --dns --cgroup-parent --cidfile --detach-keys"
    ),
    subcommands=("run", "exec"),
    positional=1,
)
_IMAGE = Launcher(
    takes=_one("-B --bind --env --env-file -H --home -W --workdir --pwd --overlay --mount -S"),
    subcommands=("exec", "run"),
    positional=1,
)
_RUN = Launcher(subcommands=("run",))
_CONDA = Launcher(takes=_one("-n --name -p --prefix --cwd"), subcommands=("run",))
_MPI = Launcher(
    takes={
        **_one(
            "-n -np -c --np -H --host -host --hostfile -hostfile -f -x -genvlist --bind-to "
            "-bind-to --map-by -map-by --rank-by -ppn -N --npernode --wdir -wdir --prefix -p"
        ),
        **dict.fromkeys(("-mca", "--mca", "-genv", "-env"), 2),
    }
)
_TORCHRUN = Launcher(
    unknown_take=True,
    python=True,
    switches=frozenset(
        ("--standalone", "--no-python", "--run-path", "--use-env", "-m", "--module", "--nsight")
    ),
)
_ACCELERATE = Launcher(
    subcommands=("launch",),
    unknown_take=True,
    python=True,
    switches=frozenset(
        (
            *("--multi-gpu", "--cpu", "--use-cpu", "--tpu", "--mps", "--use-deepspeed", "-q"),
            *("--use-fsdp", "--use-megatron-lm", "--quiet", "--debug", "--no-python", "-m"),
            *("--module", "--same-network", "--use-xpu", "--ipex", "--tpu-use-cluster"),
            *("--tpu-use-sudo", "--enable-cpu-affinity", "--use-parallelism-config"),
        )
    ),
)
_DEEPSPEED = Launcher(
    unknown_take=True,
    python=True,
    switches=frozenset(
        (
            *("--no-local-rank", "--no-python", "--no-ssh", "--force-multi", "--module", "-m"),
            *("--bind-cores-to-rank", "--save-pid", "--elastic-training", "--no-ssh-check"),
        )
    ),
)
_ELSEWHERE = "The command runs on another machine (ssh): start it again there."
_ADMIN = "The command begins with sudo: start it again by hand in a terminal."

LAUNCHERS: dict[str, Launcher] = {
    "env": Launcher(takes=_one("-u --unset -C --chdir")),
    "nohup": Launcher(),
    "setsid": Launcher(),
    "exec": Launcher(),
    "nice": Launcher(takes=_one("-n --adjustment")),
    "ionice": Launcher(takes=_one("-c -n --class --classdata")),
    "chrt": Launcher(positional=1),
    "taskset": Launcher(positional=1),
    "numactl": Launcher(
        takes=_one("-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred")
    ),
    "stdbuf": Launcher(takes=_one("-i -o -e --input --output --error")),
    "timeout": Launcher(takes=_one("-k -s --kill-after --signal"), positional=1),
    "time": Launcher(takes=_one("-f -o --format --output")),
    "xvfb-run": Launcher(takes=_one("-n -s -e -f -p --server-num --server-args")),
    "srun": Launcher(
        takes=_one(
            "-n -N -c -p -t -w -J -A -G -D -o -e -i -q -x -C -d -m -M --ntasks --nodes --partition "
            "--cpus-per-task --time --nodelist --job-name --account --gpus --chdir --output "
            "--error --input --qos --exclude --constraint --dependency --mem --gres --export --mpi "
            "--gpus-per-task --gpus-per-node --ntasks-per-node --cpu-bind --gpu-bind --jobid "
            "--reservation --container-image --container-mounts --container-workdir --mem-per-gpu "
            "--cpus-per-gpu --distribution --kill-on-bad-exit --unbuffered-size --mem-per-cpu"
        )
    ),
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "horovodrun": _MPI,
    "uv": Launcher(
        takes=_one(
            "--with --with-editable --with-requirements -p --python --extra --group --only-group "
            "--no-group --project --directory --env-file --package --index --default-index "
            "--extra-index-url --index-url --config-file --cache-dir -f --find-links"
        ),
        subcommands=("run",),
    ),
    "poetry": _RUN,
    "pdm": _RUN,
    "pipenv": _RUN,
    "rye": _RUN,
    "pixi": Launcher(takes=_one("-e --environment --manifest-path"), subcommands=("run",)),
    "hatch": Launcher(takes=_one("-e --env"), subcommands=("run",)),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "cockpit": Launcher(takes=_one("--name"), subcommands=("run",)),
    "nsys": Launcher(
        takes=_one(
            "-o -t -s -y -d -w -f -c -e -b -n -x --output --trace --sample --delay --duration"
        ),
        subcommands=("profile", "launch"),
    ),
    "ncu": Launcher(takes=_one("-o -k -c -s --set --section --metrics --export --kernel-name")),
    "compute-sanitizer": Launcher(takes=_one("--tool --log-file --launch-timeout")),
    "docker": _DOCKER,
    "podman": _DOCKER,
    "apptainer": _IMAGE,
    "singularity": _IMAGE,
    "torchrun": _TORCHRUN,
    "composer": _TORCHRUN,
    "accelerate": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "ssh": Launcher(refusal=_ELSEWHERE),
    "sudo": Launcher(refusal=_ADMIN),
}
MODULES: dict[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "cockpit": "cockpit",
}
"""``python -m`` of these is one of the above; accelerate's then without its subcommand."""
WITHOUT_SUBCOMMAND = frozenset(("accelerate.commands.launch",))
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
PYTHON = re.compile(r"(?:python|pypy)(?:\d(?:\.\d+)?t?)?")
PYTHON_TAKES = frozenset(("-X", "-W", "--check-hash-based-pycs"))

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vllm": ("vllm", ("serve", "bench", "run-batch")),
    "trl": ("transformers", ("sft", "dpo", "grpo", "kto", "rloo", "reward")),
    "llamafactory-cli": ("transformers", ("train",)),
    "lightning": ("lightning", ("fit",)),
    "yolo": ("yacs", ()),
    "fairseq-train": ("yacs", ()),
    "fairseq-hydra-train": ("yacs", ()),
    "litgpt": ("lightning", ("finetune", "pretrain", "finetune_lora", "finetune_full")),
}
"""Programs that are trainers or servers themselves → (framework, subcommands)."""
PROGRAM_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "trl.scripts.sft": "transformers",
}
