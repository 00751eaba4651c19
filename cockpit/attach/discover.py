"""Which processes have an agent, and where its socket is, containers included.

An agent listens at ``$XDG_RUNTIME_DIR/cockpit/<pid>.sock`` or ``/tmp/cockpit-<uid>/<pid>.sock``;
both as the process sees them, so they are reached through /proc/PID/root, and the pid is the one
in its own namespace. /proc/PID/net/unix lists what really listens, whatever the convention; it
keeps the name at bind, ``<pid>.new``: the agent renames its socket when it listens.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from cockpit.agent.agent import socket_directories
from cockpit.attach import target as targets

_BOUND = re.compile(r"(.*/cockpit(?:-\d+)?/)(\d+)\.(?:sock|new)", re.DOTALL)
_LISTENING = "00010000"
"""__SO_ACCEPTCON in the Flags column (net/unix/af_unix.c)."""
_HOMES_KEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class AgentSocket:
    """A process with an agent."""

    pid: int
    inner_pid: int
    path: str
    """As we reach it: through /proc/PID/root."""


def find(pid: int, proc: str = "/proc") -> AgentSocket | None:
    """The agent's socket of one process; None: it has none, or we may not look."""
    found = targets.look(pid, proc)
    if found is None:
        return None
    name = f"{found.inner_pid}.sock"
    agents = _agents(f"{proc}/{pid}/net/unix") or []
    listening = [folder + name for folder, number in agents if number == found.inner_pid]
    usual = [f"{folder}/{name}" for folder in _folders(pid, found.uid, proc)]
    for path in dict.fromkeys([*listening, *usual]):
        reached = f"{proc}/{pid}/root{path}"
        if _is_socket(reached, found.uid):
            return AgentSocket(pid, found.inner_pid, reached)
    return None


class Finder:
    """Finds agents again and again; where a process lives is remembered for half a minute.

    Asking 500 processes for their namespaces costs as much as a tenth of a whole tick.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._namespaces: dict[int, str] = {}
        self._inner_pids: dict[int, int | None] = {}
        self._forget_s = 0.0

    def find_all(self, pids: Iterable[int]) -> list[AgentSocket]:
        """Those of the given processes that have an agent.

        net/unix is read once per network namespace; a process whose inner pid is not named in its
        namespace's list is not looked at any further.
        """
        if time.monotonic() >= self._forget_s:
            self._forget_s = time.monotonic() + _HOMES_KEPT_S
            self._namespaces, self._inner_pids = {}, {}
        named: dict[str, frozenset[int]] = {}
        found = []
        for pid in pids:
            namespace = self._namespaces.get(pid)
            if namespace is None:
                namespace = self._namespaces[pid] = _link(f"{self._proc}/{pid}/ns/net")
            if namespace not in named:
                agents = _agents(f"{self._proc}/{pid}/net/unix")
                if agents is None:  # it has ended: its namespace is not empty for that
                    self._namespaces.pop(pid, None)
                    self._inner_pids.pop(pid, None)
                    continue
                named[namespace] = frozenset(number for _, number in agents)
            if named[namespace] and self._inner_pid(pid) in named[namespace]:
                agent = find(pid, self._proc)
                found += [agent] if agent else []
        return found

    def _inner_pid(self, pid: int) -> int | None:
        if pid not in self._inner_pids:
            self._inner_pids[pid] = targets.inner_pid(pid, self._proc)
        return self._inner_pids[pid]


def pids_with_sockets(uid: int | None = None, runtime_dir: str | None = None) -> set[int]:
    """Pids by the names of a user's own sockets: also of runs that hold no GPU memory."""
    runtime = runtime_dir if runtime_dir is not None else os.environ.get("XDG_RUNTIME_DIR")
    found: set[int] = set()
    for folder in socket_directories(os.getuid() if uid is None else uid, runtime):
        with suppress(OSError):
            names = [name.removesuffix(".sock") for name in os.listdir(folder)]
            found |= {int(name) for name in names if name.isdigit()}
    return found


def _folders(pid: int, uid: int, proc: str) -> Iterator[str]:
    runtime = targets.environment(pid, proc).get("XDG_RUNTIME_DIR", "")
    for parent in (runtime, f"/run/user/{uid}"):
        if parent.startswith("/"):
            yield f"{parent.rstrip('/')}/cockpit"
    yield f"/tmp/cockpit-{uid}"


def _is_socket(path: str, uid: int) -> bool:
    # The directory is the guard, as in the agent: private, and of the process's own user.
    try:
        folder, status = os.lstat(os.path.dirname(path)), os.lstat(path)
    except OSError:
        return False
    private = stat.S_ISDIR(folder.st_mode) and not folder.st_mode & 0o077
    return stat.S_ISSOCK(status.st_mode) and private and folder.st_uid == status.st_uid == uid


def _agents(path: str) -> list[tuple[str, int]] | None:
    """Folder (with its slash) and inner pid of each listening socket that may be an agent's.

    None: it cannot be read, or its process has no network any more (a zombie's list is empty).
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    if not lines:
        return None
    found = []
    for line in lines:
        fields = line.rstrip("\n").split(None, 7)
        if len(fields) < 8 or fields[3] != _LISTENING:
            continue
        if match := _BOUND.fullmatch(fields[7]):
            found.append((match[1], int(match[2])))
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return path
