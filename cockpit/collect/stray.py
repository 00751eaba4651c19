"""The rule that calls a holder of VRAM stray, and the sentence why. Pure: facts in, verdict out.

A wrong "stray" invites somebody to kill a running job, so every doubt is decided for the process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.model.process import Stray
from cockpit.model.text import clean, plural

IDLE_S = 600.0
"""From here on a process without a samples and CPU counts as idle."""
IDLE_CPU_PCT = 1.0
QUIET_S = 60.0
"""A worker that was seen computing may pause that long (evaluation, checkpoint)."""
BUSY_CPU_PCT = 10.0
"""Threads that only wait and poll (NCCL watchdog, heartbeats) take 1 or 2 %, a checkpoint 100."""

REAPERS = frozenset(
    (
        *("systemd", "init", "launchd", "tini", "dumb-init", "docker-init", "catatonit"),
        *("conmon", "s6-svscan", "runsv"),
    )
)
"""Short names of programs that adopt orphans and start no training workers themselves."""

_PYTHON = re.compile(
    r"python|torchrun|accelerate|deepspeed|ipykernel|jupyter|ray|vllm|sglang", re.I
)
_LAUNCHER = re.compile(
    r"mpirun|mpiexec|orted|prterun|prted|srun|slurmstepd|hydra|(?:^|/)(?:ba|da|z|k)?sh\b", re.I
)
_SPAWNED = re.compile(
    r"from multiprocessing\.(?:spawn|forkserver)|popen_loky|^VLLM::|^ray::|^sglang::"
)
_NOTEBOOK = re.compile(r"ipykernel|jupyter|colab_kernel|marimo")
_SERVICE = re.compile(
    r"^(?:nvidia-cuda-mps|nvidia-persiste|nv-hostengine|nv-fabricmanager|dcgm|Xorg|Xwayland|gnome-shell|kwin_)"
)


@dataclass(frozen=True, slots=True)
class Parent:
    """The process that is the parent now."""

    pid: int
    name: str
    command: tuple[str, ...] = ()

    @property
    def adopts(self) -> bool:
        """It is the kind of process to which orphans go."""
        return self.pid == 1 or self.name in REAPERS or self.name.startswith("containerd-shim")


@dataclass(frozen=True, slots=True)
class Suspect:
    """All that the rule looks at. Times in seconds, CPU in percent of one core."""

    pid: int
    name: str = ""
    command: tuple[str, ...] = ()
    state: str | None = "S"
    """As in /proc/PID/stat; None: the pid does not exist."""
    computes: bool = False
    """An SM sample above 0 in this tick."""
    samples_known: bool = True
    """False where the driver gives no sample per process (MIG) or the GPU does not answer."""
    graphics_only: bool = False
    cpu_pct: float | None = None
    """None: there is no second reading yet."""
    quiet_s: float | None = None
    """Since its last SM sample; None: none was seen."""
    idle_s: float = 0.0
    """How long it was watched without a sample and with CPU under 1 %."""
    age_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of its whole life."""
    parent: Parent | None = None
    """None: not known (another namespace, or hidden)."""
    first_ppid: int | None = None
    """The parent when it was first seen, if that has changed since: the launcher is gone."""
    group: int = 0
    session: int = 0
    leader: str = "alive"
    """Of its process group: ``alive``, ``zombie`` or ``gone``."""
    survivors: tuple[int, ...] = ()
    """For a zombie or a pid that is gone: living processes of its session or group."""
    threads: int = 1
    has_terminal: bool = False
    hangup_ignored: bool | None = False
    multiplexed: bool = False
    """The tmux or screen server that it was started under is alive."""
    contained: bool = False
    """It or the cockpit runs in a container: ppid 1 says nothing then."""
    local_rank: int | None = None
    rank: int | None = None
    launched: bool = False
    """A launcher has left its marks on it; RANK alone can be set by hand."""
    directory_deleted: bool = False

    @property
    def survives_hangup(self) -> bool:
        """Or it is not known: then it is not called stray for that."""
        return self.hangup_ignored is not False


def judge(suspect: Suspect) -> Stray | None:
    """The first of the four reasons that holds; None: not stray."""
    if suspect.computes or _SERVICE.match(suspect.name):
        return None
    if suspect.state in (None, "Z", "X"):
        return _dead_leader(suspect)
    return (
        _launcher_gone(suspect)
        or _leader_gone(suspect)
        or _orphan_idle(suspect)
        or _directory_deleted(suspect)
    )


def worker(suspect: Suspect) -> str | None:
    """What kind of worker it is, for the sentence; None: no worker."""
    if suspect.name.startswith("pt_data"):
        return "DataLoader worker"
    line = " ".join(suspect.command)[:400]
    if _SPAWNED.search(line) or _SPAWNED.search(suspect.name):
        return "multiprocessing worker"
    # Kubernetes sets RANK for a pod's first process, which no launcher started.
    number = suspect.local_rank if suspect.contained or suspect.rank is None else suspect.rank
    return None if number is None else f"rank {number}"


def idles(suspect: Suspect) -> bool:
    """No SM sample and CPU under 1 % for ten minutes, watched or, at first sight, over its life."""
    if not suspect.samples_known or (suspect.cpu_pct or 0.0) >= BUSY_CPU_PCT:
        return False
    if suspect.idle_s >= IDLE_S:
        return True
    lazy = suspect.cpu_s < suspect.age_s * IDLE_CPU_PCT / 100
    return suspect.quiet_s is None and suspect.age_s >= IDLE_S and lazy


def _rests(suspect: Suspect) -> bool:
    """It computes nothing: the weaker condition for a process whose job is broken anyway."""
    if not suspect.samples_known:
        return suspect.idle_s >= IDLE_S
    quiet = suspect.quiet_s is None or suspect.quiet_s >= QUIET_S
    return quiet and (suspect.cpu_pct or 0.0) < BUSY_CPU_PCT


def _dead_leader(suspect: Suspect) -> Stray | None:
    """(a), seen from the dead leader that the driver still lists."""
    state = "is gone" if suspect.state is None else "has ended (zombie)"
    if suspect.survivors:
        verb = "holds" if len(suspect.survivors) == 1 else "hold"
        return Stray(
            reason="leader_gone",
            sentence=f"it {state}, but {pid_list(suspect.survivors)} of its session {verb} "
            "on to its memory",
        )
    if suspect.state == "Z" and suspect.threads > 1:
        return Stray(
            reason="leader_gone",
            sentence="its main thread has ended (zombie), but "
            f"{plural(suspect.threads - 1, 'thread')} of it still run and hold its memory",
        )
    return None


def _launcher_gone(suspect: Suspect) -> Stray | None:
    """(b): a worker whose launcher is gone."""
    kind = worker(suspect)
    if kind is None or not _lost_launcher(suspect, kind) or not _rests(suspect):
        return None
    if _is_by_hand(suspect, kind) or _is_young(suspect, kind):
        return None
    launcher, idle = _launcher_pid(suspect), _idle_words(suspect)
    return Stray(
        reason="launcher_gone",
        sentence=f"{kind}: its launcher{launcher} is gone, and it {idle}",
    )


def _is_by_hand(suspect: Suspect, kind: str) -> bool:
    """``RANK=0 nohup python train.py``: the shell that is gone was no launcher, and the job is
    detached. Ranks of torchrun have SIGHUP ignored, too, when torchrun was under nohup."""
    return kind.startswith("rank") and not suspect.launched and _is_detached(suspect)


def _is_young(suspect: Suspect, kind: str) -> bool:
    """It may be starting up still: nobody saw its launcher go, and it may be meant to run alone."""
    doubtful = suspect.survives_hangup or (kind.startswith("rank") and not suspect.launched)
    unseen = suspect.first_ppid is None and suspect.quiet_s is None
    return doubtful and unseen and suspect.age_s < QUIET_S


def _lost_launcher(suspect: Suspect, kind: str) -> bool:
    parent = suspect.parent
    if suspect.first_ppid is not None:
        return True
    if parent is None or not parent.adopts:
        return False
    line = " ".join(parent.command)[:400] or parent.name
    # In a container pid 1 may well be the training itself, or a script that starts the ranks.
    return not (_PYTHON.search(line) or (kind.startswith("rank") and _LAUNCHER.search(line)))


def _leader_gone(suspect: Suspect) -> Stray | None:
    """(a), seen from a living process: the leader of its group is dead and nobody took over."""
    if suspect.leader == "alive" or suspect.group == suspect.pid or _is_detached(suspect):
        return None
    # "prep | train": the group's leader may end long before the rest; the shell is still there.
    if not _is_orphan(suspect) or suspect.has_terminal or not _rests(suspect):
        return None
    dead = "is a zombie" if suspect.leader == "zombie" else "is gone"
    leader, idle = f"the leader of its group (pid {suspect.group})", _idle_words(suspect)
    return Stray(reason="leader_gone", sentence=f"{leader} {dead}, and it {idle}")


def _orphan_idle(suspect: Suspect) -> Stray | None:
    """(c): an orphan without a terminal that idles and that nobody detached on purpose."""
    if not _is_orphan(suspect) or suspect.has_terminal or _is_detached(suspect):
        return None
    if suspect.graphics_only or _is_notebook(suspect) or not idles(suspect):
        return None
    parent, idle = f"its parent{_launcher_pid(suspect)} is gone", _idle_words(suspect)
    return Stray(reason="orphan_idle", sentence=f"{parent}, it has no terminal, and it {idle}")


def _directory_deleted(suspect: Suspect) -> Stray | None:
    """(d): nobody can want its results where it writes them."""
    if not suspect.directory_deleted or _is_detached(suspect) or _is_notebook(suspect):
        return None
    if not idles(suspect):
        return None
    return Stray(
        reason="directory_deleted",
        sentence=f"its working directory was deleted, and it {_idle_words(suspect)}",
    )


def _is_orphan(suspect: Suspect) -> bool:
    if suspect.first_ppid is not None:
        return True
    return not suspect.contained and suspect.parent is not None and suspect.parent.adopts


def _is_detached(suspect: Suspect) -> bool:
    """nohup, tmux, or setsid (also every systemd service: systemd gives each its own session)."""
    own_session = suspect.session == suspect.pid and not suspect.has_terminal
    parent_lives = suspect.parent is not None and not suspect.parent.adopts
    return suspect.survives_hangup or suspect.multiplexed or (own_session and not parent_lives)


def _is_notebook(suspect: Suspect) -> bool:
    return bool(_NOTEBOOK.search(" ".join(suspect.command)[:400]))


def _launcher_pid(suspect: Suspect) -> str:
    if suspect.first_ppid is not None:
        return f" (pid {suspect.first_ppid})"
    if suspect.leader == "gone" and suspect.group not in (0, suspect.pid):
        return f" (pid {suspect.group})"
    return ""


def _idle_words(suspect: Suspect) -> str:
    """``has computed nothing for 12 min``, with the longest time that we can vouch for."""
    if suspect.idle_s >= QUIET_S:
        return f"has computed nothing for {minutes(suspect.idle_s)}"
    if suspect.quiet_s is not None:
        return f"has had no kernel on a GPU for {minutes(suspect.quiet_s)}"
    if suspect.age_s >= IDLE_S and suspect.cpu_s < suspect.age_s * IDLE_CPU_PCT / 100:
        life = minutes(suspect.age_s)
        return f"computes nothing: {suspect.cpu_s:.1f} s of CPU in the {life} of its life"
    return "computes nothing"


def minutes(seconds: float) -> str:
    """``12 min``, ``3 h 12 min``, ``2 days``: coarse, so that a sentence changes once a minute."""
    total = int(seconds // 60)
    if total < 60:
        return f"{total} min"
    if total < 2880:
        return f"{total // 60} h {total % 60} min"
    return f"{total // 1440} days"


def pid_list(pids: Sequence[int], limit: int = 4) -> str:
    """``pid 12``, ``pids 12, 13 and 2 more``."""
    shown = ", ".join(map(str, pids[:limit]))
    more = f" and {len(pids) - limit} more" if len(pids) > limit else ""
    return clean(("pid " if len(pids) == 1 else "pids ") + shown + more)
