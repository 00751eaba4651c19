"""Ending a run that was started only to look: all of it, and nothing else.

Everything that the run started has inherited its mark (a variable with a random value), whoever its
parent or session leader is by now; the keeper that writes the record has it too, and is spared.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress

from cockpit import procfs
from cockpit.act.identity import Handle, all_stats, read_stat
from cockpit.errors import TargetGoneError

_PROC = "/proc"
PATIENCE_S = 15.0


def end_marked(name: str, value: str, head: int, patience_s: float = PATIENCE_S) -> tuple[int, ...]:
    """SIGTERM to each, by pid and start time; the pids that are still there afterwards.

    ``head``: the command's own process, whose parent is the keeper.
    """
    stat = read_stat(head)
    keepers = {os.getpid(), *((stat.ppid,) if stat is not None else ())}
    handles = _held(name, value, keepers)
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


def _held(name: str, value: str, spared: Collection[int]) -> list[Handle]:
    found = []
    for pid, stat in all_stats().items():
        if pid in spared or stat.dead:
            continue
        environment = procfs.environment(_PROC, pid, 1 << 20)
        if isinstance(environment, procfs.Gap) or environment.get(name) != value:
            continue
        with suppress(TargetGoneError):
            found.append(Handle.open(pid, stat.start_ticks))
    return found
