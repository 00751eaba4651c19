"""Real processes to be killed, and a driver that notices their end 0.1 s later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from cockpit.act.identity import read_stat
from cockpit.act.signal import Kills
from cockpit.model.action import KillRequest, KillResult, Target

GIB = 1 << 30
HELD = int(14.3 * GIB)
Make = Callable[..., Kills]
SLEEP = "import time; print('ready', flush=True); time.sleep(300)"
IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
# Prints the pid of a leader that is dead but not collected, and of the child that it left behind.
ZOMBIE = """
import os, signal, sys, time
read, write = os.pipe()
leader = os.fork()
if leader == 0:
    os.setsid()
    child = os.fork()
    if child and "two" in sys.argv and os.fork() == 0:
        time.sleep(20)
    if child == 0:
        if "ignore" in sys.argv:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write, str(os.getpid()).encode())
        time.sleep(300)
    os._exit(0)
child = os.read(read, 20).decode()
if "reap" in sys.argv:
    os.waitpid(leader, 0)
print(leader, child, flush=True)
time.sleep(300)
"""
# A parent with two children, of which the second has a child; prints the four pids.
TREE = """
import os, time
first = os.fork() or time.sleep(300)
read, write = os.pipe()
second = os.fork()
if second == 0:
    grandchild = os.fork() or time.sleep(300)
    os.write(write, str(grandchild).encode())
    time.sleep(300)
print(os.getpid(), first, second, os.read(read, 20).decode(), flush=True)
time.sleep(300)
"""


class Procs:
    """Starts processes and ends them, by pid and start time."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []
        self._seen: dict[int, int] = {}

    def start(self, code: str = SLEEP, *args: str, **options: object) -> int:
        """A Python that has printed its first line."""
        return self.run([sys.executable, "-S", "-c", code, *args], **options).pid

    def run(self, argv: Sequence[str], lines: bool = True, **options: object):
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **options)
        self._children.append(child)
        self._seen[child.pid] = read_stat(child.pid).start_ticks
        child.first_line = child.stdout.readline() if lines else ""
        return child

    def pids(self, code: str, *args: str, **options: object) -> list[int]:
        """The pids that the code prints; all of them are ended at the end."""
        return self.printed([sys.executable, "-S", "-c", code, *args], **options)

    def printed(self, argv: Sequence[str], **options: object) -> list[int]:
        """The same of any command."""
        found = [int(word) for word in self.run(argv, **options).first_line.split()]
        self.note(*found)
        return found

    def note(self, *pids: int) -> None:
        """To be ended at the end."""
        self._seen |= {pid: stat.start_ticks for pid in pids if (stat := read_stat(pid))}

    def reap(self, pid: int) -> None:
        """Collect a child, so that its pid is free."""
        next(child for child in self._children if child.pid == pid).wait(5)

    def end(self) -> None:
        for pid, ticks in self._seen.items():
            stat = read_stat(pid)
            if stat is not None and stat.start_ticks == ticks:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for child in self._children:
            child.wait(5)
            child.stdout.close()


class FakeVram:
    """The driver: holds ``held`` bytes for a pid until ``keeper`` (itself) has been dead 0.1 s."""

    def __init__(self, held: dict[int, int], keeper: dict[int, int] | None = None) -> None:
        self.held, self.keeper = held, keeper or {}
        self.answers = True
        self.leak = 0
        self.base = 3 * GIB
        self._died: dict[int, float] = {}
        self.calls = 0

    def vram_by_pid(self) -> dict[int, int] | None:
        self.calls += 1
        return self._left() if self.answers else None

    def used_by_gpu(self) -> dict[int, int]:
        left = self._left()
        leak = self.leak if len(left) < len(self.held) else 0
        return {0: self.base + leak + sum(left.values())} if self.answers else {}

    def _left(self) -> dict[int, int]:
        return {pid: held for pid, held in self.held.items() if not self._free(pid)}

    def _free(self, pid: int) -> bool:
        keeper = self.keeper.get(pid, pid)
        if alive(keeper):
            return False
        return time.monotonic() - self._died.setdefault(keeper, time.monotonic()) >= 0.1


AS_OTHER_USER = ("setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups")


def alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.dead


def ticks(pid: int) -> int:
    return read_stat(pid).start_ticks


def ask(*pids: int, **options: object) -> KillRequest:
    return KillRequest(targets=tuple(Target(pid=pid) for pid in pids), **options)


def kill(kills: Kills, *pids: int, **options: object) -> tuple[KillResult, ...]:
    plan = kills.plan(ask(*pids, **options))
    return kills.run(plan.id, plan.typed, [].append)


def wait_dead(pid: int) -> None:
    until(lambda: not alive(pid))


def wait_exec(pid: int, name: str) -> None:
    until(lambda: read_stat(pid).name == name)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
