"""Whose a process is: container, pod, Slurm job, conda environment, tmux pane, rank, framework.

All from cgroup, environ, argv and maps, which are read once for a process. No docker socket, no
squeue: names that only a daemon knows stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cockpit import procfs
from cockpit.procfs import Gap

MAPS_LIMIT_BYTES = 1 << 20
"""A torch process has 1000 to 3000 mappings of about 110 bytes; reading them costs 1 to 3 ms."""

ENVIRONMENT_FIELDS = ("slurm_job", "conda_env", "tmux", "rank", "local_rank", "world_size")

_CONTAINER = re.compile(
    r"(?:(docker|libpod|crio|cri-containerd|containerd|nerdctl|buildkit)[-/:])?([0-9a-f]{64})\b"
)
_ENGINES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}
_LXC = re.compile(
    r"/(?:lxc\.payload\.|lxc/|machine\.slice/machine-)([\w.\\-]+?)(?:\.scope)?(?:/|$)"
)
_POD = re.compile(
    r"\bpod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"
)
_SLURM = re.compile(r"/job_(\d+)(?:/|$)")
_CONDA = re.compile(r"/envs/([^/]+)/bin/")
_LOCAL_RANK = re.compile(r"--local[-_]rank(?:=|$)")

_LAUNCHER_VARIABLES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MV2_COMM_WORLD_")

_PROGRAMS = (
    ("vllm", re.compile(r"(?:^|[/ ])vllm(?:$|[ .])|^VLLM::|vllm\.entrypoints")),
    ("sglang", re.compile(r"^sglang|sglang\.launch_server")),
    ("triton", re.compile(r"(?:^|/)tritonserver(?: |$)")),
    ("tgi", re.compile(r"(?:^|/)text-generation-(?:server|launcher)")),
    ("llama.cpp", re.compile(r"(?:^|/)llama-(?:server|cli|bench)(?: |$)")),
    ("ollama", re.compile(r"(?:^|/)ollama(?: |$)")),
)
_LIBRARIES = (
    ("pytorch", (b"/libtorch_cuda", b"/libtorch_cpu", b"/libtorch_python")),
    ("jax", (b"/jaxlib/", b"xla_cuda", b"/jax_plugins/")),
    ("tensorflow", (b"/libtensorflow", b"_pywrap_tensorflow")),
    ("onnxruntime", (b"/libonnxruntime", b"onnxruntime_pybind11")),
    ("cupy", (b"/cupy/", b"/cupy_backends/")),
)


@dataclass(frozen=True, slots=True)
class Owner:
    """What is read once about a process and costs something. Field names as in model.Process."""

    container: str | None = None
    pod: str | None = None
    slurm_job: str | None = None
    conda_env: str | None = None
    tmux: str | None = None
    multiplexer: int | None = None
    """Pid of the tmux or screen server that it was started under."""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    launched: bool = False
    """torchrun, mpirun, srun or the like started it as one of several ranks."""
    framework: str | None = None
    gaps: dict[str, str] = field(default_factory=dict)


def read_owner(root: str, pid: int, argv: Sequence[str], name: str) -> Owner:
    """Reads cgroup, environ and, where argv does not show the framework, maps of one process."""
    gaps: dict[str, str] = {}
    environment = procfs.environment(root, pid)
    if isinstance(environment, Gap):
        gaps.update(dict.fromkeys(ENVIRONMENT_FIELDS, environment.reason))
        environment = {}
    groups = procfs.read_long(f"{root}/{pid}/cgroup", 16384)
    if isinstance(groups, Gap):
        gaps.update(dict.fromkeys(("container", "pod"), groups.reason))
        groups = b""
    cgroup = procfs.text(groups)
    framework = framework_of_command(argv, name) or _framework_of_maps(root, pid, gaps)
    ranks = ranks_of(environment, argv)
    found: dict[str, str | int | None] = {
        "slurm_job": slurm_of(cgroup, environment),
        "conda_env": conda_of(environment, _executable(root, pid)),
        "tmux": environment.get("TMUX_PANE"),
        "rank": ranks[0],
        "local_rank": ranks[1],
        "world_size": ranks[2],
    }
    return Owner(
        container=container_of(cgroup, environment),
        pod=pod_of(cgroup, environment),
        multiplexer=multiplexer_of(environment),
        launched=was_launched(environment, argv),
        framework=framework,
        gaps={key: why for key, why in gaps.items() if found.get(key) is None},
        **found,  # type: ignore[arg-type]
    )


def container_of(cgroup: str, environment: Mapping[str, str]) -> str | None:
    """``docker:0123456789ab``, ``lxc:name``, ``apptainer:image`` …; None on the bare host."""
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        if match := _CONTAINER.search(path):
            engine = match[1] or ("containerd" if "kubepods" in path else "container")
            return f"{_ENGINES.get(engine, engine)}:{match[2][:12]}"
        if match := _LXC.search(path):
            return ("nspawn:" if "machine.slice" in path else "lxc:") + match[1]
    for variable in ("APPTAINER_NAME", "SINGULARITY_NAME"):
        if variable in environment:
            return "apptainer:" + environment[variable]
    return None


def pod_of(cgroup: str, environment: Mapping[str, str]) -> str | None:
    """The pod's name where its environment shows it (HOSTNAME), else its uid."""
    match = _POD.search(cgroup)
    if "KUBERNETES_SERVICE_HOST" in environment:
        name = environment.get("POD_NAME") or environment.get("HOSTNAME")
        if name:
            return name
    return match[1].replace("_", "-") if match else None


def slurm_of(cgroup: str, environment: Mapping[str, str]) -> str | None:
    """The job's number. The cgroup is believed first: a job can clear its environment."""
    match = _SLURM.search(cgroup) if "slurm" in cgroup else None
    return match[1] if match else environment.get("SLURM_JOB_ID") or None


def conda_of(environment: Mapping[str, str], executable: str | None) -> str | None:
    """Name of the conda or virtual environment; an activated venv lies on top of conda's base."""
    if executable and (match := _CONDA.search(executable)):
        return match[1]
    folder = environment.get("VIRTUAL_ENV", "").rstrip("/")
    if folder:
        above, _, last = folder.rpartition("/")
        # ".venv" names nothing: the project that it lies in does.
        return f"{above.rpartition('/')[2]}/{last}" if last in (".venv", "venv", "env") else last
    name = environment.get("CONDA_DEFAULT_ENV", "").rstrip("/")
    return name.rpartition("/")[2] or None


def multiplexer_of(environment: Mapping[str, str]) -> int | None:
    """Pid of the tmux or screen server: ``TMUX=/tmp/tmux-0/default,PID,0``, ``STY=PID.name``."""
    tmux = environment.get("TMUX", "").split(",")
    number = tmux[-2] if len(tmux) >= 3 else environment.get("STY", "").partition(".")[0]
    return _number(number)


def ranks_of(
    environment: Mapping[str, str], argv: Sequence[str]
) -> tuple[int | None, int | None, int | None]:
    """(RANK, LOCAL_RANK, WORLD_SIZE) as torchrun, mpirun, srun or the old launcher give them."""
    launchers = [("RANK", "LOCAL_RANK", "WORLD_SIZE")]
    launchers.append(tuple(f"OMPI_COMM_WORLD_{key}" for key in ("RANK", "LOCAL_RANK", "SIZE")))  # type: ignore[arg-type]
    # srun sets SLURM_PROCID for a single task, too: only several tasks make ranks of them.
    if (_number(environment.get("SLURM_NTASKS")) or 1) > 1:
        launchers.append(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"))
    for names in launchers:
        rank, local, world = (_number(environment.get(name)) for name in names)
        if rank is not None or local is not None:
            return rank, local, world
    return None, local_rank_argument(argv), None


def was_launched(environment: Mapping[str, str], argv: Sequence[str]) -> bool:
    """Something that only a launcher sets is there; RANK and WORLD_SIZE are set by hand as well."""
    if local_rank_argument(argv) is not None:
        return True
    if (_number(environment.get("SLURM_NTASKS")) or 1) > 1 and "SLURM_PROCID" in environment:
        return True
    return any(name.startswith(_LAUNCHER_VARIABLES) for name in environment)


def local_rank_argument(argv: Sequence[str]) -> int | None:
    """N of ``--local-rank=N`` or ``--local_rank N`` (torch.distributed.launch, deepspeed)."""
    for position, word in enumerate(argv):
        if _LOCAL_RANK.match(word):
            _, equals, value = word.partition("=")
            rest = argv[position + 1 : position + 2]
            return _number(value if equals else rest[0] if rest else None)
    return None


def framework_of_command(argv: Sequence[str], name: str) -> str | None:
    """What argv or the short name gives away; no file is read."""
    line = " ".join(argv)[:1000] or name
    for framework, pattern in _PROGRAMS:
        if pattern.search(line) or pattern.search(name):
            return framework
    return None


def framework_of_libraries(maps: bytes) -> str | None:
    """The framework whose library is mapped; the first of the list when there are several."""
    for framework, marks in _LIBRARIES:
        if any(mark in maps for mark in marks):
            return framework
    return None


def _framework_of_maps(root: str, pid: int, gaps: dict[str, str]) -> str | None:
    maps = procfs.read_long(f"{root}/{pid}/maps", MAPS_LIMIT_BYTES)
    if isinstance(maps, Gap):
        gaps["framework"] = maps.reason
        return None
    return framework_of_libraries(maps)


def _executable(root: str, pid: int) -> str | None:
    link = procfs.read_link(f"{root}/{pid}/exe")
    return None if isinstance(link, Gap) else link


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 10 else None
