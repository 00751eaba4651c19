"""A command in the user's own terminal, in place of the cockpit: sudo, an editor, a foreground run.

The one place of the face that starts a program, and only one that was shown and confirmed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from textual.app import App, SuspendNotSupported

from cockpit.errors import CockpitError
from cockpit.model.remedy import TerminalCommand
from cockpit.model.text import clean
from cockpit.tui.render.flow_preview import command_text

NOT_STARTED = 127
"""Of a shell whose command is not there."""


def run_in_terminal(app: App[Any], command: TerminalCommand) -> int:
    """Exit status of the command (128 + n after a signal, as a shell says it).

    The cockpit stands still meanwhile. Raises CockpitError when the terminal cannot be given away.
    """
    try:
        with app.suspend():
            # An exception in here would leave the terminal without the cockpit's modes.
            return _run(command)
    except SuspendNotSupported as error:
        raise CockpitError(
            "This terminal cannot be given to another program: copy the command and run it "
            "in a shell of your own."
        ) from error


def _run(command: TerminalCommand) -> int:
    sys.stdout.write(f"\n$ {clean(command_text(command))}\n")
    sys.stdout.flush()
    with _keys_for_the_child():
        status = _status_of(command)
        _wait_for_enter(status)
    return status


def _status_of(command: TerminalCommand) -> int:
    environment = {**os.environ, **command.environment}
    try:
        done = subprocess.run(command.argv, cwd=command.cwd, env=environment, check=False)
    except (OSError, ValueError) as error:
        sys.stdout.write(f"It could not be started: {clean(str(error))}\n")
        return NOT_STARTED
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


@contextmanager
def _keys_for_the_child() -> Iterator[None]:
    r"""ctrl+c and ctrl+\ end the command, not the cockpit. SIG_IGN would be inherited by it."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        for number in kept:
            signal.signal(number, _ignore)
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The child has the same signal from the terminal."""


def _wait_for_enter(status: int) -> None:
    """What it printed is gone once the cockpit is back: it can be read until then."""
    sys.stdout.write(f"\nExit status {status}. Enter goes back to the cockpit. ")
    sys.stdout.flush()
    try:
        sys.stdin.readline()
    except (OSError, ValueError):  # the terminal is gone, or was never one
        return
