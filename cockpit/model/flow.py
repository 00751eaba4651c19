"""Guided troubleshooting on the wire: what a flow has found out, and what it asks next."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cockpit.model.profile import StepProfile
from cockpit.model.remedy import Compared, Preview, TerminalCommand, UndoRecord

FlowId = Literal["oom", "no-cuda", "kernel-fault", "slow", "multi-gpu", "vram-held", "first-run"]
FLOW_IDS: tuple[FlowId, ...] = (
    "oom",
    "no-cuda",
    "kernel-fault",
    "slow",
    "multi-gpu",
    "vram-held",
    "first-run",
)


class FlowRequest(Struct, frozen=True, kw_only=True):
    """Where a flow starts from: whatever is known already."""

    flow: FlowId | None = None
    """None: the log or the worst finding tells, else it is asked."""
    pid: int | None = None
    start_ticks: int | None = None
    run: str | None = None
    """Id of a kept run (``cockpit run``)."""
    log: str | None = None
    """Absolute path of what the run printed."""
    command: tuple[str, ...] = ()
    """The run's command line, where the user gave it."""
    cwd: str | None = None
    """Where that command line was given."""
    help: str = ""
    """What its program answers to ``--help``; empty: it was not asked."""
    dry_run: bool = False
    """Nothing is run, taken back or forgotten; everything is previewed."""

    @property
    def has_subject(self) -> bool:
        """It says what it is about: a log, a kept run, a process, or a command."""
        return bool(self.log or self.run or self.pid or self.command)


class Found(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    mark: Literal["ok", "bad", "note", "unknown"]
    """``ok``: not the cause; ``bad``: this is it, or part of it."""
    what: str
    """As a question: ``Whose memory?``"""
    sentence: str


class Done(Struct, frozen=True, kw_only=True):
    """One fix that was run in this flow."""

    title: str
    lines: tuple[str, ...]
    """What exactly ran."""
    loses: str = ""
    ok: bool
    verified: bool | None
    is_step: bool = False
    """Only a step on the way to a fix: not counted in ``Ended.verified``."""
    is_look: bool = False
    """Nothing was changed: ``output`` is what was wanted."""
    sentence: str
    compared: tuple[Compared, ...] = ()
    undo: UndoRecord | None = None
    undone: bool = False
    pids: tuple[int, ...] = ()
    """The processes that it was about."""
    path: str | None = None
    output: tuple[str, ...] = ()
    profile: StepProfile | None = None

    @property
    def verdict(self) -> str:
        """How it came out, in a word or two; a look and a step help nothing by themselves."""
        if not self.ok:
            return "failed"
        if self.is_look or (self.is_step and self.verified):
            return "done"
        return {True: "helped", False: "did not help", None: "not verified"}[self.verified]


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """A question that the machine cannot answer. The answer is the number of one of the texts."""

    question: str
    texts: tuple[str, ...]


class Choose(Struct, frozen=True, kw_only=True, tag="choose"):
    """Which fix? Every one with its preview; those with a ``refusal`` cannot be chosen."""

    options: tuple[Preview, ...]
    undoable: tuple[str, ...] = ()
    """Titles of what was done here and can be taken back."""


class Confirm(Struct, frozen=True, kw_only=True, tag="confirm"):
    """Exactly this runs. ``typed`` of the preview says what has to be typed, if anything."""

    preview: Preview


class InTerminal(Struct, frozen=True, kw_only=True, tag="in_terminal"):
    """The face runs this in the user's own terminal and answers with its exit status."""

    command: TerminalCommand
    preview: Preview


class Ended(Struct, frozen=True, kw_only=True, tag="ended"):
    """The flow is over."""

    verified: bool
    """A fix ran, and was seen to help."""
    sentence: str
    report: str = ""
    """Markdown: what was seen, done, and how it came out. Secrets are masked."""


Prompt = Ask | Choose | Confirm | InTerminal | Ended


class FlowState(Struct, frozen=True, kw_only=True):
    """A flow at one moment: drawn by the TUI, printed by the plain mode."""

    id: str
    flow: FlowId | None
    title: str
    subject: str = ""
    """Such as ``pid 4711 · rank 3 · train.py:156``."""
    cause: str = ""
    """The diagnosis in a sentence; empty when there is none."""
    found: tuple[Found, ...] = ()
    done: tuple[Done, ...] = ()
    prompt: Prompt


class FlowAnswer(Struct, frozen=True, kw_only=True):
    """What the user said. Exactly one of these is set."""

    option: int | None = None
    """To ``ask`` and ``choose``: a number from 0."""
    undo: int | None = None
    """To ``choose``: which of ``undoable``."""
    confirmed: bool = False
    typed: str | None = None
    """To ``confirm``: what was typed where something has to be."""
    declined: bool = False
    """To ``confirm`` and ``in_terminal``: back to the choice."""
    exit_status: int | None = None
    """To ``in_terminal``."""
    leave: bool = False
    command: tuple[str, ...] = ()
    """To ``choose``, with ``option``: the command line as the user has edited it."""
    where: Literal["background", "tmux", "terminal"] | None = None
    """To ``choose``, with ``option``: where the command is to run."""
