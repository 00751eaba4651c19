"""One flow being walked: reads what it needs, asks, runs what was confirmed, keeps the journal.

The flow itself (flows/) is pure; this is its hands and eyes. Works on any Machine: from a demo or
a recording there is no way to this host's processes, files or programs. Past 400 lines, because
every answer moves the same few fields; what can stand alone does (flow_facts, _offers, _tools …).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec.structs import replace as replace_struct

from cockpit.act.action import Action, Console
from cockpit.engine import flow_offers as offers
from cockpit.engine import flow_opening as opening
from cockpit.engine import remedies
from cockpit.engine.flow_offers import Ready
from cockpit.engine.flow_report import markdown
from cockpit.engine.flow_store import Journalled
from cockpit.engine.flow_tools import Tools
from cockpit.engine.machine import Say
from cockpit.errors import CockpitError, RefusedError, UsageError
from cockpit.flows import FLOWS, looks, machine
from cockpit.flows.flow import Flow, Known
from cockpit.flows.machine import State
from cockpit.model.flow import (
    Ask,
    Choose,
    Confirm,
    Ended,
    FlowAnswer,
    FlowId,
    FlowRequest,
    FlowState,
    Found,
    InTerminal,
    Prompt,
)
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean

WHAT_IS_WRONG = "What is wrong?"
Row = TypeVar("Row")
log = logging.getLogger(__name__)


@dataclass
class FlowSession:
    """Used from one thread at a time: each answer waits for the one before."""

    id: str
    request: FlowRequest
    tools: Tools
    _flow: Flow | None = None
    _state: State = field(default_factory=State)
    _known: Known | None = None
    _ready: list[Ready] = field(default_factory=list)
    _aside: tuple[Found, ...] = ()
    """Why it is another flow than the one that was asked for."""
    _at_first: tuple[Found, ...] = ()
    """What was found before anything was done."""
    _confirmed: bool = False
    """The open question is for the face's terminal: the fix was confirmed already."""
    _lines: Journalled | None = None
    """Of what was confirmed and has no result yet."""
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, say: Say) -> FlowState:
        """Look around, up to the first question or choice. Raises CockpitError."""
        with self._alone():
            self.request = self.tools.facts.completed(self.request)
            if self.request.flow is not None:
                self._enter(self.request.flow)
                return self._go_on(say)
            return self._begin_anywhere(say)

    def _begin_anywhere(self, say: Say) -> FlowState:
        """No flow was named: the log, a finding, or the machine tells which it is."""
        known = self._look(say)
        if opening.is_harmless(known):
            return self._nothing_to_repair(known)
        flow = opening.flow_of(known, self.tools.facts.flow_of(known))
        if flow is None:
            return self._ask_what(known)
        self.request = self.tools.facts.of_finding(self.request, known)
        self._enter(flow)
        return self._go_on(say)

    def _nothing_to_repair(self, known: Known) -> FlowState:
        """What the log shows is no failure, or the run got over it."""
        self._known = known
        self._state = State(found=tuple(opening.harmless(known)))
        self._state = machine.ended(self._state, opening.nothing_to_repair(known))
        return self._end()

    def answer(self, answer: FlowAnswer, say: Say) -> FlowState:
        """Move on. Raises UsageError for an answer to another question, or while a fix runs."""
        with self._alone():
            if answer.leave:
                self._settle("It was not run.")
                self._state = machine.left(self._state)
                return self._end()
            return self._answer(answer, say)

    def expect(self) -> None:
        """An answer is on its way, to be given on another thread: a cancel behind it is for it."""
        if not self.is_busy:
            self._cancelled.clear()

    def cancel(self) -> None:
        """Tell the running fix to stop; its outcome says what was done by then."""
        self._cancelled.set()

    @property
    def is_busy(self) -> bool:
        """It looks around, or a fix runs."""
        return self._lock.locked()

    @property
    def runs_a_fix(self) -> bool:
        """Something that was confirmed has not come to its end yet."""
        return self.is_busy and self._state.phase == "running"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A second answer is refused, not kept waiting: a fix may be a training of hours."""
        if not self._lock.acquire(blocking=False):
            raise UsageError("Something runs in this flow: wait until it ends, or stop it.")
        try:
            yield
        finally:
            self._lock.release()

    # -- answers

    def _answer(self, answer: FlowAnswer, say: Say) -> FlowState:
        phase = self._state.phase
        if phase == "asking" and answer.option is not None:
            return self._answered(answer.option, say)
        if phase == "choosing" and answer.undo is not None:
            return self._undo(answer.undo, say)
        if phase == "choosing" and answer.option is not None:
            return self._chosen(answer)
        if phase == "confirming" and answer.declined:
            return self._declined()
        if phase == "confirming" and answer.exit_status is not None and self._confirmed:
            return self._run(say, answer.exit_status)
        if phase == "confirming" and (answer.confirmed or answer.typed is not None):
            return self._confirm(answer, say)
        raise UsageError("That is no answer to what was asked.")

    def _answered(self, option: int, say: Say) -> FlowState:
        key, value = self._state.key, _at(self._state.asked, option)[0]
        self._state = machine.answered(self._state, option)
        if key == "flow":
            self._state = State()
            self._enter(_flow_id(value))
        elif key == "run":
            self.request = self.tools.facts.of_run(self.request, value)
        elif key == looks.WHICH.key:
            self.request = self.tools.facts.of_process(self.request, value)
        elif key == "take_up":
            self._take_up(value)
        return self._go_on(say)

    def _chosen(self, answer: FlowAnswer) -> FlowState:
        option = answer.option
        assert option is not None
        _at(self._ready, option)
        state = machine.chosen(self._state, option)
        if answer.command or answer.where is not None:
            self._edit(option, answer)
        ready = self._ready[option]
        if ready.preview.refusal is not None:
            raise RefusedError(ready.preview.refusal)
        self._state = state
        return self._shown()

    def _edit(self, option: int, answer: FlowAnswer) -> None:
        ready = self._ready[option]
        action = remedies.edited(ready.action, answer.command, answer.where)
        if action is None:
            raise UsageError("This fix has no command line that could be changed.")
        readonly = self.tools.readonly
        self._ready[option] = offers.ready(ready.remedy, action, action.preview(), readonly)

    @property
    def _only_looks(self) -> bool:
        return self.tools.readonly or self.request.dry_run

    def _refuse_where_nothing_runs(self) -> None:
        """However the answer came about: nothing is done in a session that only looks."""
        if self._only_looks:
            raise RefusedError(
                offers.READONLY if self.tools.readonly else "A dry run runs nothing."
            )

    def _confirm(self, answer: FlowAnswer, say: Say) -> FlowState:
        self._refuse_where_nothing_runs()
        preview = self._chosen_one().preview
        if preview.typed is not None and answer.typed != preview.typed:
            raise RefusedError(f"Not confirmed: `{clean(preview.typed)}` has to be typed.")
        remedy = self._chosen_one().remedy
        refusal = self._chosen_one().action.preview().refusal if remedy.kind == "admin" else None
        if refusal is not None:  # somebody uses the GPU by now
            raise RefusedError(refusal)
        by_machine = remedy.kind in remedies.JOURNALLED_BY_MACHINE
        journal = None if by_machine else self.tools.facts.journal
        self._lines = Journalled(journal, remedy.kind, preview, remedy.pids)
        self._lines.intend()
        if preview.terminal is not None:
            self._confirmed = True
            return self._shown()
        return self._run(say)

    def _declined(self) -> FlowState:
        """Before it was confirmed, or in the terminal, where it could not be started."""
        self._settle("It was not run.")
        self._state = machine.declined(self._state)
        return self._shown()

    def _settle(self, sentence: str) -> None:
        """The journal gets a result for what was confirmed and not done."""
        if self._lines is not None:
            self._lines.came_to(Outcome(ok=False, sentence=sentence))
        self._confirmed, self._lines = False, None

    # -- doing

    def _run(self, say: Say, exit_status: int = 0) -> FlowState:
        """``exit_status`` of what the face has run in the terminal."""
        self._refuse_where_nothing_runs()
        lines = self._lines
        assert lines is not None
        self._confirmed, self._lines = False, None
        ready = self._chosen_one()
        self._state = machine.confirmed(self._state)
        console = Console(say=lambda line: say(clean(line)), cancelled=self._cancelled)
        if exit_status and ready.preview.risk == "admin":
            sentence = f"It ended with status {exit_status}: it did not do what it was to do."
            outcome = Outcome(ok=False, sentence=sentence)
            refused = False
        else:
            outcome, refused = _outcome(ready.action, console)
        lines.came_to(outcome)
        if lines.trouble is not None:
            say(clean(lines.trouble))
        self._state = machine.finished(self._state, ready.preview, outcome, refused=refused)
        self.request = self.tools.facts.after(self.request, ready.remedy.kind, outcome)
        self._save()
        if self._state.phase == "ended":
            return self._end()
        return self._go_on(say)

    def _undo(self, number: int, say: Say) -> FlowState:
        self._refuse_where_nothing_runs()
        index = _at(machine.undoable(self._state), number)
        record = self._state.done[index].undo
        assert record is not None
        console = Console(say=lambda line: say(clean(line)), cancelled=self._cancelled)
        preview = Preview(
            title=f"undo: {record.title}",
            form="operation",
            lines=(clean(record.title),),
            risk="confirm",
            loses="nothing",
            verify="",
        )
        lines = Journalled(self.tools.facts.journal, f"undo-{record.kind}", preview, ())
        lines.intend()
        outcome = remedies.undo(record, self.tools.machine, console)
        lines.came_to(outcome)
        self._state = machine.undone(self._state, index, outcome)
        self._save()
        return self._go_on(say)

    # -- looking

    def _enter(self, flow: FlowId) -> None:
        self._flow = FLOWS[flow]
        self.request = replace_struct(self.request, flow=flow)

    def _take_up(self, value: str) -> None:
        saved = self.tools.facts.unfinished(self._flow_id(), self.id)
        if saved is not None and value == "go_on":
            self._state = replace(self._state, done=saved.done, tried=saved.tried)
            self.request = saved.request
        if saved is not None:
            self.tools.facts.forget(saved.id)

    def _look(self, say: Say) -> Known:
        needs = self._flow.needs if self._flow is not None else frozenset()
        return self.tools.facts.look(
            self.request,
            self._snapshot("findings" in needs, say),
            needs,
            answers=dict(self._state.answers),
            done=self._state.done,
            say=say,
        )

    def _snapshot(self, with_findings: bool, say: Say) -> Snapshot:
        """Fresh; where findings count, once an engine that is young has seen enough for them."""
        asked = self.request
        if self._flow is None and not asked.has_subject:
            return self.tools.of_machine(self._cancelled, say)
        if with_findings:
            return self.tools.of_process(asked, self._cancelled, say)
        return self.tools.fresh()

    def _ask_what(self, known: Known) -> FlowState:
        """No flow was named, and nothing tells which it is."""
        options = tuple((one.id, one.title) for one in FLOWS.values())
        found = (opening.seen(known), *opening.failed(self.tools.facts.failures(self.request)))
        self._state = _asking("flow", WHAT_IS_WRONG, options, State(found=found))
        return self._shown()

    def _go_on(self, say: Say) -> FlowState:
        """Ask what only the user knows, before the machine is asked for seconds; else look."""
        assert self._flow is not None
        question = self.tools.facts.question(
            self._flow.id, self.request, self.id, self._state, may_take_up=not self._only_looks
        )
        if question is not None:
            self._state = _asking(*question, state=self._state)
            return self._shown()
        known = self._known = self._look(say)
        other = opening.other_flow(self._flow.id, known, self.tools.facts.flow_of(known))
        if other is not None and not self._aside:
            self._aside = opening.goes_on_as(self._flow.id, other, known)
            self._enter(other)
            return self._go_on(say)
        self._state = machine.looked(self._flow, self._state, known)
        aside = (*self._aside, *opening.failed_otherwise(self._flow.id, known))
        self._state = replace(self._state, found=(*aside, *self._state.found))
        if not self._state.done:
            self._at_first = self._state.found
        if self._state.phase == "choosing":
            self._prepare(known)
        if self._state.phase == "ended":
            return self._end()
        return self._shown()

    def _prepare(self, known: Known) -> None:
        """Make the actions; what cannot be made is not offered."""
        found = offers.made(
            self._state.remedies, known, self.tools.machine, readonly=self.tools.readonly
        )
        kept = tuple(one.remedy for one in found)
        self._ready = found
        self._state = replace(self._state, remedies=kept)
        if not kept:
            self._state = machine.ended(self._state, "There is nothing that can be done from here.")

    # -- showing

    def _chosen_one(self) -> Ready:
        assert self._state.chosen is not None
        return self._ready[self._state.chosen]

    def _shown(self) -> FlowState:
        known = self._known
        flow = self._flow
        return FlowState(
            id=self.id,
            flow=flow.id if flow is not None else None,
            title=flow.title if flow is not None else "Troubleshooting",
            subject=self.tools.facts.subject(self.request, known),
            cause=clean(known.finding.title) if known is not None and known.finding else "",
            found=self._state.found,
            done=self._state.done,
            prompt=self._prompt(),
        )

    def _prompt(self) -> Prompt:
        state = self._state
        if state.phase == "asking":
            return Ask(question=state.question, texts=tuple(text for _, text in state.asked))
        if state.phase == "choosing":
            undoable = tuple(state.done[n].title for n in machine.undoable(state))
            return Choose(options=tuple(one.preview for one in self._ready), undoable=undoable)
        if state.phase == "confirming":
            preview = self._chosen_one().preview
            if self._confirmed and preview.terminal is not None:
                return InTerminal(command=preview.terminal, preview=preview)
            return Confirm(preview=preview)
        return Ended(verified=state.verified, sentence=clean(state.sentence))

    def _end(self) -> FlowState:
        """What was left half-way is kept, to be taken up again; what helped is over."""
        if machine.undoable(self._state) and not self._state.verified:
            self.tools.facts.save(self.id, self.request, self._state, is_open=False)
        else:
            self.tools.facts.forget(self.id)
        shown = self._shown()
        assert isinstance(shown.prompt, Ended)
        snapshot = self._known.snapshot if self._known is not None else None
        text = markdown(shown, self._at_first, snapshot)
        return replace_struct(shown, prompt=replace_struct(shown.prompt, report=text))

    def _flow_id(self) -> FlowId:
        assert self._flow is not None
        return self._flow.id

    def _save(self) -> None:
        self.tools.facts.save(self.id, self.request, self._state)


def _asking(
    key: str, question: str, options: tuple[tuple[str, str], ...], state: State | None = None
) -> State:
    return replace(state or State(), phase="asking", key=key, question=question, asked=options)


def _outcome(action: Action, console: Console) -> tuple[Outcome, bool]:
    """And whether it was refused before anything ran: then it may be tried again."""
    try:
        return action.run(console), False
    except RefusedError as error:
        return Outcome(ok=False, sentence=str(error)), True
    except CockpitError as error:
        return Outcome(ok=False, sentence=str(error)), False
    except Exception as error:  # the flow has to go on, and the journal to have its result
        log.exception("a fix failed")
        return Outcome(ok=False, sentence=f"The engine failed at this: {error!r}."), False


def _at(rows: Sequence[Row], number: int) -> Row:
    if not 0 <= number < len(rows):
        raise UsageError(f"There is no answer number {number + 1}.")
    return rows[number]


def _flow_id(text: str) -> FlowId:
    for one in FLOWS:
        if one == text:
            return one
    raise KeyError(text)
