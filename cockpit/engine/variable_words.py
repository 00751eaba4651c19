"""Where a run's variables come from, in words: lines of start-up files, who handed them down."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cockpit.collect.variable_origin import first_bearer, origins
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean

NAMES = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Those that take GPUs, or torch's own libraries, away from a run."""


def where_set(command: RunCommand | None, pid: int | None) -> dict[str, tuple[str, ...]]:
    """Name → where it is set. Only for our own runs: the files of other homes are not ours."""
    if command is not None and command.uid != os.geteuid():
        return {}
    home = os.path.expanduser("~")
    prefix, cwd = (command.prefix, command.cwd) if command is not None else (None, None)
    lines = origins(NAMES, home, prefix=prefix, cwd=cwd)
    found: dict[str, list[str]] = {}
    for one in lines:
        place = f"~{one.path[len(home) :]}" if one.path.startswith(f"{home}/") else one.path
        found.setdefault(one.name, []).append(clean(f"{place} line {one.line}: {one.text}"))
    for name in NAMES:
        found.setdefault(name, []).extend(_handed_down(pid, name))
    return {name: tuple(words) for name, words in found.items() if words}


def _handed_down(pid: int | None, name: str) -> Sequence[str]:
    bearer = first_bearer(pid, name) if pid is not None else None
    if bearer is None:
        return ()
    had = "had it first" if bearer.certain else "had it already; what is above it is hidden"
    return (clean(f"pid {bearer.pid} ({bearer.name}) {had}"),)
