"""Looks at the cast of a demo: who lags behind its data loader by the scenario is seen waiting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from cockpit.collect.demo_parts import Scenario
from cockpit.diagnose.live.look import Look, LookFrame, NoLooks, Worker

APART_S = 2.5
KEPT = 8
_TORCH = "/opt/env/lib/python3.12/site-packages/torch/utils/data/dataloader.py"
_WAIT = (
    LookFrame("/usr/lib/python3.12/multiprocessing/queues.py", 113, "get"),
    LookFrame(_TORCH, 1275, "_try_get_data"),
    LookFrame(_TORCH, 1500, "_next_data"),
    LookFrame(_TORCH, 733, "__next__"),
)
_FORWARD = LookFrame(
    "/opt/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134, "forward"
)
_WORKERS = 4


class StagedLooks(NoLooks):
    """Plays the data loaders of a scenario. Nothing real is looked at."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._scripts = {
            process.pid: next(
                (word for word in process.command if word.endswith(".py")), "train.py"
            )
            for process in scenario.processes
            if any(hold.load.kind == "wave" for hold in process.holds)
        }
        self._seen: dict[int, deque[Look]] = {}

    def want(self, pid: int, start_ticks: int | None) -> tuple[Look, ...]:  # noqa: ARG002
        """Of those that lag: three looks of four in the loader."""
        if pid not in self._scripts:
            return ()
        seen = self._seen.setdefault(pid, deque(maxlen=KEPT))
        now_s = self._clock()
        if not seen or now_s - seen[-1].at_s >= APART_S:
            seen.append(self._look(pid, now_s))
        return tuple(seen)

    def _look(self, pid: int, now_s: float) -> Look:
        own = LookFrame(self._scripts[pid], 118, "train", "for batch in loader:")
        waits = int(now_s / APART_S) % 4 != 0
        workers = tuple(Worker(pid + 20 + n, "D" if n % 3 else "R", 31.0) for n in range(_WORKERS))
        return Look(
            at_s=now_s,
            frames=(*_WAIT, own) if waits else (_FORWARD, own),
            main_cpu_pct=22.0,
            main_state="S" if waits else "R",
            workers=workers,
            cpus=16,
            throttled_pct=0.0,
        )
