"""``cockpit fix --plain`` as a person uses it: reads up to a prompt, answers, goes on.

The cockpit is a real process with pipes, on a simulated GPU machine (tests/simnvml).
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from cockpit.act.boot import cockpit_command
from cockpit.act.identity import read_stat
from cockpit.attach.run_record import list_runs

T = TypeVar("T")
PROGRAMS = Path(__file__).parent / "programs"
PROMPT = re.compile(r"(?:\[y/N\] |Choose \[1-\d+\]: |type [^\n]+ to go on: )\Z")
"""All that the plain mode may wait at."""
PATIENCE_S = 90.0


class Walk:
    """One `cockpit fix --plain` on its way."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: dict[str, str]) -> None:
        self.said = ""
        """All that came on stdout."""
        self._begun = 0
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.errors = b""

    def prompt(self) -> str:
        """What was said since the last answer, up to the prompt that is open now."""
        end = time.monotonic() + PATIENCE_S
        while not PROMPT.search(self.said[self._begun :]):
            assert time.monotonic() < end, f"no prompt; {self.said}\n{self.errors!r}"
            assert self._read(end), f"ended without a prompt: {self.said}\n{self.errors!r}"
        return self.said[self._begun :]

    def answer(self, text: str) -> str:
        """One line; then what comes up to the next prompt."""
        self.type(text)
        return self.prompt()

    def type(self, text: str) -> None:
        """One line, without waiting for anything."""
        self._begun = len(self.said)
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def choose(self, title: str) -> str:
        """The offer whose line has these words."""
        return self.answer(self.number(title))

    def number(self, title: str) -> str:
        """Of an offer."""
        found = re.findall(r"^  (\d+)\. (.*)$", self.said[self._begun :], re.MULTILINE)
        numbers = [number for number, text in found if title in text]
        assert len(numbers) == 1, f"{title!r} is {numbers} of {found}"
        return numbers[0]

    @property
    def cockpit(self) -> int:
        """The pid of the cockpit itself, inside the box."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for word in children.read_text().split():
            if b"\0fix\0" in Path(f"/proc/{word}/cmdline").read_bytes():
                return int(word)
        raise AssertionError("there is no cockpit in the box")

    def end(self, text: str | None = None) -> int:
        """The exit status; ``text`` is the last answer, None: the end of the input."""
        if text is not None:
            self.type(text)
        assert self._process.stdin is not None
        self._process.stdin.close()
        end = time.monotonic() + PATIENCE_S
        while self._read(end):
            assert time.monotonic() < end, f"it does not end: {self.said}"
        return self._process.wait(10)

    def close(self) -> None:
        """Ends the box, and what it had started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(15)

    def _read(self, end: float) -> bool:
        """False at the end of stdout."""
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        ready = select.select([out, err], [], [], max(0.0, end - time.monotonic()))[0]
        if err in ready:
            self.errors += os.read(err.fileno(), 65536)
        if out in ready:
            data = os.read(out.fileno(), 65536)
            self.said += data.decode()
            return bool(data)
        return True


def in_background(state: Path, work: Path, *argv: str) -> int:
    """``cockpit run --background``; the pid of the run."""
    command = cockpit_command("run", "--background", "--", *argv)
    subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=60)
    return wait_for(lambda: list_runs(str(state)))[0].meta.pid


def end_runs(state: Path) -> None:
    """Ends every run of this state directory that still goes on, with what it has started."""
    for record in list_runs(str(state)):
        stat = read_stat(record.meta.pid)
        if stat is None or stat.dead or stat.start_ticks != record.meta.start_ticks:
            continue
        for pid in (*descendants(record.meta.pid), record.meta.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Children and theirs."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for word in words for found in (*descendants(int(word)), int(word))]


def alive(pid: int) -> bool:
    """A zombie is not."""
    stat = read_stat(pid)
    return stat is not None and not stat.dead


def children_of(pid: int, word: bytes, count: int) -> list[int]:
    """Those with this word in their command, once there are so many; else none."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = [int(one) for one in words if word in Path(f"/proc/{one}/cmdline").read_bytes()]
    except OSError:
        return []
    return found if len(found) == count else []


def wait_for(check: Callable[[], T], limit_s: float = 20.0) -> T:
    """What it gives once that is something."""
    end = time.monotonic() + limit_s
    while not (found := check()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found
