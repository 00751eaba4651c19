"""Ending a run that was started only to look: all of it, and nothing else.

Everything that the run started has inherited its mark (a variable with a random value), whoever its
parent or session leader is by now; the keeper that writes the record has it too, and is spared.
A program may write over its environment (setproctitle does): what descends from the command, or is
in its session, is the run's as well.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from cockpit import procfs
from cockpit.act.identity import Handle, all_stats
from cockpit.errors import TargetGoneError
from cockpit.procfs import Stat

_PROC = "/proc"
PATIENCE_S = 15.0


def end_marked(
    name: str,
    value: str,
    head: tuple[int, int | None] | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[int, ...]:
    """SIGTERM to each, by pid and start time; the pids that are still there afterwards.

    ``head``: pid and start ticks of the command's own process, whose parent is the keeper. None:
    there is no record of it; then the keeper is ended, too.
    """
    stats = all_stats()
    first = _living(stats, head)
    keepers = {os.getpid(), *((first.ppid,) if first is not None else ())}
    family = _family(stats, first) if first is not None else set()
    handles = _held(stats, name, value, family, keepers)
    try:
        for handle in handles:
            with suppress(ProcessLookupError, PermissionError):
                handle.send(signal.SIGTERM)
        end = time.monotonic() + patience_s
        while any(not one.gone() for one in handles) and time.monotonic() < end:
            time.sleep(0.05)
        return tuple(one.pid for one in handles if not one.gone())
    finally:
        for handle in handles:
            handle.close()


def _living(stats: Mapping[int, Stat], head: tuple[int, int | None] | None) -> Stat | None:
    """The command itself; once it has ended, its pid may be anybody's."""
    stat = stats.get(head[0]) if head is not None else None
    return stat if stat is not None and head is not None and stat.start_ticks == head[1] else None


def _family(stats: Mapping[int, Stat], head: Stat) -> set[int]:
    """What descends from it, and what is in a session that it leads."""
    found = {head.pid}
    while more := {pid for pid, one in stats.items() if one.ppid in found} - found:
        found |= more
    return found | {pid for pid, one in stats.items() if one.session == head.pid}


def _held(
    stats: Mapping[int, Stat], name: str, value: str, family: set[int], spared: Collection[int]
) -> list[Handle]:
    found = []
    for pid, stat in stats.items():
        if pid in spared or stat.dead:
            continue
        if pid not in family and not _is_marked(pid, name, value):
            continue
        with suppress(TargetGoneError):
            found.append(Handle.open(pid, stat.start_ticks))
    return found


def _is_marked(pid: int, name: str, value: str) -> bool:
    environment = procfs.environment(_PROC, pid, 1 << 20)
    return not isinstance(environment, procfs.Gap) and environment.get(name) == value
