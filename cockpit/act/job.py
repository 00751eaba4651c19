"""Who belongs together: a job's launcher, ranks and children, and who holds on for a dead leader.

Works on one reading of the process table. Finds only; whether a member may be signalled is judged
by ``policy`` for each by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cockpit.act.identity import Subject, look, read_environment
from cockpit.model import kill_words
from cockpit.procfs import Stat

Role = Literal["target", "child", "rank", "holder"]

_LAUNCHERS = frozenset(
    (
        *("torchrun", "accelerate", "deepspeed", "colossalai", "composer", "horovodrun"),
        *("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "orterun", "prterun"),
    )
)
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.",
    "deepspeed.launcher.",
)
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "env", "uv", "conda", "numactl"))
_WORKER_MARKS = ("multiprocessing.spawn", "multiprocessing.forkserver", "--multiprocessing-fork")


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a job."""

    pid: int
    role: Role
    launcher: bool = False
    note: str | None = None

    @property
    def order(self) -> int:
        """Launchers first, for they would start a killed rank again; children last."""
        return 0 if self.launcher else 2 if self.role in ("child", "holder") else 1


class Family:
    """The process table of one moment, seen as a tree."""

    def __init__(
        self, stats: Mapping[int, Stat], look: Callable[[int], Subject | None] = look
    ) -> None:
        self._stats = stats
        self._look = look
        self._children: dict[int, list[int]] = {}
        for stat in stats.values():
            self._children.setdefault(stat.ppid, []).append(stat.pid)

    def descendants(self, pid: int) -> Iterator[Stat]:
        """Living children and theirs, nearer ones first."""
        queue = sorted(self._children.get(pid, ()))
        for each in queue:
            if not self._stats[each].dead:
                yield self._stats[each]
            queue.extend(sorted(self._children.get(each, ())))

    def relatives(self, pid: int) -> tuple[Stat, ...]:
        """Who could keep a device open for it: descendants, and the group or session it leads."""
        return tuple({s.pid: s for s in (*self.descendants(pid), *self._led_by(pid))}.values())

    def holders(self, leader: int, since_ticks: int | None = None) -> tuple[Stat, ...]:
        """Living processes that a dead leader left behind, in its session or group.

        ``leader`` may be a zombie or be reaped already: the kernel does not give its pid to anyone
        while a session or group carries that number.
        """
        zombie = self._stats.get(leader)
        found = {stat.pid: stat for stat in self._led_by(leader)}
        if zombie is not None:
            found |= {stat.pid: stat for stat in self._orphans_of(zombie)}
        return tuple(s for s in found.values() if s.start_ticks >= (since_ticks or 0))

    def members(
        self, target: Subject, gpu_pids: Iterable[int], allowed: Callable[[Subject], bool]
    ) -> tuple[Member, ...]:
        """The rest of the target's job, without the target: launcher, ranks, children.

        A parent that is not ``allowed`` to be signalled heads no job: a cockpit started by it is
        not its rank.
        """
        gpu, head = frozenset(gpu_pids), self._head(target, allowed)
        found = {member.pid: member for member in self._below(head, gpu)}
        for pid in self._same_run(target, gpu):
            found[pid] = Member(pid, "rank")
            for stat in self.descendants(pid):
                found.setdefault(stat.pid, Member(stat.pid, "child"))
        for stat in self.descendants(target.pid):
            found.setdefault(stat.pid, Member(stat.pid, "child"))
        if head.pid != target.pid:
            found[head.pid] = self._as_head(head)
        found.pop(target.pid, None)
        return tuple(sorted(found.values(), key=lambda member: member.order))

    def head(self, target: Subject) -> Subject:
        """The launcher or parent that started it as a rank or worker, or itself."""
        return self._head(target, lambda _: True)

    def _led_by(self, pid: int) -> Iterator[Stat]:
        for stat in self._stats.values():
            if pid in (stat.session, stat.group) and stat.pid != pid and not stat.dead:
                yield stat

    def _orphans_of(self, zombie: Stat) -> Iterator[Stat]:
        """Of a dead member of somebody else's group: only those who lost their parent after it.

        A script's group holds other runs and the script itself: these have a living parent there.
        """
        for stat in self._stats.values():
            parent = self._stats.get(stat.ppid)
            lost = parent is None or parent.session != stat.session
            later = stat.start_ticks >= zombie.start_ticks
            leader = stat.pid in (stat.session, stat.group)
            if stat.group == zombie.group and lost and later and not leader and not stat.dead:
                yield stat

    def _head(self, target: Subject, allowed: Callable[[Subject], bool]) -> Subject:
        """The launcher above it, or the process whose multiprocessing worker it is."""
        head = below = target
        for _ in range(8):
            parent = self._look(below.stat.ppid) if below.stat.ppid > 1 else None
            if parent is None or parent.uid != target.uid or not allowed(parent):
                break
            if is_launcher(parent.command) or _is_worker(below, parent):
                head = parent
            elif not _is_shell(parent):
                break
            below = parent
        return head

    def _below(self, head: Subject, gpu: frozenset[int]) -> Iterator[Member]:
        direct = set(self._first_level(head.pid)) if is_launcher(head.command) else set()
        for stat in self.descendants(head.pid):
            rank = stat.pid in direct or stat.pid in gpu
            yield Member(stat.pid, "rank" if rank else "child")

    def _first_level(self, pid: int) -> Iterator[int]:
        for child in self._children.get(pid, ()):
            subject = self._look(child)
            wraps = subject is not None and (_is_shell(subject) or is_launcher(subject.command))
            if wraps:
                yield from self._first_level(child)
            else:
                yield child

    def _same_run(self, target: Subject, gpu: frozenset[int]) -> Iterator[int]:
        mine = run_marks(read_environment(target.pid), target.stat.session)
        for pid in gpu - {target.pid} if mine else ():
            other = self._look(pid)
            if other is None or other.uid != target.uid:
                continue
            if mine & run_marks(read_environment(pid), other.stat.session):
                yield pid

    @staticmethod
    def _as_head(head: Subject) -> Member:
        if is_launcher(head.command):
            return Member(head.pid, "rank", True, kill_words.LAUNCHER_FIRST)
        return Member(head.pid, "rank", True, "parent of the workers: goes first")


def is_launcher(command: tuple[str, ...]) -> bool:
    """torchrun, accelerate, deepspeed, mpirun and their like, also as ``python -m``."""
    words = _without_interpreter(command)
    if not words:
        return False
    if words[0] == "-m":
        return len(words) > 1 and words[1].startswith(_LAUNCHER_MODULES)
    return os.path.basename(words[0]) in _LAUNCHERS


def run_marks(environment: Mapping[str, str], session: int) -> frozenset[tuple[str, ...]]:
    """What the ranks of one run have in common; empty for a process that is not a rank.

    The session alone would join two runs started from one shell, the port alone an old orphan and
    the run that came after it. torchrun gives each rank its own session, but all of one launch an
    error file below one directory with a random name.
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return frozenset()
    master = tuple(environment.get(n, "") for n in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    marks: set[tuple[str, ...]] = {("session", str(session), *master)}
    launch, found, _ = environment.get("TORCHELASTIC_ERROR_FILE", "").partition("/attempt_")
    if found:
        marks.add(("launch", launch))
    return frozenset(marks)


def _without_interpreter(command: tuple[str, ...]) -> tuple[str, ...]:
    """From the script or ``-m`` on; options of the interpreter itself are skipped."""
    if not command or not os.path.basename(command[0]).startswith("python"):
        return command
    words = command[1:]
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[2:] if words[0] in ("-X", "-W") else words[1:]
    return words


def _is_worker(child: Subject, parent: Subject) -> bool:
    """Made by multiprocessing: spawned by its marks, or forked, which keeps the parent's argv."""
    if any(mark in word for word in child.command for mark in _WORKER_MARKS):
        return child.stat.session == parent.stat.session
    return bool(child.command) and child.command == parent.command and not _is_shell(child)


def _is_shell(subject: Subject) -> bool:
    return (subject.executable or subject.stat.name) in _SHELLS
