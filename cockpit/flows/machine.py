"""The state of a flow, and how each event moves it on. Pure: no screen, no clock, no machine.

looking ──► asking ──► looking ──► choosing ──► confirming ──► running ──► looking …
                                      │  ▲          │ declined                │
                                      ▼  └──────────┘                         ▼
                                    ended ◄──────────────── verified, and the last one needed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from cockpit.flows import looks
from cockpit.flows.flow import Flow, Known, Remedy
from cockpit.model.flow import Done, Found
from cockpit.model.remedy import Outcome, Preview

Phase = Literal["looking", "asking", "choosing", "confirming", "running", "ended"]
NOTHING_TOLD = (
    "Nothing is known of the run that this is about. Give what it printed (--log FILE), its "
    "process (--pid PID), or its command line (-- python train.py ...)."
)
WELL = "The run ended with status 0: there is nothing to mend."
MOST_LINES = 200
"""Of what a fix printed: the whole of it is in its file or was used already."""
MOST_OFFERED = 9
"""A digit chooses one. Cut where the fixes are made: some of the offered turn out not to apply."""


@dataclass(frozen=True)
class State:
    """Where a flow stands."""

    phase: Phase = "looking"
    found: tuple[Found, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    """(value, text) of the question that is open."""
    question: str = ""
    key: str = ""
    remedies: tuple[Remedy, ...] = ()
    chosen: int | None = None
    done: tuple[Done, ...] = ()
    tried: tuple[str, ...] = ()
    """Keys of remedies that ran."""
    sentence: str = ""
    """How it ended."""

    @property
    def verified(self) -> bool:
        """A fix ran, was seen to help, and was not taken back."""
        return any(one.verified and not one.undone and not one.is_step for one in self.done)


def looked(flow: Flow, state: State, known: Known) -> State:
    """The machine was read: what that means, and what comes next."""
    found = tuple(one for check in flow.checks for one in check(known))
    found = (*looks.quiet(known, found), *found)
    state = replace(state, found=found)
    for question in flow.questions:
        options = question.options(known) if question.key not in dict(state.answers) else ()
        if len(options) > 1:
            return replace(
                state, phase="asking", question=question.text, key=question.key, asked=options
            )
    remedies = _offered(flow, state, known)
    if remedies:
        return replace(state, phase="choosing", remedies=remedies, chosen=None)
    return ended(state, _without_offers(flow, state, known))


def _offered(flow: Flow, state: State, known: Known) -> tuple[Remedy, ...]:
    remedies: dict[str, Remedy] = {}
    for offer in flow.offers:
        for one in offer(known):
            if one.key not in state.tried:
                remedies.setdefault(one.key, one)
    return tuple(remedies.values())


def _without_offers(flow: Flow, state: State, known: Known) -> str:
    if state.verified:
        return state.done[-1].sentence
    if flow.is_of_a_run and not state.done and known.is_of_nothing:
        return NOTHING_TOLD
    if flow.is_of_a_run and not state.done and known.ended_well:
        return WELL
    if any(one.mark == "bad" for one in state.found):
        return "There is nothing more that can be done from here."
    if state.done:
        return "Nothing more is left to try."
    return flow.good if isinstance(flow.good, str) else flow.good(known)


def answered(state: State, option: int) -> State:
    """A question was answered. Raises IndexError for a number that it does not have."""
    if not 0 <= option < len(state.asked):
        raise IndexError(option)
    value = state.asked[option][0]
    answers = (*state.answers, (state.key, value))
    return replace(state, phase="looking", answers=answers, asked=(), question="", key="")


def chosen(state: State, option: int) -> State:
    """A fix was chosen; it is not confirmed yet. Raises IndexError."""
    if not 0 <= option < len(state.remedies):
        raise IndexError(option)
    return replace(state, phase="confirming", chosen=option)


def declined(state: State) -> State:
    """Back to the choice; nothing ran."""
    return replace(state, phase="choosing", chosen=None)


def confirmed(state: State) -> State:
    """It runs."""
    return replace(state, phase="running")


def finished(state: State, preview: Preview, outcome: Outcome, *, refused: bool = False) -> State:
    """A fix has ended: the flow is over, or the machine is looked at again.

    ``refused``: before anything ran (what it was to act on has changed): it is offered anew. So is
    an attach that nobody has answered yet: it waits for a kernel's next cell, say.
    """
    assert state.chosen is not None
    remedy = state.remedies[state.chosen]
    done = Done(
        title=preview.title,
        lines=preview.lines,
        loses=preview.loses,
        ok=outcome.ok,
        verified=outcome.verified,
        is_step=remedy.is_step,
        is_look=remedy.is_look,
        sentence=outcome.sentence,
        compared=outcome.compared,
        undo=outcome.undo,
        pids=() if refused else remedy.pids,
        path=outcome.path,
        output=outcome.output[-MOST_LINES:],
        profile=outcome.profile,
    )
    is_open = refused or (remedy.kind == "attach" and not outcome.ok)
    tried = state.tried if is_open else (*state.tried, remedy.key)
    state = replace(state, done=(*state.done, done), tried=tried, chosen=None, remedies=())
    if remedy.final and outcome.ok and outcome.verified:
        return ended(state, outcome.sentence)
    return replace(state, phase="looking")


def undone(state: State, number: int, outcome: Outcome) -> State:
    """What was done was taken back, or could not be."""
    record = state.done[number]
    row = Done(
        title=f"undo: {record.title}",
        lines=(),
        ok=outcome.ok,
        verified=None,
        sentence=outcome.sentence,
        compared=outcome.compared,
        output=outcome.output,
    )
    rows = list(state.done)
    if outcome.ok:
        rows[number] = _taken_back(record)
    return replace(state, phase="looking", done=(*rows, row), remedies=(), chosen=None)


def _taken_back(record: Done) -> Done:
    from msgspec.structs import replace as replace_struct

    return replace_struct(record, undone=True, undo=None)


def ended(state: State, sentence: str) -> State:
    """Over."""
    return replace(state, phase="ended", sentence=sentence, chosen=None)


def left(state: State) -> State:
    """The user went away."""
    if state.verified:
        return ended(state, "Left after a fix that helped.")
    changed = [one for one in state.done if one.ok and not one.undone and not one.is_look]
    if not changed:
        return ended(state, "Left; nothing was changed.")
    sentence = f"Left after: {'; '.join(one.title for one in changed)}."
    if undoable(state):
        sentence += " Start this flow again to go on from there, or to take it back."
    return ended(state, sentence)


def undoable(state: State) -> tuple[int, ...]:
    """Which of ``done`` can be taken back, the last one first."""
    return tuple(n for n in reversed(range(len(state.done))) if state.done[n].undo is not None)
