"""Snapshots in, findings out: the families of rules, how often each is asked, and the latch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from cockpit.diagnose.live import (
    hardware,
    holders,
    host,
    memory,
    on_cpu,
    placement,
    power,
    ranks,
    shares,
    slow,
)
from cockpit.diagnose.live.claim import Claim
from cockpit.diagnose.live.latch import Latch
from cockpit.diagnose.live.look import Looks
from cockpit.diagnose.live.past import Past
from cockpit.diagnose.live.view import View, other_gpus
from cockpit.model.finding import Finding
from cockpit.model.run import Run
from cockpit.model.run_history import RunHistory
from cockpit.model.snapshot import Snapshot
from cockpit.model.time import moment

WARM_UP_STEPS = 20
WARM_UP_S = 30.0
"""For runs whose steps are not counted."""
HISTORY_APART_S = 0.9
"""Agents speak once a second: more samples of a run would be the same ones again."""
LONGEST_GAP_S = 200.0
"""Three of the longest intervals: after more the past says nothing about now."""


class _Family(NamedTuple):
    find: Callable[[View], Iterator[Claim]]
    every_s: float
    """Its claims are kept so long: statistics of memory are not asked ten times a second."""


FAMILIES = (
    _Family(hardware.find, 0.0),
    _Family(power.find, 0.0),
    _Family(host.find, 0.0),
    _Family(holders.find, 0.5),
    _Family(ranks.find, 0.9),
    _Family(shares.find, 1.9),
    _Family(slow.find, 0.9),
    _Family(memory.find, 1.9),
    _Family(on_cpu.find, 1.9),
    _Family(placement.find, 2.9),
)

LEAVE_ONE_OUT = frozenset({"gpu_off_bus", "straggler", "pcie_width"})
"""Causes that a repair answers by going on with the other GPUs."""


def _placed(view: View, claim: Claim) -> Claim:
    if claim.cause not in LEAVE_ONE_OUT:
        return claim
    rest = {"the_other_gpus": other_gpus(view, claim.gpu)}
    return dataclasses.replace(claim, facts={**claim.facts, **rest})


class LiveFindings:
    """Remembers what the rules need. Used from one thread."""

    def __init__(self, *, at_once: bool = False) -> None:
        """``at_once``: for a single snapshot; only what that can tell is told."""
        self._at_once = at_once
        self._latch = Latch(at_once=at_once)
        self._begin()

    def _begin(self) -> None:
        self._latch.clear()
        self._past = Past()
        self._history = RunHistory()
        self._history_s = -1e18
        self._first_seen_s: dict[int, float] = {}
        self._claims: list[tuple[float, list[Claim]]] = [(-1e18, [])] * len(FAMILIES)
        self._now_s: float | None = None
        self._shown: tuple[Finding, ...] = ()

    def observe(self, snapshot: Snapshot, looks: Looks) -> tuple[Finding, ...]:
        """What is to be shown now, worst and surest first. A replay may go back in time."""
        now_s = moment(snapshot.taken_at)
        if now_s is None:
            return self._shown
        if self._now_s is not None and not 0.0 <= now_s - self._now_s <= LONGEST_GAP_S:
            self._begin()
        elif now_s == self._now_s:  # a paused replay
            return self._shown
        self._now_s = now_s
        self._past.append(snapshot, now_s)
        if now_s - self._history_s >= HISTORY_APART_S:
            self._history_s = now_s
            self._history.append(replace(snapshot, runs=self._warm(snapshot.runs, now_s)))
        view = View(snapshot, now_s, self._past, self._history, looks)
        self._shown = self._latch.turn(now_s, self._find(view))
        return self._shown

    def _find(self, view: View) -> list[Claim]:
        for number, family in enumerate(FAMILIES):
            at_s, _ = self._claims[number]
            if self._at_once or view.now_s - at_s >= family.every_s:
                self._claims[number] = (view.now_s, list(family.find(view)))
        return [_placed(view, claim) for _, claims in self._claims for claim in claims]

    def _warm(self, runs: tuple[Run, ...], now_s: float) -> tuple[Run, ...]:
        """Without those in their first steps, in which memory rises and shall."""
        return tuple(run for run in runs if self._is_warm(run, now_s))

    def _is_warm(self, run: Run, now_s: float) -> bool:
        since_s = self._first_seen_s.setdefault(run.pid, now_s)
        if run.step is None or (run.step == 0 and not run.steps_per_s):
            return now_s - since_s >= WARM_UP_S
        return run.step >= WARM_UP_STEPS
