"""The live machine: the sampler's readings and the real actions behind the Machine protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cockpit.collect.gpus import GpuSource
from cockpit.collect.sampler import Sampler
from cockpit.engine.machine import Say
from cockpit.engine.protocol import EngineOptions
from cockpit.engine.runs import Runs
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.action import KillPlan, KillRequest, KillResult
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.event import Event
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
from cockpit.model.text import clean_command
from cockpit.model.time import iso

if TYPE_CHECKING:
    from cockpit.act.journal import Journal
    from cockpit.act.signal import Kills
    from cockpit.engine.looks import Looker

VRAM_DEADLINE_S = 0.5
"""A proof of freed memory waits this long for one answer of NVML."""


class LiveMachine:
    """This host, its GPUs and its processes."""

    source: Source = "live"
    title = ""

    def __init__(self, options: EngineOptions) -> None:
        self.uid = os.geteuid()
        self._sampler = Sampler(options.only, complete=options.complete)
        self._processes: Sequence[Process] = ()
        self._latest: Snapshot | None = None
        self._readonly = options.readonly
        self._runs = Runs(self._sampler.note, tidies=not options.readonly)

    @cached_property
    def _kills(self) -> Kills:
        # Late: nobody kills in the first 25 ms, which these imports would add to the first frame.
        from cockpit.act.signal import Kills

        vram = _LiveVram(self._sampler.gpus)
        rows = self._rows
        return Kills(vram, self._journal, processes=rows, readonly=self._readonly)

    @cached_property
    def _journal(self) -> Journal:
        from cockpit.act.journal import Journal

        return Journal()

    @cached_property
    def looks(self) -> Looker:
        """Who looks closer at a process when a rule wishes for it."""
        # Late: nothing is suspected in the first frame.
        from cockpit.engine.looks import Looker

        return Looker(self._runs.socket)

    def _rows(self) -> Sequence[Process]:
        return self._processes

    def start(self) -> None:
        """Starts the readers."""
        self._sampler.start()
        self._runs.start()

    def snapshot(self, interval_s: float) -> Snapshot:
        """One tick of the sampler."""
        snapshot = self._sampler.sample(interval_s, self._runs.pids())
        self._processes = snapshot.processes
        runs = self._runs.read(snapshot.processes, snapshot.gpus)
        self._latest = replace(snapshot, runs=runs) if runs else snapshot
        return self._latest

    def newest(self) -> Snapshot | None:
        """The last tick's."""
        return self._latest

    def relatives(self, snapshot: Snapshot) -> tuple[Relative, ...]:
        """Ancestors without VRAM of the snapshot's processes."""
        return self._sampler.relatives(snapshot)

    def playback(self) -> Playback | None:
        """A live machine has no playback."""
        return None

    def play(self, paused: bool | None, speed: float | None, seek_s: float | None) -> None:
        """A live machine cannot be steered through time."""

    def details(self, pid: int, start_ticks: int | None) -> ProcessDetails:
        """Raises TargetGoneError."""
        from cockpit.collect.details import details

        return details(pid, start_ticks)

    def plan_kill(self, request: KillRequest) -> KillPlan:
        """What the kill would do."""
        return self._kills.plan(request)

    def run_kill(self, plan_id: str, typed: str | None, say: Say) -> tuple[KillResult, ...]:
        """Signals, waits, proves; each result is an event as well. Raises RefusedError."""
        results = self._kills.run(plan_id, typed, say)
        for result in results:
            self._note(result.sentence, result.exit_code == 0)
        return results

    def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:
        """Whether and how; changes nothing."""
        from cockpit.engine import in_run

        if self._readonly:
            sentence = "Read-only: nothing is attached to."
            return AttachPlan(pid=pid, start_ticks=start_ticks, way=None, sentence=sentence)
        return in_run.plan(pid, start_ticks)

    def run_attach(self, pid: int, start_ticks: int | None, say: Say) -> RunOutcome:
        """After the confirmation. Raises RefusedError, TargetGoneError."""
        from cockpit.engine import in_run

        self._refuse_readonly()

        def act() -> RunOutcome:
            outcome, socket = in_run.attach(pid, start_ticks, say)
            if socket is not None:
                self._runs.note(socket)
            return outcome

        return self._journalled("attach", pid, start_ticks, say, act)

    def ask_run(self, pid: int, question: Question, deep: bool) -> Census | Segments | Stacks:
        """Raises CockpitError with a sentence."""
        from cockpit.engine import in_run

        gpus = self._runs.gpu_by_index(pid)
        socket, readonly = self._runs.socket(pid), self._readonly
        return in_run.ask(socket, pid, question, deep, gpus, readonly=readonly)

    def do_in_run(self, request: RunRequest, say: Say) -> RunOutcome:
        """After the confirmation. Raises CockpitError with a sentence."""
        from cockpit.engine import in_run

        self._refuse_readonly()
        gpus = self._runs.gpu_by_index(request.pid)

        def act() -> RunOutcome:
            outcome = in_run.do(self._runs.socket(request.pid), request, say, gpus)
            if request.op == "detach":
                self._runs.forget(request.pid)
            return outcome

        what = " ".join(str(part) for part in (request.op, request.name, request.value) if part)
        return self._journalled(what, request.pid, request.start_ticks, say, act)

    def checkup(self, request: CheckupRequest, say: Say) -> Checkup:
        """Changes nothing. Raises UsageError, RefusedError, TargetGoneError."""
        from cockpit.engine.checkup import checkup

        return checkup(request, lambda: self._latest, say)

    def _journalled(
        self,
        operation: str,
        pid: int,
        start_ticks: int | None,
        say: Say,
        act: Callable[[], RunOutcome],
    ) -> RunOutcome:
        """Intent before, result after, as with a kill; the outcome is an event as well."""
        from cockpit.act.journal import Entry

        row = next((one for one in self._processes if one.pid == pid), None)
        intent = Entry(
            action=f"{operation}-{pid}",
            phase="intent",
            operation=operation,
            pid=pid,
            start_ticks=start_ticks,
            command=clean_command(row.command, row.name) if row is not None else "?",
        )
        if not self._journal.write(intent):
            say(f"{self._journal.trouble}; the action goes on")
        came_to, words = "failed", "broke off: what was done of it is not known"
        try:
            outcome = act()
            came_to, words = "done" if outcome.ok else "failed", outcome.sentence
        except CockpitError as error:
            words = str(error)
            raise
        finally:
            at = iso(time.time())
            self._journal.write(
                replace(intent, at=at, phase="result", outcome=came_to, sentence=words)
            )
        self._note(outcome.sentence, outcome.ok)
        return outcome

    def _refuse_readonly(self) -> None:
        if self._readonly:
            raise RefusedError("Read-only: nothing is done in a run.")

    def _note(self, sentence: str, worked: bool) -> None:
        """Every action is an event as well."""
        self._sampler.note(
            Event(
                at=iso(time.time()),
                gpu=None,
                kind="action",
                sentence=sentence,
                severity="info" if worked else "warning",
            )
        )


class _LiveVram:
    """The proof of a kill, read afresh from NVML."""

    def __init__(self, gpus: GpuSource) -> None:
        self._gpus = gpus

    def vram_by_pid(self) -> dict[int, int] | None:
        """Bytes that NVML lists for each pid now; None when no GPU answered."""
        reading = self._gpus.vram(VRAM_DEADLINE_S)
        if not reading.used_bytes:
            return None
        return {pid: size or 0 for pid, size in reading.process_bytes.items()}

    def used_by_gpu(self) -> dict[int, int]:
        """Used bytes of each GPU that answered."""
        return dict(self._gpus.vram(VRAM_DEADLINE_S).used_bytes)
