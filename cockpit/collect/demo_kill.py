"""The demo's own kill: plans and results as of a real one, played on simulated processes.

No signal, no pidfd, no import of ``cockpit.act``: a plan made here cannot reach a real process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from cockpit.collect.demo_world import RETURN_S, Instance, World
from cockpit.errors import RefusedError, UsageError
from cockpit.model.action import KillPlan, KillRequest, KillResult, PlannedTarget, RefusalCode
from cockpit.model.text import clean_command, gib

Role = Literal["target", "child", "rank", "holder"]
_ENDING = frozenset({"TERM", "INT", "HUP", "QUIT", "KILL"})
_OTHER = frozenset({"STOP", "CONT", "USR1", "USR2"})
_POLL_S = 0.05


class _Plan(Struct, frozen=True):
    plan: KillPlan
    named: bool


class DemoKill:
    """Plans and plays kills on a World."""

    def __init__(
        self, world: World, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._world = world
        self._now_s = now_s
        self._sleep = sleep
        self._plans: dict[str, _Plan] = {}
        self._made = 0

    def plan(self, request: KillRequest) -> KillPlan:
        """Raises UsageError for a signal that the menu does not have."""
        if request.signal not in _ENDING | _OTHER:
            raise UsageError(f"There is no signal SIG{request.signal} in the menu.")
        self._made += 1
        targets = tuple(self._targets(request))
        plan = KillPlan(
            id=f"demo-{self._made}",
            signal=request.signal,
            grace_s=request.grace_s,
            targets=targets,
            loses=_loses(targets, request.signal),
            typed=_typed(targets, request),
        )
        self._plans[plan.id] = _Plan(plan, request.named)
        return plan

    def run(
        self, plan_id: str, typed: str | None, say: Callable[[str], None]
    ) -> tuple[KillResult, ...]:
        """Each plan runs once. Raises RefusedError."""
        known = self._plans.get(plan_id)
        if known is None:
            raise RefusedError("This plan is not known, or was run already.")
        plan = known.plan
        if plan.typed is not None and typed != plan.typed:
            raise RefusedError(f"Type {plan.typed} to confirm SIG{plan.signal}.")
        del self._plans[plan_id]
        return self._play(plan, say)

    # -- planning

    def _targets(self, request: KillRequest) -> Iterable[PlannedTarget]:
        alive = {i.pid: i for i in self._world.alive(self._now_s())}
        seen: set[int] = set()
        for target in request.targets:
            found = alive.get(target.pid)
            for pid, role in self._with_family(found, target.pid, alive, request.job):
                if pid not in seen:
                    seen.add(pid)
                    wanted = target.start_ticks if role == "target" else None
                    yield self._planned(alive.get(pid), pid, wanted, role)

    def _with_family(
        self, found: Instance | None, pid: int, alive: dict[int, Instance], job: bool
    ) -> list[tuple[int, Role]]:
        family: list[tuple[int, Role]] = [(pid, "target")]
        if found is None:
            return family
        if found.process.held_by in alive:
            family.append((found.process.held_by, "holder"))
        if job:
            family += [(i.pid, "child") for i in alive.values() if i.process.ppid == pid]
            name = found.process.job
            family += [(i.pid, "rank") for i in alive.values() if name and i.process.job == name]
        return family

    def _planned(
        self, found: Instance | None, pid: int, wanted: int | None, role: Role
    ) -> PlannedTarget:
        code, sentence = self._refusal(found, pid, wanted)
        if found is None:
            return PlannedTarget(
                pid=pid,
                start_ticks=wanted,
                user=None,
                command="?",
                vram_bytes=None,
                refusal=code,
                refusal_sentence=sentence,
            )
        p = found.process
        return PlannedTarget(
            pid=pid,
            start_ticks=found.start_ticks if p.visible else None,
            user=p.user,
            command=" ".join(p.command),
            vram_bytes=self._vram_bytes(found),
            role=role,
            refusal=code,
            refusal_sentence=sentence,
            note="zombie: its children hold the device" if p.held_by else None,
        )

    def _refusal(
        self, found: Instance | None, pid: int, wanted: int | None
    ) -> tuple[RefusalCode | None, str | None]:
        if found is None:
            return "gone", f"there is no process {pid} (any more)"
        p = found.process
        if not p.visible:
            return "gone", (
                f"pid {pid} is not in this /proc: it runs in another PID namespace;"
                " signal it from there"
            )
        if wanted is not None and wanted != found.start_ticks:
            return "changed", f"pid {pid} is another process now: nothing was signalled"
        if p.protected:
            return "protected", f"pid {pid} ({p.name}) is {p.protected}"
        if p.user != self._world.scenario.me:
            return "not_permitted", (
                f"pid {pid} belongs to another user ({p.user}): ask them or root to end it"
            )
        return None, None

    def _vram_bytes(self, found: Instance) -> int | None:
        now_s = self._now_s()
        known = [found.held_bytes(h, now_s) for h in found.process.holds if h.known]
        return sum(known) if known else None

    # -- playing

    def _play(self, plan: KillPlan, say: Callable[[str], None]) -> tuple[KillResult, ...]:
        alive = {i.pid: i for i in self._world.alive(self._now_s())}
        willing = {
            t.pid: alive[t.pid] for t in plan.targets if t.refusal is None and t.pid in alive
        }
        if plan.signal in _OTHER:
            return tuple(self._signalled(t, willing, plan.signal) for t in plan.targets)
        going = frozenset(
            pid for pid, i in willing.items() if plan.signal == "KILL" or not i.process.ignores_term
        )
        began_s = self._now_s()
        for pid in willing:
            say(f"pid {pid}: SIG{plan.signal} sent, waiting for it to end")
        self._world.end(going, began_s)
        stubborn = willing.keys() - going - self._freed_with(willing, going)
        self._wait(plan.grace_s if stubborn else RETURN_S)
        return tuple(
            self._result(t, willing.get(t.pid), t.pid in stubborn, plan) for t in plan.targets
        )

    def _freed_with(self, willing: dict[int, Instance], going: frozenset[int]) -> set[int]:
        """A zombie goes when the child that holds its device goes."""
        return {pid for pid, i in willing.items() if i.process.held_by in going}

    def _wait(self, seconds: float) -> None:
        until = self._now_s() + seconds
        # not 0: a clock of floats may stand a rounding error before the end for ever
        while (left := until - self._now_s()) > 1e-6:
            self._sleep(min(left, _POLL_S))

    def _signalled(
        self, target: PlannedTarget, willing: dict[int, Instance], signal: str
    ) -> KillResult:
        if target.pid not in willing:
            return _refused(target)
        if signal in ("STOP", "CONT"):
            self._world.stop(target.pid, signal == "STOP")
        return KillResult(
            pid=target.pid,
            outcome="signalled",
            sentence=f"pid {target.pid}: SIG{signal} delivered",
            vram_before_bytes=target.vram_bytes,
        )

    def _result(
        self, target: PlannedTarget, found: Instance | None, stubborn: bool, plan: KillPlan
    ) -> KillResult:
        if found is None:
            return _refused(target)
        if stubborn:
            return _survived(target, found, plan)
        return _gone(target)


def _gone(target: PlannedTarget) -> KillResult:
    pid, vram = target.pid, target.vram_bytes
    took = f"in {RETURN_S:.1f} s"
    freed = f"pid {pid}: freed {gib(vram)} of {gib(vram)} GiB {took}"
    return KillResult(
        pid=pid,
        outcome="freed" if vram else "ended",
        sentence=freed if vram else f"pid {pid}: ended {took}",
        vram_before_bytes=vram,
        freed_bytes=vram,
        elapsed_s=RETURN_S,
    )


def _survived(target: PlannedTarget, found: Instance, plan: KillPlan) -> KillResult:
    pid = target.pid
    why = (
        f"pid {pid}: a zombie; its children still hold {gib(target.vram_bytes)} GiB"
        if found.process.held_by
        else f"pid {pid}: still there after {plan.grace_s:g} s, it ignores SIG{plan.signal}"
    )
    return KillResult(
        pid=pid,
        outcome="survived",
        sentence=why,
        vram_before_bytes=target.vram_bytes,
        freed_bytes=0,
        elapsed_s=plan.grace_s,
        offer_kill=plan.signal != "KILL",
    )


def _refused(target: PlannedTarget) -> KillResult:
    missing = target.refusal in (None, "gone", "changed")
    return KillResult(
        pid=target.pid,
        outcome="missing" if missing else "refused",
        sentence=target.refusal_sentence or f"there is no process {target.pid} (any more)",
        vram_before_bytes=target.vram_bytes,
    )


def _typed(targets: tuple[PlannedTarget, ...], request: KillRequest) -> str | None:
    """One process: its pid; several: how many."""
    sent = [t for t in targets if t.refusal is None]
    if not sent or request.signal != "KILL" or request.named:
        return None
    return str(sent[0].pid) if len(sent) == 1 else str(len(sent))


def _loses(targets: tuple[PlannedTarget, ...], signal: str) -> tuple[str, ...]:
    ending = [t for t in targets if t.refusal is None]
    if signal in _OTHER or not ending:
        return ()
    return tuple(
        f"pid {t.pid} loses what it has not saved: {clean_command((t.command,))}" for t in ending
    )
