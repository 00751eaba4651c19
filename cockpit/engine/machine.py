"""What the engine's server needs of a machine. Three have it: live, simulated, recorded.

Each carries its own actions: a simulated or recorded machine has no way to a signal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cockpit.model.action import KillPlan, KillRequest, KillResult
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
from cockpit.model.process import ProcessDetails, Relative
from cockpit.model.snapshot import Snapshot

Say = Callable[[str], None]
"""Takes a progress sentence."""


class Machine(Protocol):
    """One machine. ``details``, ``plan_kill`` and ``run_kill`` run on threads of their own."""

    source: Source
    title: str
    uid: int
    """Whose cockpit this is there: only own processes may be ended, unless it is root."""

    def start(self) -> None:
        """Begin reading in the background; must not block."""

    def snapshot(self, interval_s: float) -> Snapshot:
        """One tick. Never waits longer than a part of the interval for a late reading."""

    def newest(self) -> Snapshot | None:
        """Of the last tick; None before the first, and where nothing of this host is shown."""

    def relatives(self, snapshot: Snapshot) -> tuple[Relative, ...]:
        """Ancestors without VRAM of the snapshot's processes."""

    def playback(self) -> Playback | None:
        """Where a replay stands; None elsewhere."""

    def play(self, paused: bool | None, speed: float | None, seek_s: float | None) -> None:
        """Steer a replay; nothing elsewhere."""

    def details(self, pid: int, start_ticks: int | None) -> ProcessDetails:
        """Raises TargetGoneError."""

    def plan_kill(self, request: KillRequest) -> KillPlan:
        """Changes nothing. Raises RefusedError when actions are not offered at all."""

    def run_kill(self, plan_id: str, typed: str | None, say: Say) -> tuple[KillResult, ...]:
        """Runs on a thread of its own. Raises RefusedError for an unknown or unconfirmed plan."""

    def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:
        """Whether and how; changes nothing."""

    def run_attach(self, pid: int, start_ticks: int | None, say: Say) -> RunOutcome:
        """After the confirmation. Raises CockpitError with a sentence."""

    def ask_run(self, pid: int, question: Question, deep: bool) -> Census | Segments | Stacks:
        """Raises CockpitError with a sentence."""

    def do_in_run(self, request: RunRequest, say: Say) -> RunOutcome:
        """After the confirmation. Raises CockpitError with a sentence."""

    def checkup(self, request: CheckupRequest, say: Say) -> Checkup:
        """Runs on a thread of its own; changes nothing. Raises CockpitError with a sentence."""
