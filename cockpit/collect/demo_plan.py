"""What a demo kill would end: the plan of a real one, drawn up over simulated processes.

Changes nothing. The words are those of a real kill (``model.kill_words``); ``cockpit.act`` is not
imported: nothing of a demo may know the way to a signal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from cockpit.collect.demo_parts import DemoProcess
from cockpit.collect.demo_world import Instance, World
from cockpit.errors import UsageError
from cockpit.model import kill_words
from cockpit.model.action import (
    NOT_ENDING,
    SIGNALS,
    KillPlan,
    KillRequest,
    PlannedTarget,
    RefusalCode,
    Target,
)
from cockpit.model.process import Relative

Role = Literal["target", "child", "rank", "holder"]
_Refusal = tuple[RefusalCode, str] | None


class _Member(NamedTuple):
    """One process of a plan, before it is judged."""

    pid: int
    role: Role
    order: int = 1
    note: str | None = None
    wanted_ticks: int | None = None


class Planner:
    """Draws up one plan, at one moment of the world."""

    def __init__(self, world: World, now_s: float, request: KillRequest, readonly: bool) -> None:
        """Raises UsageError for a signal that the menu does not have, or nobody to send it to."""
        if request.signal not in SIGNALS:
            raise UsageError(kill_words.not_offered(request.signal))
        if not request.targets:
            raise UsageError("name at least one process")
        self._scenario = world.scenario
        self._now_s = now_s
        self._request = request
        self._readonly = readonly
        self._alive = {i.pid: i for i in world.alive(now_s)}
        self._launchers = {r.pid: r for r in self._scenario.relatives if r.name == "torchrun"}

    def plan(self, plan_id: str) -> KillPlan:
        """Every process that it would touch, judged."""
        members: dict[int, _Member] = {}
        for target in self._request.targets:
            for member in self._with_family(target):
                members.setdefault(member.pid, member)
        ordered = sorted(members.values(), key=lambda member: member.order)
        targets = tuple(self._planned(member) for member in ordered)
        return KillPlan(
            id=plan_id,
            signal=self._request.signal,
            grace_s=max(0.0, self._request.grace_s),
            targets=targets,
            loses=kill_words.losses(self._request.signal, targets, self._parts()),
            typed=self._typed(targets),
        )

    def _with_family(self, target: Target) -> Iterator[_Member]:
        pid, found = target.pid, self._alive.get(target.pid)
        yield _Member(pid, "target", wanted_ticks=target.start_ticks)
        if found is None:
            return
        process = found.process
        if process.held_by in self._alive:
            yield _Member(process.held_by, "holder", 2, kill_words.heir(pid, holds=True))
        if self._request.job:
            if process.ppid in self._launchers and not self._readonly:
                yield _Member(process.ppid, "rank", 0, kill_words.LAUNCHER_FIRST)
            for other in self._alive.values():
                if process.job and other.process.job == process.job:
                    yield _Member(other.pid, "rank")
                elif other.process.ppid == pid:
                    yield _Member(other.pid, "child", 2)

    def _planned(self, member: _Member) -> PlannedTarget:
        found = self._alive.get(member.pid)
        if found is None and member.order == 0:
            return _planned_launcher(member, self._launchers[member.pid])
        refusal = self._refusal(found, member)
        p = found.process if found else None
        return PlannedTarget(
            pid=member.pid,
            start_ticks=found.start_ticks if found and found.process.visible else None,
            user=p.user if p else None,
            command=_command(p) if p else "?",
            vram_bytes=self._vram_bytes(found),
            role=member.role,
            refusal=refusal[0] if refusal else None,
            refusal_sentence=refusal[1] if refusal else None,
            note=member.note or (self._note(found) if found and not refusal else None),
        )

    def _note(self, found: Instance) -> str | None:
        if found.process.held_by:
            return kill_words.left_behind("zombie", {found.process.held_by: True})
        signal = self._request.signal
        ignored = found.process.ignores_term and signal not in NOT_ENDING | {"KILL"}
        return kill_words.ignores(signal) if ignored else None

    def _refusal(self, found: Instance | None, member: _Member) -> _Refusal:
        pid = member.pid
        if self._readonly:
            return "readonly", kill_words.READONLY
        if found is None:
            return "gone", kill_words.missing(pid)
        if not found.process.visible:
            return "gone", kill_words.elsewhere(pid)
        if member.wanted_ticks not in (None, found.start_ticks):
            return "changed", kill_words.changed(pid)
        return self._policy(found)

    def _policy(self, found: Instance) -> _Refusal:
        p = found.process
        if p.protected:
            return "protected", f"pid {found.pid} ({p.name}) is {p.protected}"
        if p.user != self._scenario.me:
            return "not_permitted", (
                f"pid {found.pid} belongs to another user ({p.user}): ask them or root to end it"
            )
        return None

    def _vram_bytes(self, found: Instance | None) -> int | None:
        holds = found.process.holds if found else ()
        known = [found.held_bytes(h, self._now_s) for h in holds if found and h.known]
        return sum(known) if known else None

    def _typed(self, targets: tuple[PlannedTarget, ...]) -> str | None:
        """One process: its pid; several: how many."""
        sent = [t for t in targets if t.refusal is None and not self._is_zombie(t.pid)]
        if not sent or self._request.signal != "KILL" or self._request.named:
            return None
        return str(sent[0].pid) if len(sent) == 1 else str(len(sent))

    def _is_zombie(self, pid: int) -> bool:
        found = self._alive.get(pid)
        return found is not None and found.process.held_by is not None

    def _parts(self) -> dict[int, DemoProcess]:
        return {pid: found.process for pid, found in self._alive.items()}


def _command(process: DemoProcess) -> str:
    """argv for reading; a zombie has none any more."""
    argv = "" if process.held_by else " ".join(process.command)
    return argv or (f"[{process.name}]" if process.name else "?")


def _planned_launcher(member: _Member, launcher: Relative) -> PlannedTarget:
    return PlannedTarget(
        pid=member.pid,
        start_ticks=None,
        user=launcher.user,
        command=" ".join(launcher.command),
        vram_bytes=None,
        role=member.role,
        note=member.note,
    )
