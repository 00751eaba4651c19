"""What a flow is told: the log's diagnosis, the process, its command, the checkup, the stacks.

On a demo or a recording nothing of this host is read but a log file that the user names.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import BinaryIO

from msgspec.structs import replace

from cockpit import diagnose
from cockpit.act.journal import Journal
from cockpit.act.relaunch_check import ENDED_BY_SOMEBODY
from cockpit.act.step_times import FEWEST
from cockpit.attach import run_record
from cockpit.attach.run_record import RunRecord
from cockpit.engine.failed_runs import failed_runs, run_words
from cockpit.engine.flight import flight_of
from cockpit.engine.flow_store import Saved, Store
from cockpit.engine.flow_subject import (
    check_log,
    clock,
    is_alive,
    live_finding,
    merged,
    on_card,
    process_of,
    ranks,
    subject_words,
    with_oom,
    with_place,
)
from cockpit.engine.machine import Machine, Say
from cockpit.engine.run_commands import command_of
from cockpit.engine.run_looks import measure, step_times
from cockpit.engine.variable_words import where_set
from cockpit.errors import CockpitError, TargetGoneError
from cockpit.flows.flow import Known, Need
from cockpit.flows.machine import State
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.finding import Finding
from cockpit.model.flow import Done, FlowId, FlowRequest
from cockpit.model.memory import Stacks
from cockpit.model.remedy import Outcome
from cockpit.model.run import Run
from cockpit.model.run_command import RunCommand, RunMeasure
from cockpit.model.secret import hide_lines
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean
from cockpit.paths import state_directory

MOST_RANKS = 16
FROM_LOGS: frozenset[FlowId] = frozenset({"oom", "kernel-fault", "no-cuda", "multi-gpu", "slow"})
AFTER_FAILURES: frozenset[FlowId] = FROM_LOGS - {"slow"}
_QUIET = frozenset({"unknown", "benign", "recovered"})

Question = tuple[str, str, tuple[tuple[str, str], ...]]
"""key, text, (value, text)"""


class Facts:
    """For one flow. What is found out once about a run is kept: it may be gone the next time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._live = machine.source == "live"
        self._folder = state_directory(os.environ) if self._live else None
        self._store = Store(self._folder)
        self.journal = Journal() if self._live else None
        self._command: RunCommand | None = None
        self._known: Finding | None = None
        self._begun = FlowRequest()
        self._checkup: Checkup | None = None
        self._origins: dict[str, tuple[str, ...]] | None = None
        self._before: RunMeasure | None = None
        self._started: str | None = None
        """Id of the run that a fix has started last."""
        self._rerun: RunRecord | None = None
        """Made only to find the line: its output is diagnosed, its command is not the run's."""
        self._located = False

    # -- where it starts from

    def completed(self, request: FlowRequest) -> FlowRequest:
        """With the kept run of the pid, where there is one.

        Raises TargetGoneError where log or process are not there, UsageError for no plain file.
        """
        self._begun = request
        if request.log is not None:
            check_log(request.log)
        known = request.run or request.command
        if not known and request.pid is not None and self._folder is not None:
            record = run_record.record_of(str(self._folder), request.pid, request.start_ticks)
            if record is not None:
                return replace(request, run=record.meta.id)
        if self._live and request.pid is not None and not is_alive(request):
            if request.log is None and not known:
                raise TargetGoneError(
                    f"There is no process {request.pid} (any more), and no kept run of it. "
                    "What it printed can be given by --log, its command line after `--`."
                )
            return replace(request, pid=None, start_ticks=None)
        return request

    def of_run(self, request: FlowRequest, run: str) -> FlowRequest:
        """The user has said which run it is; empty: none of those."""
        return replace(request, run=run or None)

    def of_process(self, request: FlowRequest, process: str) -> FlowRequest:
        """``pid:start_ticks``; empty: none of those. Raises TargetGoneError."""
        if not process:
            return request
        pid, _, ticks = process.partition(":")
        return self.completed(replace(request, pid=int(pid), start_ticks=int(ticks)))

    def after(self, request: FlowRequest, kind: str, outcome: Outcome) -> FlowRequest:
        """A run that was started by a fix is the one that the flow is about from then on.

        One of the ladder was made only to find the line, on the CPU or slowed down, say: what it
        printed counts, its command does not.
        """
        if kind == "ask_help" and outcome.ok:
            return replace(request, help="\n".join(hide_lines(outcome.output)))
        is_probe = kind == "ladder"
        if outcome.path is None or self._folder is None:
            return request
        with suppress(TargetGoneError):
            record = run_record.load_run(outcome.path)
            self._rerun = record if is_probe else None
            if not is_probe:
                self._started = record.meta.id
                return replace(request, run=record.meta.id, log=None, pid=None, start_ticks=None)
        return request

    def flow_of(self, known: Known) -> FlowId | None:
        """By the diagnosis of the log, or the finding that the flow starts from."""
        finding = known.finding
        if finding is None or finding.cause in _QUIET:
            return None
        return finding.flow if finding.flow in FROM_LOGS | {"vram-held"} else None  # type: ignore[return-value]

    def question(
        self, flow: FlowId, request: FlowRequest, id_: str, state: State, *, may_take_up: bool
    ) -> Question | None:
        """What only the user knows before the flow can look: which run, and whether to go on."""
        answers = dict(state.answers)
        saved = self.unfinished(flow, id_) if may_take_up and not state.done else None
        if saved is not None and "take_up" not in answers:
            return (
                "take_up",
                f"This flow was left at {clock(saved.saved_at, with_date=True)} after: "
                + "; ".join(clean(one.title) for one in saved.done),
                (
                    ("go_on", "go on where it was left; what was done can be taken back"),
                    ("anew", "start anew; what was done stays"),
                ),
            )
        if request.has_subject or flow not in AFTER_FAILURES or "run" in answers or state.done:
            return None
        runs = failed_runs(str(self._folder), flow) if self._folder is not None else []
        if not runs:
            return None
        options = tuple((one.record.meta.id, run_words(one)) for one in runs)
        return "run", "Which run?", (*options, ("", "none of these"))

    def failures(self, request: FlowRequest) -> tuple[str, ...]:
        """The runs that failed lately, in words, where nothing says yet what it is about."""
        if self._folder is None or request.has_subject:
            return ()
        return tuple(run_words(one) for one in failed_runs(str(self._folder), request.flow))

    # -- looking

    def look(
        self,
        request: FlowRequest,
        snapshot: Snapshot,
        needs: Collection[Need],
        *,
        answers: Mapping[str, str],
        done: tuple[Done, ...],
        say: Say,
    ) -> Known:
        """Everything that this flow needs. Raises CockpitError where the engine has nothing."""
        process = process_of(snapshot, request)
        run = next((one for one in snapshot.runs if one.pid == request.pid), None)
        self._look_at_run(request, run, needs, say)
        finding = self._finding(request, snapshot)
        if not done:
            self._before = with_oom(self._before, finding, snapshot)
        self._look_around(request, needs, say)
        return Known(
            request=request,
            snapshot=snapshot,
            uid=self._machine.uid,
            finding=finding,
            process=process,
            run=run,
            command=self._command,
            before=self._before,
            checkup=self._checkup if "checkup" in needs else None,
            stacks=self._stacks(request, snapshot) if "stacks" in needs else {},
            flight=flight_of(self._record(request.run)) if "flight" in needs else (),
            origins=self._origins or {},
            is_located=self._located,
            failed_anew=self._failed_anew(request),
            answers=answers,
            done=done,
        )

    def _look_at_run(
        self, request: FlowRequest, run: Run | None, needs: Collection[Need], say: Say
    ) -> None:
        """How it was started, and how it goes; the finding's card is told by its environment."""
        if "command" in needs:
            self._command = self._find_command(request, run) or self._command
            self._before = merged(self._before, self._measured(run))
        if "pace" in needs and run is not None:
            self._before = self._paced(run, say)

    def _look_around(self, request: FlowRequest, needs: Collection[Need], say: Say) -> None:
        """The steps of the checkup, and where the run's variables are set."""
        if "checkup" in needs:
            self._checkup = self._examine(request, say) or self._checkup
        if "origins" in needs and self._live and self._origins is None:
            pid = request.pid if is_alive(request) else None
            self._origins = where_set(self._command, pid)

    def subject(self, request: FlowRequest, known: Known | None) -> str:
        """``pid 4711 · rank 3 · train.py:156``."""
        pid = request.pid if self._is_there(request, known) else None
        return subject_words(pid, request.log, self._record(request.run), known)

    def _is_there(self, request: FlowRequest, known: Known | None) -> bool:
        """One that is gone has no pid any more; a process without a GPU is in no snapshot."""
        if known is None or known.process is not None:
            return True
        return self._live and is_alive(request)

    def of_finding(self, request: FlowRequest, known: Known) -> FlowRequest:
        """A live finding says which process it is about, where the user named none."""
        finding = known.finding
        if request.has_subject or finding is None or finding.pid is None:
            return request
        if finding.flow not in FROM_LOGS:
            return request
        found = process_of(known.snapshot, FlowRequest(pid=finding.pid))
        if found is None or not known.may_end(found):
            return request
        ticks = found.start_ticks
        return self.completed(replace(request, pid=found.pid, start_ticks=ticks))

    def _finding(self, request: FlowRequest, snapshot: Snapshot) -> Finding | None:
        """What is known best; once something is, an end that this flow brought about is no news."""
        logged = self._diagnosed(request)
        self._located = self._rerun is not None and _is_fault(logged)
        if logged is not None and logged.cause not in _QUIET:
            carded = on_card(logged, self._command, snapshot)
            found: Finding | None = with_place(carded, request, snapshot)
        elif request.log is not None and process_of(snapshot, request) is None:
            found = logged  # what happens on this machine now is no answer to a log
        else:
            found = live_finding(request, snapshot) or logged
        if found is None or found.cause in _QUIET:
            held = request.flow == "vram-held"  # there the end is what was wanted
            return found if held or self._failed_anew(request) else self._known or found
        self._known = found
        return found

    def _diagnosed(self, request: FlowRequest) -> Finding | None:
        if request.log is None and request.run is None and self._rerun is None:
            return None
        try:
            with self._log(request) as stream:
                if self._rerun is not None:
                    return diagnose.diagnose_rerun(stream)
                found = diagnose.diagnose(stream)
            # Without an error in it, and without an end: there is nothing to advise.
            return None if found.cause == "unknown" and self._has_not_failed(request) else found
        except (OSError, TargetGoneError):
            return None

    def _has_not_failed(self, request: FlowRequest) -> bool:
        record = self._record(request.run) if request.log is None else None
        return record is not None and (record.exit is None or record.exit.status == 0)

    def _failed_anew(self, request: FlowRequest) -> bool:
        """The run that a fix started failed by itself: what it failed of is not what was known."""
        if self._started is None or request.run != self._started:
            return False
        record = self._record(request.run)
        end = record.exit if record is not None else None
        return end is not None and end.status != 0 and end.signal not in ENDED_BY_SOMEBODY

    def _log(self, request: FlowRequest) -> BinaryIO:
        if self._rerun is None and request.log is not None:
            return open(request.log, "rb")
        record = self._rerun or self._record(request.run)
        if record is None:
            raise TargetGoneError("The record of this run is gone.")
        return io.BytesIO(record.log())

    def _measured(self, run: Run | None) -> RunMeasure | None:
        """Of the run before anything was changed: a later one does not count."""
        if self._command is None or (self._before is not None and run is None):
            return None
        return measure(self._command.directory, run)

    def _paced(self, run: Run, say: Say) -> RunMeasure | None:
        """With enough step times to tell a gain from noise, where the run has a record."""
        before, directory = self._before, self._command.directory if self._command else None
        if before is None or directory is None or run.steps_per_s is None:
            return before
        if len(before.step_times_s) >= FEWEST:
            return before
        say(f"measuring the time of a step for {FEWEST} s")
        return replace(before, step_times_s=step_times(directory, FEWEST))

    def _find_command(self, request: FlowRequest, run: Run | None) -> RunCommand | None:
        if not self._live:
            return None
        found = command_of(request, self._record(request.run))
        if found is None or run is None or run.torch_version is None:
            return found
        return replace(found, torch_version=run.torch_version)

    def _examine(self, request: FlowRequest, say: Say) -> Checkup | None:
        """With the run's own interpreter, where it is known."""
        command = self._command
        python = command.interpreter if command is not None else None
        pid = request.pid if is_alive(request) else None
        wanted = CheckupRequest(pid=pid, python=None if pid is not None else python)
        try:
            return self._machine.checkup(wanted, say)
        except CockpitError as error:
            say(str(error))
            return None

    def _stacks(self, request: FlowRequest, snapshot: Snapshot) -> dict[int, Stacks]:
        """Of every rank of the job."""
        found = {}
        for process in ranks(request, snapshot)[:MOST_RANKS]:
            with suppress(CockpitError):
                answer = self._machine.ask_run(process.pid, "stacks", False)
                if isinstance(answer, Stacks):
                    found[process.pid] = answer
        return found

    # -- kept runs

    def _record(self, run: str | None) -> RunRecord | None:
        if run is None or self._folder is None:
            return None
        with suppress(TargetGoneError):
            return run_record.find_run(str(self._folder), run)
        return None

    # -- taken up again

    def save(self, id_: str, request: FlowRequest, state: State, *, is_open: bool = True) -> None:
        """Where the flow stands, with the command line of a process that may be gone by then."""
        command = self._command
        if command is not None and not request.run and not request.command:
            request = replace(request, command=command.argv, cwd=command.cwd)
        self._store.save(id_, self._begun, request, state, is_open=is_open)

    def forget(self, id_: str) -> None:
        """It is over."""
        self._store.forget(id_)

    def unfinished(self, flow: FlowId, but: str) -> Saved | None:
        """One that was left half-way."""
        return self._store.unfinished(flow, but, self._begun)


def _is_fault(finding: Finding | None) -> bool:
    """Of the GPU: a rerun that passed, or failed of something else, has found no line of it."""
    return finding is not None and finding.flow == "kernel-fault" and finding.cause not in _QUIET
