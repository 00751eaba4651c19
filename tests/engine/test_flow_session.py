"""Open flows in an engine: one answer at a time, room for others, only answers that were asked.

On the simulated machine: its kills take their time, and nothing of this host is touched.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.act.action import Console
from cockpit.act.admin import AdminStep
from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine import flow_offers, remedies
from cockpit.engine.flows import MOST_OPEN, Flows
from cockpit.errors import RefusedError, UsageError
from cockpit.flows.flow import Remedy
from cockpit.flows.machine import State
from cockpit.model.flow import (
    Ask,
    Choose,
    Confirm,
    Done,
    Ended,
    FlowAnswer,
    FlowRequest,
    FlowState,
    InTerminal,
)
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.snapshot import Snapshot
from tests.flows.known import known

HELD = FlowRequest(flow="vram-held")


def silent(sentence: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def machine() -> SimulatedMachine:
    found = SimulatedMachine("stray")
    found.start()
    return found


@pytest.fixture
def flows(machine: SimulatedMachine, state: Path) -> Flows:
    return Flows(machine, lambda: machine.snapshot(1.0))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "cockpit"


def confirming(flows: Flows) -> FlowState:
    """A flow whose first fix was chosen."""
    begun = flows.start(HELD, silent)
    assert isinstance(begun.prompt, Choose)
    return flows.answer(begun.id, FlowAnswer(option=0), silent)


def test_a_second_answer_while_a_fix_runs_is_refused_and_not_kept_waiting(flows: Flows) -> None:
    chosen = confirming(flows)
    running, go_on = threading.Event(), threading.Event()

    def say(sentence: str) -> None:
        running.set()
        go_on.wait(10)

    answers: list[FlowState] = []
    answer = FlowAnswer(confirmed=True)
    runs = threading.Thread(target=lambda: answers.append(flows.answer(chosen.id, answer, say)))
    runs.start()
    assert running.wait(10)
    began = time.monotonic()
    with pytest.raises(UsageError, match="Something runs in this flow"):
        flows.answer(chosen.id, FlowAnswer(leave=True), silent)
    assert time.monotonic() - began < 1
    go_on.set()
    runs.join(30)
    assert len(answers[0].done) == 1


class Seen:
    """An Action that notes whether it was told to stop, each time that it runs."""

    def __init__(self, preview: Preview) -> None:
        self._preview = preview
        self.cancelled: list[bool] = []

    def preview(self) -> Preview:
        return self._preview

    def run(self, console: Console) -> Outcome:
        self.cancelled.append(console.cancelled.is_set())
        raise RefusedError("seen")  # so that it is offered anew


def test_a_cancel_right_behind_an_answer_stops_that_one_and_no_later_one(flows: Flows) -> None:
    chosen = confirming(flows)
    session = flows._session(chosen.id)
    ready = session._ready[0]
    seen = Seen(ready.preview)
    for cancels in (True, False):
        session._ready[0] = replace(ready, action=seen)
        flows.expect(chosen.id)
        if cancels:
            flows.cancel(chosen.id)
        flows.answer(chosen.id, FlowAnswer(confirmed=True), silent)
        flows.answer(chosen.id, FlowAnswer(option=0), silent)
    assert seen.cancelled == [True, False]


def test_old_flows_make_room_but_not_one_in_which_a_fix_runs(flows: Flows) -> None:
    chosen = confirming(flows)
    running, go_on = threading.Event(), threading.Event()

    def say(sentence: str) -> None:
        running.set()
        go_on.wait(20)

    answers: list[FlowState] = []
    answer = FlowAnswer(confirmed=True)
    runs = threading.Thread(target=lambda: answers.append(flows.answer(chosen.id, answer, say)))
    runs.start()
    assert running.wait(10)
    others = [flows.start(HELD, silent).id for _ in range(MOST_OPEN + 3)]
    flows.cancel(chosen.id)
    go_on.set()
    runs.join(30)
    assert answers, "its answer came"
    flows.answer(chosen.id, FlowAnswer(leave=True), silent)
    with pytest.raises(UsageError, match="This flow is over"):
        flows.answer(others[0], FlowAnswer(leave=True), silent)
    assert isinstance(flows.answer(others[-1], FlowAnswer(leave=True), silent).prompt, Ended)


def test_a_flow_that_has_ended_is_forgotten(flows: Flows) -> None:
    begun = flows.start(HELD, silent)
    flows.answer(begun.id, FlowAnswer(leave=True), silent)
    with pytest.raises(UsageError, match="This flow is over"):
        flows.answer(begun.id, FlowAnswer(leave=True), silent)


@pytest.mark.parametrize(
    "answer",
    [
        FlowAnswer(option=99),
        FlowAnswer(option=-1),
        FlowAnswer(undo=0),
        FlowAnswer(undo=-1),
        FlowAnswer(confirmed=True),
        FlowAnswer(exit_status=0),
        FlowAnswer(declined=True),
        FlowAnswer(),
    ],
    ids=repr,
)
def test_an_answer_to_another_question_is_refused_and_changes_nothing(
    flows: Flows, answer: FlowAnswer
) -> None:
    begun = flows.start(HELD, silent)
    with pytest.raises(UsageError):
        flows.answer(begun.id, answer, silent)
    again = flows.answer(begun.id, FlowAnswer(option=0), silent)
    assert isinstance(again.prompt, Confirm)


def test_of_a_question_only_its_own_numbers_are_answers(flows: Flows) -> None:
    asked = flows.start(FlowRequest(log=None), silent)
    if not isinstance(asked.prompt, Ask):
        pytest.skip("a live finding tells which flow it is")
    for option in (-1, 7):
        with pytest.raises(UsageError):
            flows.answer(asked.id, FlowAnswer(option=option), silent)


def test_a_fix_that_breaks_is_a_failed_fix_and_the_flow_goes_on(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, machine: SimulatedMachine
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(machine, "run_kill", broken)
    chosen = confirming(flows)
    after = flows.answer(chosen.id, FlowAnswer(confirmed=True), silent)
    assert (after.done[0].ok, after.done[0].verified) == (False, None)
    assert "The engine failed at this" in after.done[0].sentence
    assert not isinstance(after.prompt, Confirm)


def test_a_readonly_engine_previews_and_refuses(machine: SimulatedMachine, state: Path) -> None:
    flows = Flows(
        SimulatedMachine("stray", readonly=True), lambda: machine.snapshot(1.0), readonly=True
    )
    begun = flows.start(HELD, silent)
    assert isinstance(begun.prompt, Choose)
    assert all(one.refusal is not None for one in begun.prompt.options)
    with pytest.raises(RefusedError):
        flows.answer(begun.id, FlowAnswer(option=0), silent)


def test_a_machine_without_a_reading_opens_no_flow(state: Path) -> None:
    def none() -> Snapshot:
        raise UsageError("nothing yet")

    flows = Flows(SimulatedMachine("stray"), none)
    for _ in range(MOST_OPEN * 2):
        with pytest.raises(UsageError, match="nothing yet"):
            flows.start(HELD, silent)


def test_a_step_on_the_way_is_no_proof() -> None:
    ended = Done(title="end the job", lines=(), ok=True, verified=True, is_step=True, sentence="")
    assert not State(done=(ended,)).verified


def test_a_demo_offers_nothing_that_touches_this_host(flows: Flows) -> None:
    begun = flows.start(FlowRequest(flow="oom", command=("true",), cwd="/"), silent)
    options = begun.prompt.options if isinstance(begun.prompt, Choose) else ()
    assert all(one.form not in ("command", "diff") for one in options)


def test_a_terminal_command_that_fails_is_a_failed_fix(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = AdminStep(title="load the module", argv=("false",), loses="nothing", verify="")
    monkeypatch.setattr(remedies, "build", lambda *_: step)
    chosen = confirming(flows)
    asked = flows.answer(chosen.id, FlowAnswer(confirmed=True), silent)
    assert isinstance(asked.prompt, InTerminal)
    after = flows.answer(asked.id, FlowAnswer(exit_status=1), silent)
    assert (after.done[0].ok, after.done[0].verified) == (False, None)
    assert "ended with status 1" in after.done[0].sentence


def test_what_a_recording_refuses_is_not_offered_and_does_not_end_the_flow() -> None:
    def refuse(pid: int, start_ticks: int | None) -> None:
        raise RefusedError("this is a recording")

    replay: Any = SimpleNamespace(source="replay", attach_plan=refuse)
    wanted = [Remedy("attach", {"pid": 1, "start_ticks": 2})]
    told = Remedy("explain", {"title": "t", "lines": ("l",), "loses": "", "verify": ""})
    found = flow_offers.made([*wanted, told], known(), replay, readonly=False)
    assert [one.remedy.kind for one in found] == ["explain"]


def test_of_several_administrators_commands_none_is_run_for_the_user() -> None:
    live: Any = SimpleNamespace(source="live")
    for lines, runs in (
        (("sudo modprobe nvidia",), True),
        (("sudo modprobe -r nvidia", "sudo modprobe nvidia"), False),
        (("sudo modprobe -r nvidia && sudo modprobe nvidia",), False),
        (("echo 'no end",), False),
    ):
        values = {"title": "t", "lines": lines, "loses": "nothing", "verify": ""}
        action = remedies.build(Remedy("admin", values), known(), live)
        assert action is not None
        assert (action.preview().terminal is not None) is runs
        assert (action.preview().refusal is None) is runs


def test_in_a_demo_the_demo_users_strays_can_be_ended_whoever_looks_on(flows: Flows) -> None:
    begun = flows.start(HELD, silent)
    assert isinstance(begun.prompt, Choose)
    first = begun.prompt.options[0]
    assert first.title.startswith("end all 4 strays")
    assert not any("belongs to another user" in line for line in first.lines)
