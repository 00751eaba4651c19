"""Time of a step of a run that goes on, read from its agent: for a change that is made in it.

Not from ``steps_per_s``: that is a mean over the last 64 steps, in which those of before the change
would count as well.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, NamedTuple

from cockpit.act.action import Console
from cockpit.act.step_times import FEWEST
from cockpit.attach import discover
from cockpit.attach.client import AgentError, Client

EVERY_S = 1.0
SAMPLES = FEWEST + 1
LONGEST_S = 30.0
"""For one side: a run with steps of ten seconds gives too few samples, and that is said."""
ANSWER_LIMIT_S = 2.0


def step_times(pid: int, console: Console) -> tuple[float, ...]:
    """Seconds a step, each the mean of the steps of about a second; fewer samples where the run
    stands, ends, or the user has enough of it."""
    console.say(f"measuring the time of a step for {SAMPLES * EVERY_S:.0f} s")
    socket = discover.find(pid)
    if socket is None:
        return ()
    found: list[float] = []
    with (
        suppress(AgentError),  # it has ended, or something holds its GIL: what was seen counts
        Client.connect(pid, socket.path, ANSWER_LIMIT_S) as client,
    ):
        end, last = time.monotonic() + LONGEST_S, _look(client)
        while len(found) < SAMPLES and time.monotonic() < end:
            if console.cancelled.wait(EVERY_S):
                break
            now = _look(client)
            if last.step and now.step > last.step:
                found.append((now.ended_at - last.ended_at) / (now.step - last.step))
            last = now if now.step > last.step else last
    return tuple(one for one in found if one > 0)


class _Look(NamedTuple):
    step: int
    """The last one; 0: none was made yet."""
    ended_at: float
    """On this host's monotonic clock."""


def _look(client: Client) -> _Look:
    told: Any = client.call("stats", ANSWER_LIMIT_S)
    step, age_s = told.get("step"), told.get("step_age_s")
    if not isinstance(step, int) or not isinstance(age_s, float | int):
        return _Look(0, 0.0)
    return _Look(step, time.monotonic() - age_s)
