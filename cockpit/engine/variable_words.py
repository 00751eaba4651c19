"""Where a run's variables come from, in words: lines of start-up files, who handed them down."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cockpit.collect.variable_origin import first_bearer, origins
from cockpit.model.run_command import RunCommand
from cockpit.model.secret import hide
from cockpit.model.text import clean

NAMES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Those that take GPUs, or torch's own libraries, away from a run."""


def where_set(command: RunCommand | None, pid: int | None) -> dict[str, tuple[str, ...]]:
    """Name → the lines that set it, and after them who handed it down; empty without such lines.

    Only for our own runs outside of containers: other start-up files are not ours to read.
    ``pid``: the run's process while it lives.
    """
    if command is None or command.uid != os.geteuid() or command.container is not None:
        return {}
    home = os.path.expanduser("~")
    found: dict[str, list[str]] = {}
    for one in origins(NAMES, home, prefix=command.prefix, cwd=command.cwd):
        place = f"~{one.path[len(home) :]}" if one.path.startswith(f"{home}/") else one.path
        words = clean(hide(f"{place} line {one.line}: {one.text}"))
        found.setdefault(one.name, []).append(words)
    return {name: (*lines, *_handed_down(command, pid, name)) for name, lines in found.items()}


def _handed_down(command: RunCommand, pid: int | None, name: str) -> Sequence[str]:
    if pid is None or name not in command.environment:
        return ()
    bearer = first_bearer(pid, name, command.environment[name])
    if bearer is None or bearer.pid == pid:
        return ()
    had = "had it first" if bearer.certain else "had it already; what is above it is hidden"
    return (clean(f"pid {bearer.pid} ({bearer.name}) {had}"),)
