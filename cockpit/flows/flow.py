"""What a flow is made of: checks, questions and offers, all of them rows of data.

Pure: a flow is given what is Known and says what that means and what could be done. Who reads the
machine and who runs a fix is the engine's business (engine/flow_session.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cockpit.model.checkup import Checkup
from cockpit.model.finding import Finding
from cockpit.model.flight import FlightRow
from cockpit.model.flow import Done, FlowId, FlowRequest, Found
from cockpit.model.memory import Stacks
from cockpit.model.process import Process
from cockpit.model.run import Run
from cockpit.model.run_command import RunCommand, RunMeasure
from cockpit.model.snapshot import Snapshot

_OF_BACKEND = {"jax": "jax", "tensorflow": "tensorflow", "cuda": "pytorch"}
_FRAMEWORKS = frozenset({"pytorch", "jax", "tensorflow", "vllm"})

Need = Literal["checkup", "stacks", "command", "origins", "pace", "findings", "flight"]
"""What is read only for flows that ask for it: each takes up to seconds."""

_AMPERE = 8.0
"""Compute capability of the first generation with bf16."""


@dataclass(frozen=True)
class Known:
    """All that was found out so far."""

    request: FlowRequest
    snapshot: Snapshot
    uid: int
    """Who asks: effective uid of the engine."""
    finding: Finding | None = None
    """Of the log; where there is none, the live finding that the flow starts from."""
    process: Process | None = None
    """The process that the flow is about, while it lives."""
    run: Run | None = None
    command: RunCommand | None = None
    """How the run is or was started."""
    before: RunMeasure | None = None
    """How the run went before anything was changed."""
    checkup: Checkup | None = None
    stacks: Mapping[int, Stacks] = field(default_factory=dict)
    flight: tuple[FlightRow, ...] = ()
    """What the ranks' flight recorders say together; empty: there is no dump."""
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a variable of the run → where it is set."""
    is_located: bool = False
    """The finding is of a rerun that was made to find the line."""
    failed_anew: bool = False
    """The run that a fix of this flow has started failed, and nobody ended it."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """To the questions, by their key."""
    done: tuple[Done, ...] = ()

    @property
    def cause(self) -> str:
        """Id of the diagnosed cause; empty when there is none."""
        return self.finding.cause if self.finding is not None else ""

    def fact(self, name: str) -> Any:
        """A fact of the diagnosis; None when it has no such."""
        return self.finding.facts.get(name) if self.finding is not None else None

    @property
    def framework(self) -> str:
        """``pytorch``, ``tensorflow``, ``jax`` or ``vllm``: by message, process or command.

        Where nothing tells it is PyTorch: most runs are.
        """
        told = _OF_BACKEND.get(str(self.fact("backend")))
        if told is None and self.process is not None and self.process.framework in _FRAMEWORKS:
            told = self.process.framework
        words = self.command.argv[:4] if self.command is not None else ()
        names = [os.path.basename(one).partition(".")[0] for one in words]
        return told or ("vllm" if "vllm" in names else "pytorch")

    @property
    def is_live(self) -> bool:
        """The finding was seen on this machine, just now; it is not of a log."""
        return self.finding is not None and self.finding in self.snapshot.findings

    @property
    def is_of_log(self) -> bool:
        """It starts from a log, maybe of another machine, and no process of it lives here."""
        return self.request.log is not None and self.process is None

    @property
    def ended_well(self) -> bool:
        """What the run printed shows no failure, and it ended with status 0."""
        return self.cause == "benign" and self.fact("exit_status") == 0

    @property
    def is_of_nothing(self) -> bool:
        """Neither a run, nor a process, log or command was named, and nothing is found."""
        return not self.request.has_subject and self.finding is None

    @property
    def has_bf16(self) -> bool:
        """The card, or each that the run may get, has bf16 in its tensor cores (Ampere); one whose
        compute capability is not known counts as new."""
        meant = [one for one in self.snapshot.gpus if self.gpu in (None, one.index)]
        return all(_number(one.compute_capability) >= _AMPERE for one in meant)

    def may_end(self, process: Process) -> bool:
        """An own process, or root asks. The plan of the kill decides; this only chooses offers."""
        return process.start_ticks is not None and self.uid in (0, process.uid)

    def holders(self) -> tuple[Process, ...]:
        """Who holds memory on the card that the flow is about, the most first; else on any."""
        gpu = self.gpu
        rows = [
            one
            for one in self.snapshot.processes
            if any(gpu in (None, use.gpu) for use in one.devices)
            or (gpu is None and one.vram_bytes)
        ]
        return tuple(sorted(rows, key=lambda one: -(one.vram_bytes or 0)))

    @property
    def gpu(self) -> int | None:
        """The card that the flow is about, where one is."""
        if self.finding is not None and self.finding.gpu is not None:
            return self.finding.gpu
        if self.process is not None and self.process.devices:
            return self.process.devices[0].gpu
        return 0 if len(self.snapshot.gpus) == 1 else None


def _number(capability: str | None) -> float:
    try:
        return float(capability or _AMPERE)
    except ValueError:
        return _AMPERE


def pids_of(finding: Finding) -> frozenset[int]:
    """The processes that it is about."""
    more = finding.facts.get("pids")
    pids = more if isinstance(more, list | tuple) else ()
    return frozenset(pid for pid in (finding.pid, *pids) if isinstance(pid, int))


def is_about(finding: Finding, pid: int | None) -> bool:
    """The finding is about this process: it names it, alone or among others (``pids``)."""
    if pid is None:
        return False
    return pid in pids_of(finding)


Mark = Literal["ok", "bad", "note", "unknown"]
Judged = tuple[Mark, str] | None
"""Mark and sentence; None: there is nothing to say here."""
Look = Callable[[Known], Iterable[Found]]


@dataclass(frozen=True)
class Check:
    """One thing to look at; calling it gives what it found, or nothing."""

    what: str
    """As a question."""
    judge: Callable[[Known], Judged]

    def __call__(self, known: Known) -> Iterable[Found]:
        """One row, or none."""
        judged = self.judge(known)
        return (
            () if judged is None else (Found(mark=judged[0], what=self.what, sentence=judged[1]),)
        )


@dataclass(frozen=True)
class Question:
    """Something that only the user knows."""

    key: str
    text: str
    options: Callable[[Known], tuple[tuple[str, str], ...]]
    """(value, text); fewer than two: nothing to ask."""


@dataclass(frozen=True)
class Remedy:
    """Which fix, with which values: the engine makes the Action (engine/remedies.py)."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    final: bool = False
    """When this is verified, the flow is over; else the next offers follow."""
    because: str = ""
    """Why just this, from this run's numbers: stands before the preview's own words."""
    pids: tuple[int, ...] = ()
    """The processes that it is about."""
    is_step: bool = False
    """A step on the way, such as to end a job that is to be started again: that it worked does not
    show that what was wrong is right now."""
    is_look: bool = False
    """It changes nothing: what it prints is what is wanted, and neither helps nor fails to."""
    is_spare: bool = False
    """Told only where nothing that the cockpit can run is offered: it says the same by hand."""

    @property
    def key(self) -> str:
        """Equal for equal fixes: one that ran is not offered again."""
        return f"{self.kind} {sorted(self.values.items(), key=lambda one: one[0])!r}"


Offer = Callable[[Known], Iterable[Remedy]]
"""The fixes of one kind that fit what is known; none where it does not apply."""


@dataclass(frozen=True)
class Flow:
    """One way from a bad state to a good one."""

    id: FlowId
    title: str
    checks: tuple[Look, ...]
    offers: tuple[Offer, ...]
    """In the order in which an expert tries them."""
    questions: tuple[Question, ...] = ()
    needs: frozenset[Need] = frozenset({"command"})
    good: Callable[[Known], str] | str = "Nothing is wrong here."
    """What is said when there is nothing to offer and nothing is bad."""
    is_of_a_run: bool = False
    """It is about one run: where nothing is told of that, nothing can be well or bad."""
