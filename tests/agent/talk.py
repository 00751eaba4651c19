"""A plain client of the agent's protocol, and programs that carry the agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"


class Talk:
    """One connection; ``ask`` gives the whole reply line."""

    def __init__(self, path: str, timeout_s: float = 20.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout_s)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.number = 0

    def send(self, op: str, **arguments: Any) -> int:
        self.number += 1
        line = json.dumps({"v": 1, "id": self.number, "op": op, **arguments})
        self.socket.sendall(line.encode() + b"\n")
        return self.number

    def read(self) -> dict[str, Any]:
        line = self.file.readline()
        if not line:
            raise EOFError
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        number = self.send(op, **arguments)
        while True:
            reply = self.read()
            if reply["id"] == number:
                return reply

    def data(self, op: str, **arguments: Any) -> dict[str, Any]:
        reply = self.ask(op, **arguments)
        assert reply["ok"], reply
        data: dict[str, Any] = reply["data"]
        return data

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program:
    """A running program with the agent in it, and its private folder."""

    def __init__(self, process: subprocess.Popen[bytes], folder: str) -> None:
        self.process = process
        self.folder = folder
        self.pid = process.pid

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.pid}.sock"

    def wait_socket(self, timeout_s: float = 60.0) -> Program:
        wait_for(lambda: os.path.exists(self.path) or self.process.poll() is not None, timeout_s)
        assert self.process.poll() is None, self.process.communicate()
        return self

    def talk(self, timeout_s: float = 20.0) -> Talk:
        return Talk(self.path, timeout_s)

    def wait_steps(self, count: int = 3) -> None:
        with self.talk() as talk:
            wait_for(lambda: talk.data("stats")["step"] >= count, pause_s=0.1)

    def audit(self) -> list[dict[str, Any]]:
        """What the agent wrote into its log."""
        text = Path(f"{self.folder}/{self.pid}.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def end(self) -> tuple[bytes, bytes]:
        """SIGTERM unless it has ended; what it printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()


def wait_for(check: Any, timeout_s: float = 20.0, pause_s: float = 0.02) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause_s)


@contextmanager
def running(
    python: str, program: str, folder: str, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[Program]:
    """Runs tests/agent/programs/PROGRAM with the agent's folder as its first argument."""
    around = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})}
    around.pop("KINETO_LOG_LEVEL", None)
    process = subprocess.Popen(
        [python, str(PROGRAMS / program), folder, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=around,
    )
    found = Program(process, folder)
    try:
        yield found
    finally:
        found.end()
