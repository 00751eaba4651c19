"""From a request to a plan: every process it would touch, pinned by start time and judged.

Changes nothing and asks the driver nothing: the device memory shown is the last snapshot's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

import msgspec

from cockpit.act.identity import (
    Subject,
    all_stats,
    exists_hidden,
    holds_device,
    kernel_wait,
    look,
    read_stat,
)
from cockpit.act.job import Family, Role, is_launcher
from cockpit.act.policy import (
    Refusal,
    Viewer,
    foreign,
    judge,
    signal_name,
    signal_number,
    viewer,
)
from cockpit.errors import UsageError
from cockpit.model import kill_words
from cockpit.model.action import NOT_ENDING, KillPlan, KillRequest, PlannedTarget, Target
from cockpit.model.process import Process
from cockpit.procfs import Stat, user_name

MAX_GRACE_S = 600.0


@dataclass(frozen=True, slots=True)
class _Draft:
    planned: PlannedTarget
    order: int = 1
    signalled: bool = False
    doubtful: bool = False
    """Another user's, or an heir of which it is not seen that it holds the device."""


@dataclass(frozen=True, slots=True)
class _Heir:
    """A living process of a dead one's session or group."""

    stat: Stat
    holds: bool
    """Its open device files were seen; False: they cannot be seen (never: it has none)."""


def make_plan(request: KillRequest, rows: Iterable[Process], readonly: bool) -> KillPlan:
    """Raises UsageError for a signal that is not offered, or nobody to send it to."""
    planner = _Planner(request, {row.pid: row for row in rows}, readonly)
    return planner.plan()


def subject_refusal(planned: PlannedTarget, readonly: bool) -> Refusal | None:
    """Judge a planned target once more, by what it is now."""
    subject = look(planned.pid)
    if subject is None:
        return Refusal("gone", f"pid {planned.pid} has ended")
    if subject.stat.start_ticks != planned.start_ticks:
        return _changed(planned.pid)
    return judge(subject, viewer(_line_of(os.getpid()), readonly))


class _Planner:
    def __init__(self, request: KillRequest, rows: Mapping[int, Process], readonly: bool) -> None:
        if not request.targets:
            raise UsageError("name at least one process")
        self._request, self._rows = request, rows
        self._signal = signal_name(request.signal)
        stats = all_stats()
        self._family = Family(stats)
        self._who: Viewer = viewer(stats, readonly)

    def plan(self) -> KillPlan:
        drafts: dict[tuple[int, int | None], _Draft] = {}
        for target in self._request.targets:
            draft, subject = self._target(target)
            drafts.setdefault((draft.planned.pid, draft.planned.start_ticks), draft)
            if draft.planned.refusal is None:
                for other in self._others(target, subject):
                    drafts.setdefault((other.planned.pid, other.planned.start_ticks), other)
        return self._finish(sorted(drafts.values(), key=lambda draft: draft.order))

    def _finish(self, drafts: list[_Draft]) -> KillPlan:
        targets = tuple(draft.planned for draft in drafts)
        return KillPlan(
            id=uuid4().hex[:12],
            signal=self._signal,
            grace_s=max(0.0, min(self._request.grace_s, MAX_GRACE_S)),
            targets=targets,
            loses=kill_words.losses(self._signal, targets, self._rows),
            typed=self._typed(drafts),
        )

    def _typed(self, drafts: list[_Draft]) -> str | None:
        """One process: its pid; several: how many, so that nobody types past a whole job."""
        sent = [draft for draft in drafts if draft.signalled]
        needed = self._signal == "KILL" or any(draft.doubtful for draft in sent)
        if not sent or not needed or self._request.named:
            return None
        return str(sent[0].planned.pid) if len(sent) == 1 else str(len(sent))

    def _target(self, target: Target) -> tuple[_Draft, Subject | None]:
        subject = look(target.pid)
        if subject is None:
            return self._absent(target), None
        if subject.leader_pid != target.pid:
            text = f"{target.pid} is a thread of process {subject.leader_pid}: name that one"
            return self._refused(target, Refusal("gone", text)), subject
        if target.start_ticks is None and self._elsewhere(target.pid):
            return self._refused(target, Refusal("gone", kill_words.elsewhere(target.pid))), subject
        if target.start_ticks not in (None, subject.stat.start_ticks):
            return self._refused(target, _changed(target.pid)), subject
        return self._draft(subject, "target", 0 if is_launcher(subject.command) else 1), subject

    def _others(self, target: Target, subject: Subject | None) -> Iterator[_Draft]:
        if subject is None or subject.stat.dead:
            for heir in self._heirs(target.pid, target.start_ticks):
                yield from self._heir(heir, target.pid)
        if subject is not None and self._request.job:
            for member in self._family.members(subject, self._rows, self._allowed):
                yield from self._member(member.pid, member.role, member.order, member.note)

    def _allowed(self, subject: Subject) -> bool:
        return judge(subject, self._who) is None

    def _member(self, pid: int, role: Role, order: int, note: str | None) -> Iterator[_Draft]:
        subject = look(pid)
        if subject is not None and not subject.stat.dead:
            draft = self._draft(subject, role, order, note)
            yield self._meant(draft, kill_words.foreign(pid)) if draft.doubtful else draft

    def _meant(self, draft: _Draft, text: str) -> _Draft:
        """A doubtful one that nobody asked for: typed, or, where naming is the typing, named."""
        planned = draft.planned
        if planned.refusal or not self._request.named or self._is_named(planned):
            return replace(draft, doubtful=True)
        refused = msgspec.structs.replace(planned, refusal="not_permitted", refusal_sentence=text)
        return replace(draft, planned=refused, signalled=False)

    def _is_named(self, planned: PlannedTarget) -> bool:
        ticks = (None, planned.start_ticks)
        named = (one.pid for one in self._request.targets if one.start_ticks in ticks)
        return planned.pid in named

    def _absent(self, target: Target) -> _Draft:
        """Not in /proc: gone, hidden, elsewhere, or gone while the driver and a child hold on."""
        heirs = self._heirs(target.pid, target.start_ticks)
        if heirs:
            note = kill_words.left_behind("has ended", {h.stat.pid: h.holds for h in heirs})
            return _Draft(self._planned(target.pid, None, "target", note=note))
        if exists_hidden(target.pid):
            text = f"pid {target.pid} belongs to another user and /proc hides it (hidepid)"
            return self._refused(target, Refusal("not_permitted", text))
        text = kill_words.missing(target.pid)
        if target.pid in self._rows:
            text = kill_words.elsewhere(target.pid)
        return self._refused(target, Refusal("gone", text))

    def _elsewhere(self, pid: int) -> bool:
        """The driver's process of this number is not ours of the same number (a container)."""
        return pid in self._rows and not self._rows[pid].visible

    def _refused(self, target: Target, refusal: Refusal) -> _Draft:
        return _Draft(self._planned(target.pid, target.start_ticks, "target", refusal=refusal))

    def _draft(self, subject: Subject, role: Role, order: int, note: str | None = None) -> _Draft:
        refusal, dead = judge(subject, self._who), subject.stat.dead
        planned = self._planned(
            subject.pid,
            subject.stat.start_ticks,
            role,
            subject=subject,
            refusal=refusal,
            note="; ".join(part for part in (note, self._state_note(subject)) if part) or None,
        )
        sent = refusal is None and not dead
        return _Draft(planned, order, sent, foreign(subject, self._who))

    # -- what a dead process left behind

    def _heirs(self, pid: int, since_ticks: int | None) -> tuple[_Heir, ...]:
        """Who may hold device memory for it: nobody when the driver lists none for it."""
        row = self._rows.get(pid)
        if row is None or not (row.vram_bytes or row.devices):
            return ()
        found = [(stat, holds_device(stat.pid)) for stat in self._family.holders(pid, since_ticks)]
        heirs = [(stat, holds) for stat, holds in found if holds is not False]
        # The memory is held by somebody of its session or group: who is left alone is it.
        alone = len(heirs) == 1
        return tuple(_Heir(stat, bool(holds) or alone) for stat, holds in heirs)

    def _heir(self, heir: _Heir, dead: int) -> Iterator[_Draft]:
        """One that is only in the same session is not signalled unless it is meant by its pid."""
        pid = heir.stat.pid
        if any(target.pid == pid for target in self._request.targets):
            return
        for draft in self._member(pid, "holder", 2, kill_words.heir(dead, heir.holds)):
            yield draft if heir.holds else self._meant(draft, kill_words.not_named(pid, dead))

    def _planned(
        self,
        pid: int,
        start_ticks: int | None,
        role: Role,
        *,
        subject: Subject | None = None,
        refusal: Refusal | None = None,
        note: str | None = None,
    ) -> PlannedTarget:
        row = self._rows.get(pid)
        return PlannedTarget(
            pid=pid,
            start_ticks=start_ticks,
            user=_user(subject, row),
            command=_command(subject, row),
            vram_bytes=row.vram_bytes if row else None,
            role=role,
            refusal=refusal.code if refusal else None,
            refusal_sentence=refusal.sentence if refusal else None,
            note=note,
        )

    def _state_note(self, subject: Subject) -> str | None:
        stat, number = subject.stat, signal_number(self._signal)
        if stat.dead:
            return self._zombie_note(subject)
        if self._signal == "KILL":
            wait = kernel_wait(stat.pid) if stat.state == "D" else None
            return None if wait is None else f"waits inside the kernel ({wait or 'state D'})"
        if subject.ignores(number):
            return kill_words.ignores(self._signal)
        if self._signal not in NOT_ENDING:
            return "stopped: acts on it when continued (CONT)" if stat.state in "Tt" else None
        if self._signal.startswith("USR") and not subject.catches(number):
            return f"has no handler for SIG{self._signal}: the signal would end it"
        return None

    def _zombie_note(self, subject: Subject) -> str:
        heirs = self._heirs(subject.pid, subject.stat.start_ticks)
        if heirs:
            return kill_words.left_behind("zombie", {h.stat.pid: h.holds for h in heirs})
        parent = subject.stat.ppid
        return f"zombie: has ended already, its parent pid {parent} has not collected it"


def _changed(pid: int) -> Refusal:
    return Refusal("changed", kill_words.changed(pid))


def _line_of(pid: int) -> dict[int, Stat]:
    """This process and its ancestors only: a few files instead of the whole table."""
    line: dict[int, Stat] = {}
    while pid not in line and (stat := read_stat(pid)):
        line[pid] = stat
        pid = stat.ppid
    return line


def _user(subject: Subject | None, row: Process | None) -> str | None:
    if subject is None:
        return row.user if row else None
    return user_name(subject.uid)


def _command(subject: Subject | None, row: Process | None) -> str:
    """argv for reading; the short name in brackets where there is none (zombie, kernel thread)."""
    argv = subject.command if subject and subject.command else row.command if row else ()
    name = subject.stat.name if subject else row.name if row else None
    return " ".join(argv) if argv else f"[{name}]" if name else "?"
