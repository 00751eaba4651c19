"""A real terminal for tests: tmux with a server of its own, driven from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMBOX = ROOT / "tests" / "simnvml" / "simbox.py"


class Terminal:
    """One tmux session; the shell in it stays when the program ends."""

    def __init__(self, name: str, cols: int, rows: int, environ: dict[str, str]) -> None:
        self._base = ["tmux", "-L", name, "-f", "/dev/null"]
        settings = [f"{key}={value}" for key, value in environ.items()]
        self._run(
            "new-session", "-d", "-x", str(cols), "-y", str(rows),
            "env", *settings, "PS1=ready$ ", "sh",
        )  # fmt: skip
        self._run("set", "-g", "status", "off")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._base, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, *keys: str) -> None:
        """Keys by tmux's names, or text."""
        self._run("send-keys", *keys)

    def start(self, command: str) -> None:
        """Types a command line."""
        self._run("send-keys", "-l", command)
        self._run("send-keys", "Enter")

    def screen(self, styled: bool = False) -> str:
        """What stands on it now."""
        return self._run("capture-pane", "-p", *(["-e", "-N"] if styled else []))

    def resize(self, cols: int, rows: int) -> None:
        """Another size of the window."""
        self._run("resize-window", "-x", str(cols), "-y", str(rows))

    def wait_for(self, seen: str | Callable[[str], object], within_s: float = 10.0) -> str:
        """The screen once it shows the text (or the condition holds). Fails with the screen."""
        holds = seen if callable(seen) else lambda screen: seen in screen
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            screen = self.screen()
            if holds(screen):
                return screen
            time.sleep(0.03)
        raise AssertionError(f"not within {within_s} s: {seen}\n{screen}")

    def pane_pid(self) -> int:
        """The shell's pid."""
        return int(self._run("display-message", "-p", "#{pane_pid}"))

    def close(self) -> None:
        """End the server and all that runs in it."""
        subprocess.run([*self._base, "kill-server"], capture_output=True)


@contextmanager
def terminal(
    cols: int = 80, rows: int = 24, build: Path | None = None, **environ: str
) -> Iterator[Terminal]:
    """A terminal with a UTF-8 locale and 256 colours unless told otherwise."""
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    settings = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": path, **environ}
    if build is not None:
        settings["SIMNVML_BUILD"] = str(build)
    box = Terminal(f"cockpit-{os.getpid()}-{time.monotonic_ns()}", cols, rows, settings)
    try:
        yield box
    finally:
        box.close()


def cockpit(*arguments: str, scenario: str | None = None) -> str:
    """A command line that runs the cockpit, on a simulated machine if one is named."""
    command = [sys.executable, "-m", "cockpit", *arguments]
    if scenario is not None:
        command = [sys.executable, str(SIMBOX), scenario, "--latency", "real", "--", *command]
    return " ".join(command)


def descendants(pid: int) -> list[int]:
    """All pids below ``pid``, from /proc."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(name)] = int(stat[1])
    found, frontier = [], [pid]
    while frontier:
        children = [child for child, parent in parents.items() if parent in frontier]
        found += children
        frontier = children
    return found
