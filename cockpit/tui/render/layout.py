"""How many lines each pane of the overview gets. Dense first: processes are always in sight."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.tui.render.trace import pane_height

FIXED = 4
"""Title, host, alert and footer."""
LEAST_PROCESSES = 9
"""A heading and eight rows."""
STEP = 4
"""The table grows by so many rows at a time, so that a process that comes moves nothing."""
MOST_EVENTS = 12


@dataclass(frozen=True)
class OverviewLayout:
    """Lines of the panes whose height is not always one."""

    gpus: int
    traces: int
    events: int


def overview(
    width: int, height: int, gpu_count: int, panels: int, process_count: int
) -> OverviewLayout:
    """For a terminal of this size; the process table takes what is left.

    ``panels`` is the number of traces that are wanted. Where there are few processes, the events
    get the lines that the table would leave empty.
    """
    events = 1 if height < 32 else 3 if height < 46 else 5
    body = height - FIXED - events
    natural = gpu_count + 1
    gpus = max(2, min(natural, body - LEAST_PROCESSES))
    if body < LEAST_PROCESSES + 4:  # a very low terminal: half and half
        gpus = max(2, min(natural, body // 2))
    spare = body - gpus - LEAST_PROCESSES
    traces = 0 if spare < 8 else pane_height(panels, width, min(16, spare * 2 // 3))
    wanted = LEAST_PROCESSES + max(0, -(-(process_count - 8) // STEP) * STEP)
    empty = body - gpus - traces - wanted
    return OverviewLayout(gpus, traces, min(MOST_EVENTS, events + max(0, empty)))
