"""What a process is called on screen: its command without what every command has in common."""

from __future__ import annotations

import re
from functools import lru_cache

from cockpit.model.process import Process, Stray
from cockpit.model.text import clean_command
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.gpu_ranges import ranges

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?$")
_PATH = re.compile(r"[\w.+~@/-]*/[\w.+~@-]+/*")
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun"})
_LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.launch": "deepspeed",
}
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})

STRAY_WORDS: dict[str, str] = {
    "leader_gone": "leader gone",
    "launcher_gone": "launcher gone",
    "orphan_idle": "parent gone, idle",
    "directory_deleted": "directory deleted, idle",
}
"""Why a process counts as stray, short; the sentence is on its page."""

STATE_WORDS: dict[str, str] = {
    "R": "running",
    "S": "sleeping",
    "D": "waits in the kernel",
    "Z": "zombie",
    "T": "stopped",
    "t": "traced",
    "X": "dead",
    "I": "kernel idle",
}
"""The letter of /proc/PID/stat in words."""

STATE_SHORT: dict[str, str] = {
    "R": "run",
    "S": "sleep",
    "D": "D wait",
    "Z": "zombie",
    "T": "stop",
    "t": "traced",
}
"""The same for a column of six cells."""


def is_idle(process: Process) -> bool:
    """Computes nothing now: no SM sample above zero, and less than one percent of a core."""
    if process.cpu_pct is None or process.cpu_pct >= 1.0:
        return False
    return all(not use.sm_pct for use in process.devices)


def stray_words(stray: Stray) -> str:
    """The reason in two words."""
    return STRAY_WORDS.get(stray.reason, foreign(stray.reason).replace("_", " "))


def command_words(process: Process, with_rank: bool = True) -> str:
    """``python train.py --lr 3e-4``: no path of the interpreter, of the script or of a launcher."""
    words = foreign(_shortened(process.command, process.name))
    if with_rank and process.rank is not None:
        head, _, tail = _head(words)
        return f"{head} {_rank(process)} {tail}".rstrip()
    return words


def _rank(process: Process) -> str:
    return f"(rank {process.rank})"


def _head(words: str) -> tuple[str, str, str]:
    """Split behind the script, so that the rank stands before the arguments that get cut off."""
    match = re.match(r"(\S+( -m)? [^-\s]\S*|\S+)(\s+|$)", words)
    if match is None:
        return words, "", ""
    return match.group(1), " ", words[match.end() :]


@lru_cache(maxsize=2048)
def _shortened(command: tuple[str, ...], name: str | None) -> str:
    if len(command) < 2:
        return clean_command(command, name)
    program = _base(command[0])
    if _PYTHON.match(program):
        return _python(command[1:])
    if program in _LAUNCHERS:
        return _launched(program, command[1:])
    return clean_command((program, *command[1:]))


def _python(arguments: tuple[str, ...]) -> str:
    """What Python runs: a script, a module, a launcher, or one of the helpers people meet."""
    rest = _without_options(arguments)
    if not rest:
        return "python"
    if rest[0] == "-m" and len(rest) > 1:
        return _module(rest[1], rest[2:])
    if rest[0] == "-c":
        return _inline(rest)
    script = _base(rest[0])
    if script in _LAUNCHERS:
        return _launched(script, rest[1:])
    if "compile_worker" in rest[0]:
        return "inductor compile worker"
    if not script.endswith(".py") and "/bin/" in rest[0]:  # a console script: vllm, jupyter, ray
        return clean_command((script, *rest[1:]))
    return clean_command(("python", script, *rest[1:]))


def _without_options(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Without the interpreter's own options (-u, -X dev …)."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if not word.startswith("-") or word in ("-m", "-c", "-"):
            break
        at += 2 if word in _WITH_VALUE else 1
    return arguments[at:]


def _module(module: str, rest: tuple[str, ...]) -> str:
    if module in _LAUNCHER_MODULES:
        return _launched(_LAUNCHER_MODULES[module], rest)
    if module == "ipykernel_launcher":
        return "jupyter kernel (ipykernel_launcher)"
    return clean_command(("python", "-m", module, *rest))


def _inline(rest: tuple[str, ...]) -> str:
    code = rest[1] if len(rest) > 1 else ""
    if "multiprocessing.spawn" in code:
        return "python multiprocessing worker"
    if "multiprocessing.resource_tracker" in code:
        return "python resource tracker"
    if "multiprocessing.forkserver" in code:
        return "python forkserver"
    return clean_command(("python", *rest))


def _launched(launcher: str, rest: tuple[str, ...]) -> str:
    """``torchrun train.py …``: the launcher's options say less than the script."""
    for at, word in enumerate(rest):
        if word.endswith(".py"):
            return clean_command((launcher, _base(word), *rest[at + 1 :]))
    return clean_command((launcher, *rest))


def _base(path: str) -> str:
    """The last part of a path; what does not look like a path stays whole."""
    return path.rstrip("/").rpartition("/")[2] if _PATH.fullmatch(path) else path


def hidden_words(process: Process) -> str:
    """Why there is no command: the reason of the gap."""
    gaps = process.gaps
    reason = gaps.get("pid") or gaps.get("command") or next(iter(gaps.values()), None)
    return gap_words(reason) if reason else "not visible from here"


def gpus_words(process: Process) -> str:
    """``0-3``, ``5``, or ``1:0`` for an instance of a MIG GPU."""
    return _gpus_words(tuple([(use.gpu, use.mig_instance) for use in process.devices]))


@lru_cache(maxsize=1024)
def _gpus_words(uses: tuple[tuple[int, int | None], ...]) -> str:
    plain = ranges([gpu for gpu, instance in uses if instance is None])
    parts = [f"{gpu}:{instance}" for gpu, instance in uses if instance is not None]
    return ",".join(([plain] if plain else []) + parts) or "–"


def place_words(process: Process) -> str:
    """Where it belongs: job, pod or container, conda environment, tmux pane."""
    parts = []
    if process.slurm_job:
        parts.append(f"job {process.slurm_job}")
    if process.pod:
        parts.append(f"pod {process.pod}")
    elif process.container:
        parts.append(_container(process.container))
    if process.conda_env:
        parts.append(f"env {_base(process.conda_env)}")
    if process.tmux:
        parts.append(f"tmux {process.tmux}")
    return foreign(" ".join(parts))


def _container(container: str) -> str:
    """``docker:3f2a9c01be77``: a container id as docker prints it, 12 digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", container)
