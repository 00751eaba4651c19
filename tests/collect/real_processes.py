"""Real processes for the tests: started here, ended by pid at the end of the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from cockpit import procfs
from cockpit.collect.readings import ProcessUse

MIB = 1 << 20
T = TypeVar("T")

LAUNCHER = """
import multiprocessing, os, signal, subprocess, sys, time
def own_group(): os.setpgrp()
def ignore_hangup(): os.setpgrp(); signal.signal(signal.SIGHUP, signal.SIG_IGN)
def main(kind):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if kind == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
        child.start()
    else:
        before = {"group": own_group, "nohup": ignore_hangup, "setsid": os.setsid, "same": None}
        child = subprocess.Popen(sys.argv[2:] or ["sleep", "60"], preexec_fn=before[kind])
    print(child.pid, flush=True)
    sys.stdin.read()
    os._exit(0)
if __name__ == "__main__":
    main(sys.argv[1])
"""

ZOMBIE_LEADER = """
import os, sys, time
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
os.close(1)
time.sleep(60)
"""


class Launched:
    """A launcher with one child; ``end_launcher`` makes the child an orphan."""

    def __init__(self, processes: Processes, script: Path, kind: str, argv: list[str]) -> None:
        self.launcher = processes.popen([sys.executable, str(script), kind, *argv])
        assert self.launcher.stdout is not None
        self.pid = int(self.launcher.stdout.readline())
        processes.own(self.pid)

    def end_launcher(self) -> None:
        assert self.launcher.stdin is not None
        self.launcher.stdin.close()
        self.launcher.wait(10)
        wait_until(lambda: parent_of(self.pid) != self.launcher.pid)


class Processes:
    """Starts processes and ends all of them, by pid and start time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[str]] = []
        self._others: list[tuple[int, int | None]] = []

    def popen(self, argv: list[str] | list[bytes], **options: object) -> subprocess.Popen[str]:
        """Returns when its argv can be read: Popen itself is back a little before the exec ends."""
        child: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            argv,
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "text": True,
                "start_new_session": True,
                **options,
            },
        )
        self._children.append(child)
        wait_until(lambda: procfs.command("/proc", child.pid) != () or state_of(child.pid) == "Z")
        return child

    def sleeper(self, **options: object) -> int:
        pid = self.popen(["sleep", "60"], **options).pid
        wait_until(lambda: procfs.command("/proc", pid) == ("sleep", "60") and state_of(pid) == "S")
        return pid

    def launched(self, kind: str, *argv: str) -> Launched:
        script = self._folder / "launcher.py"
        script.write_text(LAUNCHER)
        return Launched(self, script, kind, list(argv))

    def zombie_leader(self) -> tuple[int, int]:
        """(pid of the zombie, pid of its living child)."""
        leader = self.popen([sys.executable, "-c", ZOMBIE_LEADER])
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        self.own(child)
        wait_until(lambda: state_of(leader.pid) == "Z")
        return leader.pid, child

    def own(self, pid: int) -> None:
        self._others.append((pid, start_of(pid)))

    def kill(self, pid: int) -> None:
        """One of our own children, reaped as well."""
        child = next(child for child in self._children if child.pid == pid)
        child.kill()
        child.wait(10)

    def close(self) -> None:
        for pid, start in self._others:
            if start is not None and start_of(pid) == start:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for child in self._children:
            child.kill()
            child.wait(10)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def as_other_user(read: Callable[[], T], kind: type[T], uid: int = 1002) -> T:
    """What a user without rights gets; skips where we cannot become one."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(there, msgspec.json.encode(read()))
        finally:
            os._exit(0)
    os.close(there)
    with open(here, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(answer, type=kind)


def use(pid: int, mib: int = 1000, *, gpu: int = 0, sm: float | None = None) -> ProcessUse:
    return ProcessUse(pid, gpu, "compute", mib * MIB, sm)


def start_of(pid: int) -> int | None:
    stat = procfs.stat("/proc", pid)
    return stat.start_ticks if isinstance(stat, procfs.Stat) else None


def state_of(pid: int) -> str | None:
    stat = procfs.stat("/proc", pid)
    return stat.state if isinstance(stat, procfs.Stat) else None


def parent_of(pid: int) -> int | None:
    stat = procfs.stat("/proc", pid)
    return stat.ppid if isinstance(stat, procfs.Stat) else None


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
