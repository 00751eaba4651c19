"""What /proc says about a process that is to be attached, and about us who ask. Reads only."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cockpit import procfs
from cockpit.procfs import Gap

CAP_SYS_PTRACE = 19


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants to attach."""

    pid: int
    uid: int
    gid: int
    ptrace_capability: bool
    """CAP_SYS_PTRACE is effective: root has it, unless a container took it away."""
    container: bool

    @classmethod
    def of_this_process(cls, proc: str = "/proc") -> Asker:
        """As the kernel judges it: effective ids and capabilities."""
        effective = int(_status(proc, "self").get("CapEff", "0"), 16)
        allowed = bool(effective >> CAP_SYS_PTRACE & 1)
        return cls(os.getpid(), os.geteuid(), os.getegid(), allowed, in_container())


@dataclass(frozen=True, slots=True)
class Target:
    """One process at one moment."""

    pid: int
    start_ticks: int
    inner_pid: int
    """Its pid in its own namespace: the name of its socket."""
    leader_pid: int
    state: str
    """Letter of /proc/PID/stat."""
    tracer_pid: int
    uids: tuple[int, ...]
    """Real, effective, saved, file system."""
    gids: tuple[int, ...]
    groups: tuple[int, ...]
    protected: bool
    """Not dumpable: its files in /proc belong to root instead of to its user."""
    shadow_stack: bool
    """CET: a return to an address that no call has pushed is a fault."""
    kernel_thread: bool = False

    @property
    def uid(self) -> int:
        """Effective."""
        return self.uids[1]


def look(pid: int, proc: str = "/proc") -> Target | None:
    """None: no such process, ended while we looked, or hidden from us."""
    stat, status, again = procfs.stat(proc, pid), _status(proc, str(pid)), procfs.stat(proc, pid)
    if isinstance(stat, Gap) or isinstance(again, Gap) or "Uid" not in status:
        return None
    try:
        owner = os.stat(f"{proc}/{pid}/environ").st_uid
    except OSError:
        return None
    if again.start_ticks != stat.start_ticks:
        return None
    uids = _numbers(status["Uid"])
    return Target(
        pid=pid,
        start_ticks=stat.start_ticks,
        inner_pid=_numbers(status.get("NSpid", str(pid)))[-1],
        leader_pid=int(status.get("Tgid", pid)),
        state=stat.state,
        tracer_pid=int(status.get("TracerPid", "0")),
        uids=uids,
        gids=_numbers(status["Gid"]),
        groups=_numbers(status.get("Groups", "")),
        protected=owner != uids[1],
        shadow_stack="shstk" in status.get("x86_Thread_features", ""),
        kernel_thread=stat.kernel_thread,
    )


def inner_pid(pid: int, proc: str = "/proc") -> int | None:
    """Its pid in its own namespace; None: no such process, or hidden from us."""
    status = _status(proc, str(pid))
    return _numbers(status.get("NSpid", str(pid)))[-1] if status else None


def name_of(pid: int, proc: str = "/proc") -> str:
    """Short name of a process; ``?`` when it cannot be read."""
    name = procfs.read(f"{proc}/{pid}/comm")
    return "?" if isinstance(name, Gap) else procfs.text(name).strip() or "?"


def yama_scope(proc: str = "/proc") -> int:
    """kernel.yama.ptrace_scope; 0 where the kernel has no Yama."""
    try:
        with open(f"{proc}/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def environment(pid: int, proc: str = "/proc") -> dict[str, str]:
    """What it was started with; empty where not readable."""
    found = procfs.environment(proc, pid, 1 << 20)
    return {} if isinstance(found, Gap) else found


def arguments(pid: int, proc: str = "/proc") -> tuple[str, ...]:
    """argv, or its first 4 kB; empty where not readable."""
    found = procfs.command(proc, pid)
    return () if isinstance(found, Gap) else found


def same_namespace(pid: int, kind: str, proc: str = "/proc") -> bool | None:
    """Shares that namespace (``mnt``, ``net``, ``pid``) with us; None where not readable."""
    its = procfs.read_link(f"{proc}/{pid}/ns/{kind}")
    ours = procfs.read_link(f"{proc}/self/ns/{kind}")
    return None if isinstance(its, Gap) or isinstance(ours, Gap) else its == ours


def in_container() -> bool:
    """The usual marks of Docker, Podman and Kubernetes."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(os.path.exists(mark) for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def _status(proc: str, pid: str) -> dict[str, str]:
    """All lines, the list of groups may be long; empty where not readable."""
    raw = procfs.read_long(f"{proc}/{pid}/status", 1 << 20)
    lines = () if isinstance(raw, Gap) else procfs.text(raw).splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())
