"""A recording as a machine: plays, pauses, winds. Nothing can be killed in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

from cockpit.collect.recording_reader import load
from cockpit.errors import RefusedError, TargetGoneError
from cockpit.model.action import KillPlan, KillRequest, KillResult, PlannedTarget, Target
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.memory import (
    AttachPlan,
    Census,
    Question,
    RunOutcome,
    RunRequest,
    Segments,
    Stacks,
)
from cockpit.model.playback import Playback, Source
from cockpit.model.process import Process, ProcessDetails, Relative
from cockpit.model.snapshot import Snapshot

SLOWEST, FASTEST = 0.25, 64.0
REFUSAL = "this is a recording: nothing can be killed"
RUN_REFUSAL = "this is a recording: nothing in it can be asked or changed"
GAP = "recording"


class Player:
    """Where a replay stands, by the clock."""

    def __init__(self, duration_s: float, clock: Callable[[], float]) -> None:
        self.duration_s = duration_s
        self.speed = 1.0
        self.paused = False
        self._clock = clock
        self._position_s = 0.0
        self._since_s = clock()

    def position_s(self) -> float:
        """Now; at the end it stays there, paused."""
        now_s = self._clock()
        if not self.paused:
            self._position_s += (now_s - self._since_s) * self.speed
        self._since_s = now_s
        if self._position_s >= self.duration_s:
            self._position_s, self.paused = self.duration_s, True
        return self._position_s

    def restart(self) -> None:
        """From the beginning."""
        self._position_s, self._since_s = 0.0, self._clock()

    def steer(self, paused: bool | None, speed: float | None, seek_s: float | None) -> None:
        """Each only when given. To play on at the end begins again."""
        at_end = self.position_s() >= self.duration_s
        if seek_s is not None:
            self._position_s = min(max(0.0, seek_s), self.duration_s)
        elif paused is False and at_end:
            self._position_s = 0.0
        if speed is not None:
            self.speed = min(max(SLOWEST, speed), FASTEST)
        if paused is not None:
            self.paused = paused


class RecordedMachine:
    """Shows what was. Raises UsageError for a file that is no recording."""

    def __init__(self, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._recording = load(path)
        self.source: Source = "replay"
        self.title = os.path.basename(path)
        self.uid = os.geteuid()
        self._player = Player(self._recording.duration_s, clock)
        self._shown = self._recording.snapshot(0)
        self._plans: dict[str, KillPlan] = {}
        self._numbers = count(1)

    def start(self) -> None:
        """Plays from here on."""
        self._player.restart()

    def snapshot(self, interval_s: float) -> Snapshot:  # noqa: ARG002
        """That of the position, as it was recorded."""
        number = self._recording.number_at(self._player.position_s())
        self._shown = self._recording.snapshot(number)
        return self._shown

    def relatives(self, snapshot: Snapshot) -> tuple[Relative, ...]:  # noqa: ARG002
        """None: they are not recorded."""
        return ()

    def newest(self) -> None:
        """Nothing of this host is shown."""

    def playback(self) -> Playback | None:
        """Where it stands."""
        player = self._player
        return Playback(
            position_s=round(player.position_s(), 3),
            duration_s=player.duration_s,
            paused=player.paused,
            speed=player.speed,
        )

    def play(self, paused: bool | None, speed: float | None, seek_s: float | None) -> None:
        """Pause, speed (0.25 to 64) and position."""
        self._player.steer(paused, speed, seek_s)

    def details(self, pid: int, start_ticks: int | None) -> ProcessDetails:
        """What the snapshot has of it. Raises TargetGoneError."""
        shown = self._shown
        row = _row(shown, Target(pid=pid, start_ticks=start_ticks))
        if row is None:
            raise TargetGoneError(f"pid {pid} is not there at this point of the recording.")
        told = ("pid", "start_ticks", "ancestors", "children", "limits", "gaps")
        missing = (f for f in ProcessDetails.__struct_fields__ if f not in told)
        return ProcessDetails(
            pid=row.pid,
            start_ticks=row.start_ticks,
            ancestors=_ancestors(row, shown),
            children=tuple(_relative(p) for p in shown.processes if p.ppid == row.pid),
            gaps=dict.fromkeys((*missing, "limits"), GAP),
        )

    def plan_kill(self, request: KillRequest) -> KillPlan:
        """A plan in which every target is refused."""
        plan = KillPlan(
            id=f"replay-{next(self._numbers)}",
            signal=request.signal,
            grace_s=request.grace_s,
            targets=tuple(_refused(self._shown, target) for target in request.targets),
            loses=(),
        )
        self._plans[plan.id] = plan
        return plan

    def run_kill(
        self,
        plan_id: str,
        typed: str | None,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> tuple[KillResult, ...]:
        """Refuses each target once more. Raises RefusedError for an unknown plan."""
        plan = self._plans.get(plan_id)
        if plan is None:
            raise RefusedError(f"This plan is not known; {REFUSAL}.")
        return tuple(
            KillResult(
                pid=t.pid, outcome="refused", sentence=REFUSAL, vram_before_bytes=t.vram_bytes
            )
            for t in plan.targets
        )

    def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:  # noqa: ARG002
        """Raises RefusedError."""
        raise RefusedError(RUN_REFUSAL)

    def run_attach(
        self,
        pid: int,  # noqa: ARG002
        start_ticks: int | None,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> RunOutcome:
        """Raises RefusedError."""
        raise RefusedError(RUN_REFUSAL)

    def ask_run(
        self,
        pid: int,  # noqa: ARG002
        question: Question,  # noqa: ARG002
        deep: bool,  # noqa: ARG002
    ) -> Census | Segments | Stacks:
        """Raises RefusedError."""
        raise RefusedError(RUN_REFUSAL)

    def do_in_run(
        self,
        request: RunRequest,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> RunOutcome:
        """Raises RefusedError."""
        raise RefusedError(RUN_REFUSAL)

    def checkup(
        self,
        request: CheckupRequest,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> Checkup:
        """Raises RefusedError."""
        raise RefusedError("A recording has no driver and no torch to examine: leave out --replay.")


def _row(snapshot: Snapshot, target: Target) -> Process | None:
    ticks = target.start_ticks
    return next(
        (p for p in snapshot.processes if p.pid == target.pid and ticks in (None, p.start_ticks)),
        None,
    )


def _refused(snapshot: Snapshot, target: Target) -> PlannedTarget:
    row = _row(snapshot, target)
    return PlannedTarget(
        pid=target.pid,
        start_ticks=target.start_ticks,
        user=row.user if row else None,
        command=" ".join(row.command) if row else "?",
        vram_bytes=row.vram_bytes if row else None,
        refusal="readonly",
        refusal_sentence=REFUSAL,
    )


def _ancestors(row: Process, snapshot: Snapshot) -> tuple[Relative, ...]:
    by_pid = {p.pid: p for p in snapshot.processes}
    chain: list[Relative] = []
    seen = {row.pid}
    parent = by_pid.get(row.ppid or 0)
    while parent is not None and parent.pid not in seen:
        seen.add(parent.pid)
        chain.append(_relative(parent))
        parent = by_pid.get(parent.ppid or 0)
    return tuple(chain)


def _relative(p: Process) -> Relative:
    return Relative(pid=p.pid, ppid=p.ppid, name=p.name or "?", command=p.command, user=p.user)
