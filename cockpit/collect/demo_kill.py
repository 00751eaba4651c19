"""The demo's own kill: played on simulated processes, told as a real one is.

No signal, no pidfd, no import of ``cockpit.act``: a plan made here cannot reach a real process.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from cockpit.collect.demo_plan import Planner
from cockpit.collect.demo_world import RETURN_S, Instance, World
from cockpit.errors import RefusedError
from cockpit.model import kill_words
from cockpit.model.action import NOT_ENDING, KillPlan, KillRequest, KillResult, PlannedTarget

_POLL_S = 0.05

Say = Callable[[str], None]


class DemoKill:
    """Plans and plays kills on a World."""

    def __init__(
        self,
        world: World,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        readonly: bool,
    ) -> None:
        self._world = world
        self._readonly = readonly
        self._now_s = now_s
        self._sleep = sleep
        self._plans: dict[str, KillPlan] = {}
        self._numbers = count(1)

    def plan(self, request: KillRequest) -> KillPlan:
        """Raises UsageError."""
        planner = Planner(self._world, self._now_s(), request, self._readonly)
        plan = planner.plan(f"demo-{next(self._numbers)}")
        self._plans[plan.id] = plan
        return plan

    def run(self, plan_id: str, typed: str | None, say: Say) -> tuple[KillResult, ...]:
        """Each plan runs once. Raises RefusedError."""
        plan = self._plans.get(plan_id)
        if plan is None:
            raise RefusedError("this plan is not known, or was run already: ask for a new one")
        if plan.typed is not None and typed != plan.typed:
            raise RefusedError(f"type {plan.typed} to confirm SIG{plan.signal}")
        del self._plans[plan_id]
        return self._play(plan, say)

    def _play(self, plan: KillPlan, say: Say) -> tuple[KillResult, ...]:
        alive = {i.pid: i for i in self._world.alive(self._now_s())}
        willing = {t.pid: alive[t.pid] for t in plan.targets if not t.refusal and t.pid in alive}
        say(kill_words.sent(plan.signal, len(willing)))
        if plan.signal in NOT_ENDING:
            return tuple(self._signalled(t, t.pid in willing, plan.signal) for t in plan.targets)
        going = frozenset(p for p, i in willing.items() if self._obeys(i, plan.signal))
        self._world.end(going, self._now_s())
        taken_along = {p for p, i in willing.items() if i.process.held_by in going}
        stubborn = willing.keys() - going - taken_along
        if stubborn:
            self._wait(plan.grace_s, len(stubborn), say)
        elif going:
            self._wait(RETURN_S, 0, say)
        return tuple(
            self._survived(t, willing[t.pid], plan) if t.pid in stubborn else _result(t, willing)
            for t in plan.targets
        )

    def _obeys(self, found: Instance, signal: str) -> bool:
        if found.process.held_by:
            return False
        stopped = self._world.is_stopped(found.pid)
        return signal == "KILL" or not (found.process.ignores_term or stopped)

    def _wait(self, seconds: float, still_there: int, say: Say) -> None:
        began_s = told_s = self._now_s()
        # not 0: a clock of floats may stand a rounding error before the end for ever
        while (left := began_s + seconds - self._now_s()) > 1e-6:
            self._sleep(min(left, _POLL_S))
            if still_there and self._now_s() - told_s >= 1.0:
                told_s = self._now_s()
                say(kill_words.waiting(told_s - began_s, seconds, still_there))

    def _signalled(self, target: PlannedTarget, willing: bool, signal: str) -> KillResult:
        if not willing:
            return _not_sent(target)
        if signal in ("STOP", "CONT"):
            self._world.stop(target.pid, signal == "STOP")
        return KillResult(
            pid=target.pid,
            outcome="signalled",
            sentence=kill_words.delivered(target.pid, signal),
            vram_before_bytes=target.vram_bytes,
        )

    def _survived(self, target: PlannedTarget, found: Instance, plan: KillPlan) -> KillResult:
        pid, signal = target.pid, plan.signal
        why = kill_words.ignoring(signal, ignored=True)
        if self._world.is_stopped(pid):
            why = kill_words.stopped(signal)
        if found.process.held_by:
            why = f"a zombie; pid {found.process.held_by} keeps the device open"
        return KillResult(
            pid=pid,
            outcome="survived",
            sentence=kill_words.survived(pid, signal, plan.grace_s, why),
            vram_before_bytes=target.vram_bytes,
            freed_bytes=0,
            elapsed_s=plan.grace_s,
            offer_kill=signal != "KILL",
        )


def _result(target: PlannedTarget, willing: dict[int, Instance]) -> KillResult:
    found = willing.get(target.pid)
    if found is None and target.note != kill_words.LAUNCHER_FIRST:
        return _not_sent(target)
    pid, vram = target.pid, target.vram_bytes
    zombie = found is not None and found.process.held_by is not None
    return KillResult(
        pid=pid,
        outcome="freed" if vram else "ended",
        sentence=kill_words.freed(pid, (vram, vram), RETURN_S, zombie)
        if vram
        else kill_words.ended(pid, RETURN_S),
        vram_before_bytes=vram,
        freed_bytes=vram,
        elapsed_s=RETURN_S,
    )


def _not_sent(target: PlannedTarget) -> KillResult:
    missing = target.refusal in (None, "gone", "changed")
    return KillResult(
        pid=target.pid,
        outcome="missing" if missing else "refused",
        sentence=target.refusal_sentence or kill_words.missing(target.pid),
        vram_before_bytes=target.vram_bytes,
    )
