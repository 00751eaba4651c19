"""Unprepared Python processes to be attached, of every CPython at hand."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

from cockpit.attach.target import look

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
AS_OTHER_USER = ("setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups")

needs_ptrace = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the ptrace way is written for x86-64"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")

# Each says "ready", then does one thing for ever, as a training's main thread might.
BUSY = """
print("ready", flush=True)
while True:
    rows = [str(n) * 3 for n in range(2000)]
    table = {row: [row] for row in rows}
"""
SLEEPS = """
import time
print("ready", flush=True)
while True:
    before = time.monotonic()
    time.sleep(0.05)
    assert 0.049 < time.monotonic() - before
"""
THREADS = """
import threading, time
def work():
    while True:
        sum(range(5000))
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
while True:
    sum(range(5000))
"""
SYSCALLS = """
import os
read, write = os.pipe()
print("ready", flush=True)
while True:
    assert os.write(write, b"x" * 64) == 64
    assert os.read(read, 64) == b"x" * 64
    os.stat("/")
"""
RECEIVES = """
import os, socket, threading, time
left, right = socket.socketpair()
left.settimeout(None)
def send():
    while True:
        time.sleep(0.02)
        right.sendall(b"y")
threading.Thread(target=send, daemon=True).start()
print("ready", flush=True)
while True:
    assert left.recv(1) == b"y"
"""
SELECTS = """
import select, os
read, write = os.pipe()
poll = select.poll()
poll.register(read, select.POLLIN)
print("ready", flush=True)
while True:
    assert poll.poll(30) == []
    assert select.select([read], [], [], 0.03) == ([], [], [])
"""
FLOATS = """
import math
print("ready", flush=True)
def once():
    return sum(math.sin(n * 0.1) * math.exp(-n * 1e-3) for n in range(5000))
first = once()
while True:
    assert once() == first
"""
PROGRAMS = {
    "busy": BUSY,
    "sleeps": SLEEPS,
    "threads": THREADS,
    "syscalls": SYSCALLS,
    "receives": RECEIVES,
    "selects": SELECTS,
    "floats": FLOATS,
}
# Blocked in C with the GIL released: a pending call has to wait for the line on stdin.
BLOCKED = """
import os, sys, time
print("ready", flush=True)
os.read(0, 1)
while True:
    time.sleep(0.01)
"""
# torch is not needed for a checksum. Trains until the file of argv[1] is there (then it prints how
# many steps it made, and its digest), or for as many steps as argv[2] says.
TRAINER = """
import hashlib, os, sys
limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
weights = [float(n % 7) for n in range(300)]
print("ready", flush=True)
digest, step = hashlib.sha256(), 0
while step != limit:
    scale = 1.0 / (1.0 + step % 13)
    weights = [w * 0.9999 + scale * ((i * 31 + step) % 17 - 8) for i, w in enumerate(weights)]
    step += 1
    if step % 1000 == 0:
        # Seldom: sha256 and stat let the GIL go, and who does so every 4 ms starves other threads.
        digest.update(repr(weights).encode())
        if limit is None and os.path.exists(sys.argv[1]):
            break
print(step, digest.hexdigest(), flush=True)
"""


def interpreter(version: str) -> str:
    """A real CPython of that version; skips the test where there is none."""
    found = glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))
    candidates = [*found, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"]
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        candidates.insert(0, os.path.realpath(sys.executable))
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    pytest.skip(f"no CPython {version} here")


class Runs:
    """Starts unprepared processes; ends them by pid and start time."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []

    def start(
        self, code: str = BUSY, *args: str, python: str = sys.executable, before: tuple = ()
    ) -> subprocess.Popen[str]:
        """A process that has printed its first line, ``ready``."""
        child = subprocess.Popen(
            [*before, python, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._children.append(child)
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        return child

    def end(self) -> None:
        for child in self._children:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGCONT)
                child.kill()
            child.wait(5)
            for stream in (child.stdin, child.stdout, child.stderr):
                stream.close()


def ticks(pid: int) -> int:
    return look(pid).start_ticks


def until(true: Callable[[], bool], limit_s: float = 5.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def undisturbed(runs: Runs, result: str) -> str:
    """What a run of as many steps prints that nobody touches."""
    return runs.start(TRAINER, "-", result.split()[0]).stdout.readline()


def unharmed(child: subprocess.Popen[str], for_s: float = 0.1) -> None:
    """It still runs, is not traced, not stopped, and blocks no signals."""
    time.sleep(for_s)
    assert child.poll() is None, child.stderr.read()
    status = Path(f"/proc/{child.pid}/status").read_text()
    field = dict(line.partition(":\t")[::2] for line in status.splitlines())
    assert field["TracerPid"] == "0"
    assert field["State"][0] in "RSD"
    assert int(field["SigBlk"], 16) == 0
