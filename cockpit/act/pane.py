"""The program in a tmux pane: starts a run as ordered, says how it ended, leaves a shell.

The order comes in a private file that is removed at once: an environment on tmux's command line
could be read by every user of the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import FrameType

_OF_THE_PANE = ("TERM", "TMUX", "TMUX_PANE", "COLORTERM", "COLUMNS", "LINES")
"""Variables that name the terminal: those of the old run would be of another one."""


def write_order(argv: Sequence[str], cwd: str, environment: Mapping[str, str]) -> str:
    """The file for :func:`main`, 0600. Raises OSError."""
    descriptor, path = tempfile.mkstemp(prefix="cockpit-pane-")
    with os.fdopen(descriptor, "wb") as file:
        order = {"argv": list(argv), "cwd": cwd, "environment": dict(environment)}
        file.write(json.dumps(order).encode())
    return path


def main(arguments: list[str]) -> int:
    """Runs in the pane; ends as the user's shell does."""
    with open(arguments[0], "rb") as file:
        order = json.loads(file.read())
    os.unlink(arguments[0])
    environment = {n: v for n, v in order["environment"].items() if n not in _OF_THE_PANE}
    environment |= {name: os.environ[name] for name in _OF_THE_PANE if name in os.environ}
    # ctrl+c is the run's; a handler, so that the run itself gets the default at its exec.
    signal.signal(signal.SIGINT, _nothing)
    signal.signal(signal.SIGQUIT, _nothing)
    os.chdir(order["cwd"])
    status = subprocess.call(order["argv"], env=environment)
    sys.stdout.write(f"\ncockpit: the run ended with status {status}; exit closes this window\n")
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    shell = os.environ.get("SHELL") or "/bin/sh"
    os.execvp(shell, [shell])
    return status


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The run has the signal itself."""
