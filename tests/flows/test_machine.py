"""The pure state machine: what each event does to a flow."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.flows import machine
from cockpit.flows.flow import Check, Flow, Known, Question, Remedy
from cockpit.flows.machine import State
from cockpit.model.flow import FlowRequest
from cockpit.model.remedy import Outcome, Preview, UndoRecord
from tests.flows.known import known

PREVIEW = Preview(
    title="end stray 7", form="signal", lines=("SIGTERM 7",), risk="confirm", loses="", verify=""
)


def flow(*remedies: Remedy, questions: tuple[Question, ...] = (), checks: Any = ()) -> Flow:
    return Flow(
        id="vram-held",
        title="test",
        checks=checks,
        offers=(lambda _: remedies,),
        questions=questions,
    )


A, B = Remedy("kill", {"pid": 1}), Remedy("kill", {"pid": 2}, final=True)


def ran(state: State, option: int, **outcome: Any) -> State:
    state = machine.confirmed(machine.chosen(state, option))
    return machine.finished(state, PREVIEW, Outcome(**{"ok": True, "sentence": "s", **outcome}))


def test_what_is_found_out_and_offered_is_there_after_the_first_look() -> None:
    check = Check("Strays?", lambda _: ("bad", "one"))
    silent = Check("Xids?", lambda _: None)
    state = machine.looked(flow(A, B, checks=(check, silent)), State(), known())
    assert state.phase == "choosing"
    assert [one.sentence for one in state.found] == ["one"]
    assert state.remedies == (A, B)


def test_the_same_fix_is_offered_once() -> None:
    assert machine.looked(flow(A, A, B), State(), known()).remedies == (A, B)


def test_a_fix_that_ran_is_not_offered_again_whatever_came_of_it() -> None:
    the_flow = flow(A, B)
    for verified in (True, False, None):
        state = machine.looked(the_flow, State(), known())
        state = ran(state, 0, verified=verified)
        assert state.phase == "looking"
        assert machine.looked(the_flow, state, known()).remedies == (B,)


def test_the_last_fix_that_helped_ends_the_flow() -> None:
    state = ran(machine.looked(flow(A, B), State(), known()), 1, verified=True)
    assert state.phase == "ended"
    assert state.verified


@pytest.mark.parametrize("verified", [False, None])
def test_the_last_fix_that_was_not_seen_to_help_does_not(verified: bool | None) -> None:
    state = ran(machine.looked(flow(A, B), State(), known()), 1, verified=verified)
    assert state.phase == "looking"
    assert not state.verified


def test_what_failed_on_its_way_is_no_success_even_where_it_says_verified() -> None:
    state = ran(machine.looked(flow(B), State(), known()), 0, ok=False, verified=True)
    assert state.phase == "looking"


def test_a_question_with_one_answer_is_not_asked() -> None:
    one = Question("gpu", "Which GPU?", lambda _: (("0", "GPU 0"),))
    two = Question("gpu", "Which GPU?", lambda _: (("0", "GPU 0"), ("1", "GPU 1")))
    assert machine.looked(flow(A, questions=(one,)), State(), known()).phase == "choosing"
    state = machine.looked(flow(A, questions=(two,)), State(), known())
    assert (state.phase, state.question) == ("asking", "Which GPU?")
    state = machine.answered(state, 1)
    assert dict(state.answers) == {"gpu": "1"}
    assert machine.looked(flow(A, questions=(two,)), state, known()).phase == "choosing"


def test_an_answer_that_is_none_is_an_index_error() -> None:
    state = machine.looked(flow(A), State(), known())
    for number in (-1, 1, 99):
        with pytest.raises(IndexError):
            machine.chosen(state, number)


def test_declining_leads_back_to_the_choice() -> None:
    state = machine.looked(flow(A, B), State(), known())
    assert machine.declined(machine.chosen(state, 1)) == state


def test_without_an_offer_it_ends_and_says_why() -> None:
    bad = Check("x", lambda _: ("bad", "y"))
    assert machine.looked(flow(), State(), known()).sentence == "Nothing is wrong here."
    assert "nothing more" in machine.looked(flow(checks=(bad,)), State(), known()).sentence


def test_what_can_be_undone_is_listed_the_last_first_and_goes_once_undone() -> None:
    record = UndoRecord(kind="patch", title="t", data={})
    state = ran(machine.looked(flow(A, B), State(), known()), 0, undo=record)
    state = ran(machine.looked(flow(A, B), state, known()), 0, undo=record)
    assert machine.undoable(state) == (1, 0)
    state = machine.undone(state, 1, Outcome(ok=True, sentence="put back"))
    assert machine.undoable(state) == (0,)
    assert state.done[1].undone
    state = machine.undone(state, 0, Outcome(ok=False, sentence="changed since"))
    assert machine.undoable(state) == (0,)


def test_a_fix_that_helped_and_was_taken_back_is_no_success() -> None:
    record = UndoRecord(kind="patch", title="t", data={})
    state = ran(machine.looked(flow(A), State(), known()), 0, verified=True, undo=record)
    assert state.verified
    assert not machine.undone(state, 0, Outcome(ok=True, sentence="")).verified


def test_leaving_says_whether_anything_was_changed() -> None:
    state = machine.looked(flow(A), State(), known())
    assert machine.left(state).sentence == "Left; nothing was changed."
    state = ran(state, 0, verified=False)
    assert "end stray 7" in machine.left(state).sentence


def test_a_look_alone_has_changed_nothing() -> None:
    look = Remedy("tensors", {"pid": 1}, is_look=True)
    state = ran(machine.looked(flow(look), State(), known()), 0)
    assert machine.left(state).sentence == "Left; nothing was changed."


def test_known_without_a_gpu_in_the_finding_takes_the_only_card() -> None:
    assert known().gpu == 0
    assert Known(request=FlowRequest(), snapshot=known(gpus=2).snapshot, uid=0).gpu is None
