"""What a process is doing, read from outside by py-spy: no pause, no signal, GIL or not.

Always ``--nonblocking``: the process is never stopped, so frames may be torn now and then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from cockpit.model.text import clean

LIMIT_S = 3.0
"""A dump takes 10 ms; a machine under load makes it wait."""
ABSENT = "py-spy is not installed: pip install py-spy"


class Frame(msgspec.Struct, frozen=True):
    """One Python frame, innermost first in its list."""

    name: str
    filename: str
    line: int
    short_filename: str | None = None

    @property
    def place(self) -> str:
        """``all_reduce (distributed_c10d.py:3252)``."""
        file = os.path.basename(self.short_filename or self.filename)
        return clean(f"{self.name} ({file}:{self.line})")


class Thread(msgspec.Struct, frozen=True):
    """One Python thread."""

    pid: int
    thread_id: int
    thread_name: str | None
    os_thread_id: int | None
    active: bool
    """Of little worth: a thread that holds the GIL inside a sleep in C shows as idle."""
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Dump:
    """All threads, or one sentence why not."""

    threads: tuple[Thread, ...] = ()
    failure: str | None = None

    @property
    def main(self) -> Thread | None:
        """The thread whose id is the pid; else the one py-spy calls MainThread."""
        by_id = [thread for thread in self.threads if thread.os_thread_id == thread.pid]
        named = [thread for thread in self.threads if thread.thread_name == "MainThread"]
        return next(iter(by_id + named), None)

    @property
    def inside(self) -> str | None:
        """Where the main thread is: ``recv (socket.py:12)``."""
        main = self.main
        return main.frames[0].place if main and main.frames else None


_THREADS = msgspec.json.Decoder(tuple[Thread, ...])


def find_py_spy() -> str | None:
    """Beside our Python (a virtual environment that is not activated), or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def dump(pid: int, limit_s: float = LIMIT_S) -> Dump:
    """Stacks of all Python threads of a process. Never raises, never takes longer than limit_s."""
    program = find_py_spy()
    if program is None:
        return Dump(failure=ABSENT)
    argv = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    environment = {"PATH": os.environ.get("PATH", ""), "RUST_BACKTRACE": "0"}
    try:
        run = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Dump(failure=f"py-spy did not answer within {limit_s:g} s.")
    except OSError as error:
        return Dump(failure=f"py-spy cannot be run: {error.strerror}.")
    if run.returncode != 0:
        return Dump(failure=_failure(pid, run.stderr))
    try:
        return Dump(_THREADS.decode(run.stdout))
    except msgspec.MsgspecError:
        return Dump(failure="py-spy answered something that cannot be read.")


def _failure(pid: int, raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if "ermission" in text:
        return f"The stacks of pid {pid} cannot be read without more rights: use sudo."
    # Its one line hides before or behind a Rust backtrace.
    lines = [line.removeprefix("Error: ").strip() for line in text.splitlines() if line.strip()]
    return clean(f"py-spy: {lines[0]}")[:300] if lines else "py-spy failed without a word."
