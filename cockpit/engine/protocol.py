"""The lines between engine and face: JSON, one message a line, told apart by ``kind``.

Versioned by PROTOCOL: a face refuses an engine of another number. Requests with an ``id`` get
exactly one ``reply`` with that id, perhaps after some ``progress``.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from cockpit.model.action import KillPlan, KillRequest, KillResult
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.flow import FlowAnswer, FlowRequest, FlowState
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

PROTOCOL = 2


class Message(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of every line."""


class EngineOptions(Struct, frozen=True, kw_only=True):
    """How an engine is started: the one argument of ``python -m cockpit.engine``, as JSON."""

    interval_s: float = 1.0
    only: tuple[int, ...] | None = None
    """GPU indices; None: all."""
    readonly: bool = False
    demo: str | None = None
    """Name of a demo scenario: nothing of this machine is touched."""
    replay: str | None = None
    """Path of a recording: nothing of this machine is touched."""
    record: str | None = None
    """Path of the recording to write."""
    complete: bool = False
    """One-shot commands: the first tick waits until rates and slow values are there, too."""


# -- engine → face


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """The first line of every engine."""

    protocol: int = PROTOCOL
    version: str
    source: Source
    title: str = ""
    """Scenario or file; empty for a live machine."""
    readonly: bool = False


class Tick(Message, frozen=True, kw_only=True, tag="tick"):
    """One snapshot."""

    snapshot: Snapshot
    relatives: tuple[Relative, ...] = ()
    """Ancestors without VRAM, only while a tree is watched."""
    playback: Playback | None = None
    places: tuple[int, ...] | None = None
    """On the wire (:mod:`cockpit.engine.tick_delta`): the place of each process in the tick before,
    -1 for the next of ``snapshot.processes``. None: all of them are there."""


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """What an action does right now."""

    id: int
    sentence: str


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """The answer to one request: ``error``, or the one field that the request asks for."""

    id: int
    error: str | None = None
    exit_code: int = 0
    """Of the error, as a command would end."""
    details: ProcessDetails | None = None
    plan: KillPlan | None = None
    results: tuple[KillResult, ...] | None = None
    attach: AttachPlan | None = None
    census: Census | None = None
    segments: Segments | None = None
    stacks: Stacks | None = None
    outcome: RunOutcome | None = None
    flow: FlowState | None = None
    checkup: Checkup | None = None


# -- face → engine


class Watch(Message, frozen=True, kw_only=True, tag="watch"):
    """What is looked at: unseen things are not read."""

    interval_s: float | None = None
    tree: bool = False


class AskDetails(Message, frozen=True, kw_only=True, tag="ask_details"):
    """Everything about one process."""

    id: int
    pid: int
    start_ticks: int | None


class AskKillPlan(Message, frozen=True, kw_only=True, tag="ask_kill_plan"):
    """What would a kill do? Changes nothing."""

    id: int
    request: KillRequest


class RunKill(Message, frozen=True, kw_only=True, tag="run_kill"):
    """Run a plan that this engine made."""

    id: int
    plan: str
    typed: str | None = None


class AskAttach(Message, frozen=True, kw_only=True, tag="ask_attach"):
    """Could this process be attached to, and how? Changes nothing."""

    id: int
    pid: int
    start_ticks: int | None


class RunAttach(Message, frozen=True, kw_only=True, tag="run_attach"):
    """Attach; the user has confirmed. Answered by ``outcome``."""

    id: int
    pid: int
    start_ticks: int | None


class AskRun(Message, frozen=True, kw_only=True, tag="ask_run"):
    """Ask an attached run; answered by the field of the question's name."""

    id: int
    pid: int
    question: Question
    deep: bool = False


class DoInRun(Message, frozen=True, kw_only=True, tag="do_in_run"):
    """Do something in an attached run; the user has confirmed. Answered by ``outcome``."""

    id: int
    request: RunRequest


class StartFlow(Message, frozen=True, kw_only=True, tag="start_flow"):
    """Begin a guided flow; changes nothing. Answered by ``flow``."""

    id: int
    request: FlowRequest


class AnswerFlow(Message, frozen=True, kw_only=True, tag="answer_flow"):
    """What the user said to the flow's open question. Answered by ``flow``."""

    id: int
    flow: str
    answer: FlowAnswer


class CancelFlow(Message, frozen=True, kw_only=True, tag="cancel_flow"):
    """Stop the fix that runs, as soon as that is safe; the open answer comes then."""

    flow: str


class AskCheckup(Message, frozen=True, kw_only=True, tag="ask_checkup"):
    """Examine the machine with a job's Python; takes seconds, changes nothing."""

    id: int
    request: CheckupRequest


class Play(Message, frozen=True, kw_only=True, tag="play"):
    """Steer a replay; other sources ignore it."""

    paused: bool | None = None
    speed: float | None = None
    seek_s: float | None = None


FromEngine = Hello | Tick | Progress | Reply
ToEngine = (
    Watch
    | AskDetails
    | AskKillPlan
    | RunKill
    | AskAttach
    | RunAttach
    | AskRun
    | DoInRun
    | StartFlow
    | AnswerFlow
    | CancelFlow
    | AskCheckup
    | Play
)

_encoder = msgspec.json.Encoder()
_from_engine = msgspec.json.Decoder(FromEngine)
_to_engine = msgspec.json.Decoder(ToEngine)


def encode(message: Message) -> bytes:
    """One line, line end included."""
    return _encoder.encode(message) + b"\n"


def decode_from_engine(line: bytes) -> FromEngine:
    """Raises msgspec.DecodeError (ValidationError included) on anything that is not a message."""
    return _from_engine.decode(line)


def decode_to_engine(line: bytes) -> ToEngine:
    """Raises msgspec.DecodeError (ValidationError included) on anything that is not a request."""
    return _to_engine.decode(line)
