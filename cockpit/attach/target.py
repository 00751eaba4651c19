"""What /proc says about a process that is to be attached, and about us who ask. Reads only."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

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

    @property
    def uid(self) -> int:
        """Effective."""
        return self.uids[1]


def look(pid: int, proc: str = "/proc") -> Target | None:
    """None: no such process, ended while we looked, or hidden from us."""
    try:
        stat = _stat(proc, pid)
        status = _status(proc, str(pid))
        if not stat or "Uid" not in status or _stat(proc, pid)[19:20] != stat[19:20]:
            return None
        owner = os.stat(f"{proc}/{pid}/environ").st_uid
    except OSError:
        return None
    uids = _numbers(status["Uid"])
    return Target(
        pid=pid,
        start_ticks=int(stat[19]),
        inner_pid=_numbers(status.get("NSpid", str(pid)))[-1],
        leader_pid=int(status.get("Tgid", pid)),
        state=stat[0],
        tracer_pid=int(status.get("TracerPid", "0")),
        uids=uids,
        gids=_numbers(status["Gid"]),
        groups=_numbers(status.get("Groups", "")),
        protected=owner != uids[1],
        shadow_stack="shstk" in status.get("x86_Thread_features", ""),
    )


def name_of(pid: int, proc: str = "/proc") -> str:
    """Short name of a process; ``?`` when it cannot be read."""
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "?"
    except OSError:
        return "?"


def user_name(uid: int) -> str:
    """The account's name, or the number as ps prints it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def yama_scope(proc: str = "/proc") -> int:
    """kernel.yama.ptrace_scope; 0 where the kernel has no Yama."""
    try:
        with open(f"{proc}/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def environment(pid: int, proc: str = "/proc") -> dict[str, str]:
    """What it was started with; empty where not readable."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            raw = file.read(1 << 20)
    except OSError:
        return {}
    items = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in items}


def arguments(pid: int, proc: str = "/proc") -> tuple[str, ...]:
    """argv; empty where not readable."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            return tuple(os.fsdecode(word) for word in file.read(1 << 20).split(b"\0")[:-1])
    except OSError:
        return ()


def same_namespace(pid: int, kind: str, proc: str = "/proc") -> bool | None:
    """Shares that namespace (``mnt``, ``net``, ``pid``) with us; None where not readable."""
    try:
        return os.readlink(f"{proc}/{pid}/ns/{kind}") == os.readlink(f"{proc}/self/ns/{kind}")
    except OSError:
        return None


def in_container() -> bool:
    """The usual marks of Docker, Podman and Kubernetes."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(os.path.exists(mark) for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def _stat(proc: str, pid: int) -> list[str]:
    with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _status(proc: str, pid: str) -> dict[str, str]:
    with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in file)}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())
