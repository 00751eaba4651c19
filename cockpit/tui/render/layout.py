"""How many lines each pane of the overview gets. Dense first: processes are always in sight."""

from __future__ import annotations

from dataclasses import dataclass

FIXED = 4
"""Title, host, alert and footer."""
LEAST_PROCESSES = 9
"""A heading and eight rows."""


@dataclass(frozen=True)
class OverviewLayout:
    """Lines of the panes whose height is not always one."""

    gpus: int
    traces: int
    events: int


def overview(height: int, gpu_count: int) -> OverviewLayout:
    """For a terminal of ``height`` lines; the process table takes what is left."""
    events = 1 if height < 32 else 3 if height < 46 else 5
    body = height - FIXED - events
    natural = gpu_count + 1
    gpus = max(2, min(natural, body - LEAST_PROCESSES))
    if body < LEAST_PROCESSES + 4:  # a very low terminal: half and half
        gpus = max(2, min(natural, body // 2))
    spare = body - gpus - LEAST_PROCESSES
    traces = 0 if spare < 8 else min(16, spare * 2 // 3)
    return OverviewLayout(gpus=gpus, traces=traces, events=events)
