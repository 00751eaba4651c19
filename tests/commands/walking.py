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
from collections.abc import Sequence
from pathlib import Path

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
