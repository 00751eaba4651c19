"""``cockpit ps``: the processes that hold GPU memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cockpit.commands.ask import one_snapshot, require_driver
from cockpit.commands.table import Column, layout
from cockpit.errors import UsageError
from cockpit.model.gap_words import gap_words
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import age, clean, clean_command, gpus, shortened, size
from cockpit.model.time import moment, seconds_since
from cockpit.settings import Settings


def run(settings: Settings, *, json: bool, gpu: int | None, user: str | None, stray: bool) -> int:
    """Prints the chosen rows. Exit 3 without a usable driver, 2 without such a GPU."""
    snapshot = one_snapshot(settings)
    there = [one.index for one in snapshot.gpus]
    if gpu is not None and there and gpu not in there:
        whose = "this machine has" if settings.only is None else "--only leaves"
        raise UsageError(f"There is no GPU {gpu}: {whose} {gpus(there)}.")
    chosen = select(holders(snapshot), gpu=gpu, user=user, stray=stray)
    if json:
        print(msgspec.json.encode(chosen).decode(), flush=True)
    else:
        print(as_text(snapshot, chosen), flush=True)
    require_driver(snapshot)
    return 0


def holders(snapshot: Snapshot) -> list[Process]:
    """Those that hold GPU memory, or are attached runs; biggest holder first.

    Without a driver the snapshot has other processes of the user as well, for the screen.
    """
    runs = {one.pid for one in snapshot.runs}
    found = [
        one
        for one in snapshot.processes
        if one.vram_bytes is not None or one.devices or not one.visible or one.pid in runs
    ]
    return sorted(found, key=lambda one: -(one.vram_bytes or 0))


def select(
    processes: Sequence[Process], *, gpu: int | None, user: str | None, stray: bool
) -> list[Process]:
    """Those that match all that was asked, biggest holder first."""
    chosen = [
        one
        for one in processes
        if (gpu is None or any(use.gpu == gpu for use in one.devices))
        and (user is None or user in (one.user, str(one.uid)))
        and (not stray or one.stray is not None)
    ]
    return sorted(chosen, key=lambda one: -(one.vram_bytes or 0))


def as_text(snapshot: Snapshot, processes: list[Process]) -> str:
    """A table, and under it why a row is stray or cannot be seen."""
    if not processes:
        return "No process holds GPU memory here (or none that was asked for)."
    now = moment(snapshot.taken_at)
    lines = layout(_columns(now), processes)
    for one in processes:
        if one.stray is not None:
            lines.append(f"pid {one.pid} is stray: {clean(one.stray.sentence)}")
        elif not one.visible:
            why = gap_words(one.gaps.get("pid") or one.gaps.get("user"))
            lines.append(f"pid {one.pid} cannot be looked up: {why}")
    return "\n".join(lines)


def _columns(now: float | None) -> tuple[Column[Process], ...]:
    return (
        Column("PID", lambda p: str(p.pid), right=True),
        Column("USER", lambda p: clean(p.user or "–")),
        Column("GPU", lambda p: ",".join(str(use.gpu) for use in p.devices)),
        Column("VRAM", lambda p: size(p.vram_bytes), right=True),
        Column("SM%", _sm, right=True),
        Column("CPU%", lambda p: "–" if p.cpu_pct is None else f"{p.cpu_pct:.0f}", right=True),
        Column("AGE", lambda p: _age(p, now), right=True),
        Column("MARK", lambda p: "stray" if p.stray else "" if p.visible else "hidden"),
        Column("COMMAND", lambda p: shortened(clean_command(p.command, p.name), 200)),
    )


def _sm(process: Process) -> str:
    known = [use.sm_pct for use in process.devices if use.sm_pct is not None]
    return f"{max(known):.0f}" if known else "–"


def _age(process: Process, now: float | None) -> str:
    return age(seconds_since(process.started_at, now))
