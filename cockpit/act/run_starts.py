"""Where a run is started again: in the background, or in a window of the user's own tmux.

Both start this cockpit anew as a child (``cockpit run``), so that the run gets a record and an
agent as any other, and outlives the engine.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cockpit.act.boot import cockpit_command, pane_command
from cockpit.act.pane import write_order
from cockpit.errors import CockpitError
from cockpit.model.text import clean

START_LIMIT_S = 30.0
"""Python and the fork of the keeper take 0.3 s; a slow network home takes longer."""
SESSION = "cockpit"
"""The tmux session that is made where the server has none."""


@dataclass(frozen=True, slots=True)
class Start:
    """What to start, complete."""

    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    name: str
    options: tuple[str, ...] = ()
    """Of ``cockpit run``."""

    def words(self) -> tuple[str, ...]:
        """Of ``cockpit run`` behind its own name."""
        return ("--name", self.name, *self.options, "--", *self.argv)


def in_background(start: Start) -> str:
    """Where it runs, as a sentence. Raises CockpitError with what ``cockpit run`` says."""
    command = cockpit_command("run", "--background", *start.words())
    done = _run(command, start.cwd, start.environment)
    if done.returncode:
        raise CockpitError(f"It was not started: {_last(done.stderr)}")
    return clean(done.stdout.splitlines()[0]) if done.stdout else start.name


def in_tmux(start: Start, socket: str | None = None) -> str:
    """Opens a window; a sentence that says how to get there. Raises CockpitError.

    ``socket``: of the server; None: the one that this process is in, else the user's default.
    """
    command = cockpit_command("run", *start.words())
    order = write_order(command, start.cwd, start.environment)
    try:
        place = _open_window(_tmux(socket), start, order)
    except CockpitError:
        with suppress(FileNotFoundError):
            os.unlink(order)
        raise
    return f"in tmux, window {place}: tmux attach -t {place}"


def _open_window(tmux: list[str], start: Start, order: str) -> str:
    name = clean(start.name)[:30].replace(":", "_").replace(".", "_")
    window = ["-n", name, "-c", start.cwd, "-P", "-F", "#{session_name}:#{window_index}"]
    running = _run([*tmux, "list-sessions"], "/", os.environ).returncode == 0
    how = ["new-window", "-d"] if running else ["new-session", "-d", "-s", SESSION]
    done = _run([*tmux, *how, *window, "--", *pane_command(order)], "/", os.environ)
    if done.returncode:
        raise CockpitError(f"tmux opened no window: {_last(done.stderr)}")
    return clean(done.stdout.strip())


def _tmux(socket: str | None) -> list[str]:
    inside = socket or os.environ.get("TMUX", "").partition(",")[0]
    return ["tmux", "-S", inside] if inside else ["tmux"]


def _run(
    command: Sequence[str], cwd: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=START_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CockpitError(f"{clean(str(error.filename))} does not exist.") from error
    except (OSError, ValueError) as error:
        raise CockpitError(f"It was not started: {clean(str(error))}") from error
    except subprocess.TimeoutExpired as error:
        raise CockpitError(
            f"Nothing was heard within {START_LIMIT_S:.0f} s of starting."
        ) from error


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return clean(lines[-1]).removeprefix("cockpit: ") if lines else "no reason was given"
