"""What the flight recorders say in the hang flow, and the rank that they name."""

from __future__ import annotations

import pytest

from cockpit.flows import FLOWS, machine, multi_gpu
from cockpit.flows.flow import Known, Remedy
from cockpit.flows.machine import State
from cockpit.model.flight import FlightKind, FlightRow
from cockpit.model.flow import FlowRequest, Found
from cockpit.model.memory import Stacks, ThreadStack
from tests.flows.known import command, known, process

WHAT = "What does the flight recorder say?"
BEHIND = FlightRow(
    kind="behind",
    sentence="rank 1 has not called all_reduce number 41 of group 0; rank 0 waits in it.",
    ranks=(1,),
    place="/home/ml1/ddp.py:38 step",
)


def found(facts: Known) -> dict[str, Found]:
    return {one.what: one for one in machine.looked(FLOWS["multi-gpu"], State(), facts).found}


def edits(facts: Known) -> list[Remedy]:
    return [one for one in multi_gpu._edit(facts) if one.kind == "edit"]


def at(frame: str) -> Stacks:
    thread = ThreadStack(name="MainThread", is_training=True, frames=(frame,))
    return Stacks(threads=(thread,), read_by="py-spy")


def test_without_a_dump_there_is_no_row() -> None:
    assert WHAT not in found(known(command=command()))


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("behind", "bad"),
        ("mismatch", "bad"),
        ("not_begun", "bad"),
        ("same", "note"),
        ("alone", "note"),
        ("missing", "unknown"),
        ("unread", "unknown"),
    ],
)
def test_each_kind_has_its_mark(kind: FlightKind, mark: str) -> None:
    row = FlightRow(kind=kind, sentence="rank 1 did something")
    shown = found(known(flight=(row,)))[WHAT]
    assert (shown.mark, shown.sentence) == (mark, "Rank 1 did something.")


def test_the_rank_that_the_recorder_names_leads_to_its_last_call() -> None:
    facts = known(flight=(BEHIND,), command=command())
    assert found(facts)[WHAT].mark == "bad"
    (edit,) = edits(facts)
    assert edit.values["place"] == "/home/ml1/ddp.py:38"
    assert edit.because == "The rank came to this collective, and not to the next one."


def test_while_it_lives_its_stack_tells_where_it_is_now() -> None:
    facts = known(
        process(1, rank=0),
        process(2, on=1, rank=1),
        process(3, on=2, rank=2),
        gpus=3,
        request=FlowRequest(pid=1, flow="multi-gpu"),
        stacks={1: at("/a.py:1 f"), 2: at("/a.py:2 f"), 3: at("/a.py:3 f")},
        flight=(BEHIND,),
        command=command(),
    )
    assert multi_gpu.odd_one(facts) is None  # three ranks at three places
    odd = found(facts)["The odd one?"]
    assert odd.mark == "bad"
    assert odd.sentence == (
        "rank 1 (pid 2) is at /a.py:2 f; by the flight recorder the others wait for it."
    )
    assert edits(facts)[0].values["place"] == "/a.py:2"


def test_where_the_recorder_names_several_or_nobody_no_line_is_offered() -> None:
    for row in (
        FlightRow(kind="behind", sentence="x", ranks=(1, 2), place="/a.py:1 f"),
        FlightRow(kind="same", sentence="x"),
        FlightRow(kind="behind", sentence="x", ranks=(1,), place=None),
    ):
        assert edits(known(flight=(row,))) == []


def test_only_the_hang_flow_reads_dumps() -> None:
    assert [name for name, flow in FLOWS.items() if "flight" in flow.needs] == ["multi-gpu"]
