"""Who may be signalled, and the sentence why not. Pure: judges what ``identity`` has read.

Programs are known by the file that runs and by the kernel's short name, never by argv: argv is
whatever the process likes to claim.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from signal import Signals
from typing import NamedTuple

from cockpit.act.identity import Subject
from cockpit.errors import UsageError
from cockpit.model import kill_words
from cockpit.model.action import SIGNALS, RefusalCode
from cockpit.model.text import clean
from cockpit.procfs import Stat


class Refusal(NamedTuple):
    """No, and why."""

    code: RefusalCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks."""

    uid: int
    pid: int
    ancestors: frozenset[int]
    readonly: bool = False

    @property
    def root(self) -> bool:
        """May signal other users' processes, with the pid typed."""
        return self.uid == 0


def viewer(stats: Mapping[int, Stat], readonly: bool) -> Viewer:
    """This process, as the one who asks."""
    return Viewer(os.geteuid(), os.getpid(), ancestors(os.getpid(), stats), readonly)


def ancestors(pid: int, stats: Mapping[int, Stat]) -> frozenset[int]:
    """Parents up to the first: face, shell, tmux server, sshd session."""
    found: set[int] = set()
    stat = stats.get(pid)
    while stat is not None and stat.ppid and stat.ppid not in found:
        found.add(stat.ppid)
        stat = stats.get(stat.ppid)
    return frozenset(found)


def signal_name(text: str) -> str:
    """``term`` and ``SIGTERM`` are TERM. Raises UsageError for a signal that is not offered."""
    name = text.strip().upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(kill_words.not_offered(text))
    return name


def signal_number(name: str) -> int:
    """The number here, of a name from SIGNALS."""
    return Signals[f"SIG{name}"].value


def judge(subject: Subject, who: Viewer) -> Refusal | None:
    """None: may be signalled (as root, other users' processes only with the text typed)."""
    for rule in _RULES:
        refusal = rule(subject, who)
        if refusal is not None:
            return refusal
    return None


def foreign(subject: Subject, who: Viewer) -> bool:
    """Belongs to another user."""
    return subject.uid != who.uid


class _Kind(NamedTuple):
    what: str
    instead: str
    programs: tuple[str, ...]


_DESKTOP = "end the graphical session from its menu, or ask the administrator"
_PROTECTED = (
    _Kind(
        "the ssh server, by which people are logged in",
        "leave the session with exit",
        ("sshd", "sshd-session", "sshd-auth", "dropbear"),
    ),
    _Kind(
        "a display server: the desktop and all its windows would end",
        _DESKTOP,
        ("X", "Xorg", "Xorg.bin", "Xwayland", "Xvnc", "Xtigervnc", "gnome-shell", "mutter*"),
    ),
    _Kind(
        "a display server: the desktop and all its windows would end",
        _DESKTOP,
        ("sddm*", "gdm*", "lightdm", "weston", "kwin*", "sway", "Hyprland", "cinnamon", "labwc"),
    ),
    _Kind(
        "the NVIDIA persistence daemon, which keeps the driver initialised and holds no memory",
        "an administrator may run: sudo systemctl restart nvidia-persistenced",
        ("nvidia-persistenced",),
    ),
    _Kind(
        "the fabric manager: without it every job on NVSwitch GPUs fails",
        "an administrator may run: sudo systemctl restart nvidia-fabricmanager",
        ("nv-fabricmanager", "nvlsm"),
    ),
    _Kind(
        "DCGM, which watches the GPUs for the whole machine",
        "an administrator may run: sudo systemctl restart nvidia-dcgm",
        ("nv-hostengine", "dcgm*"),
    ),
    _Kind(
        "the CUDA MPS daemon: every client of it on this GPU would fail",
        "end the client process, or stop MPS with: echo quit | nvidia-cuda-mps-control",
        ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    ),
    _Kind(
        "the container service: its containers depend on it",
        "stop the one container, for example with: docker stop NAME",
        ("dockerd", "containerd", "containerd-shim*", "conmon", "crio"),
    ),
    _Kind(
        "the Kubernetes node agent",
        "delete the pod with: kubectl delete pod NAME",
        ("kubelet",),
    ),
    _Kind(
        "Slurm's own daemon: it looks after the jobs of this node",
        "cancel the job with: scancel JOBID",
        ("slurmd", "slurmstepd", "slurmctld"),
    ),
    _Kind(
        "a service of the system",
        "let an administrator use systemctl for it",
        ("systemd", "systemd-*", "(sd-pam)", "dbus-daemon", "dbus-broker*"),
    ),
)


def _readonly(_subject: Subject, who: Viewer) -> Refusal | None:
    if not who.readonly:
        return None
    return Refusal("readonly", kill_words.READONLY)


def _first_process(subject: Subject, _who: Viewer) -> Refusal | None:
    if subject.pid != 1:
        return None
    return _protected(
        subject, "PID 1: all else here ends with it", "stop the container, or shut down the machine"
    )


def _kernel_thread(subject: Subject, _who: Viewer) -> Refusal | None:
    if not subject.stat.kernel_thread:
        return None
    return _protected(subject, "a thread of the kernel", "nothing; signals do not reach it")


def _ourselves(subject: Subject, who: Viewer) -> Refusal | None:
    if subject.pid == who.pid:
        return _protected(subject, "this cockpit itself", "quit with q")
    if subject.pid in who.ancestors:
        what = "an ancestor of this cockpit, which would end with it"
        return _protected(subject, what, "leave it by quitting the cockpit and then with exit")
    return None


def _named(subject: Subject, _who: Viewer) -> Refusal | None:
    for kind in _PROTECTED:
        if any(_runs(subject, program) for program in kind.programs):
            return _protected(subject, kind.what, kind.instead)
    return None


def _other_user(subject: Subject, who: Viewer) -> Refusal | None:
    if who.root or not foreign(subject, who):
        return None
    return Refusal(
        "not_permitted",
        f"pid {subject.pid} belongs to another user (uid {subject.uid}): ask them or root",
    )


_RULES: tuple[Callable[[Subject, Viewer], Refusal | None], ...] = (
    _readonly,
    _first_process,
    _kernel_thread,
    _ourselves,
    _named,
    _other_user,
)


def _protected(subject: Subject, what: str, instead: str) -> Refusal:
    name = clean(subject.executable or subject.stat.name)
    return Refusal("protected", f"pid {subject.pid} ({name}) is {what}; instead: {instead}")


def _runs(subject: Subject, program: str) -> bool:
    # The kernel cuts the short name to 15 bytes: nvidia-persistenced is nvidia-persiste there.
    name = subject.stat.name
    cut = len(name) == 15 and program.startswith(name)
    return cut or any(fnmatchcase(each, program) for each in (name, subject.executable) if each)
