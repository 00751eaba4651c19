"""``cockpit run``: a command as without us, with the agent inside and a record of it."""

from __future__ import annotations

import os
import sys

from cockpit.attach import launch
from cockpit.errors import UsageError
from cockpit.model.text import clean
from cockpit.paths import state_directory
from cockpit.settings import Settings


def run(
    settings: Settings,
    command: list[str],
    *,
    name: str | None,
    background: bool,
    history: bool,
    coredump: bool,
    ptracer: bool,
) -> int:
    """Ends with the command's own status; 126 and 127 as shells do. Raises UsageError."""
    words = tuple(command[1:] if command[:1] == ["--"] else command)
    if not words or not words[0]:
        raise UsageError("What shall be run? cockpit run -- python train.py")
    folder = state_directory(os.environ)
    wanted = launch.Launch(
        command=words,
        state_directory=str(folder) if folder else None,
        name=clean(name) if name is not None else None,
        background=background,
        history=history,
        coredump=coredump,
        ptracer=ptracer,
        readonly=settings.readonly,
    )
    if not background:
        return _status(launch.run(wanted))
    started = launch.start(wanted)
    if isinstance(started, launch.NotStarted):
        return _status(started)
    print(f"{clean(started.name)}  {started.id or '(not kept)'}  pid {started.pid}", flush=True)
    if started.directory:
        print(f"output: {clean(started.directory)}/output", flush=True)
    return 0


def _status(outcome: int | launch.NotStarted) -> int:
    if isinstance(outcome, launch.NotStarted):
        sys.stderr.write(f"cockpit: {outcome.sentence}\n")
        return outcome.status
    return outcome
