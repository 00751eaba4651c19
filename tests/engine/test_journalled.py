"""What is done in a run stands in the journal before and after, whatever comes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cockpit.engine import in_run
from cockpit.engine.live import LiveMachine
from cockpit.engine.protocol import EngineOptions
from cockpit.errors import RefusedError
from cockpit.model.memory import RunOutcome, RunRequest


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "cockpit"


@pytest.fixture
def machine(state: Path) -> LiveMachine:
    return LiveMachine(EngineOptions())


def lines(state: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (state / "journal.jsonl").read_text().splitlines()]


def comes_to(monkeypatch: pytest.MonkeyPatch, what: object) -> None:
    """Of an operation in a run."""

    def do(*_: object) -> RunOutcome:
        if isinstance(what, Exception):
            raise what
        assert isinstance(what, RunOutcome)
        return what

    monkeypatch.setattr(in_run, "do", do)


GC = RunRequest(pid=os.getpid(), start_ticks=7, op="gc")


@pytest.mark.parametrize(
    ("what", "outcome", "sentence"),
    [
        (RunOutcome(ok=True, sentence="freed"), "done", "freed"),
        (RunOutcome(ok=False, sentence="nothing"), "failed", "nothing"),
        (RefusedError("no agent"), "failed", "no agent"),
        (ZeroDivisionError("x"), "failed", "broke off: what was done of it is not known"),
    ],
)
def test_every_intent_has_its_result(
    machine: LiveMachine,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: object,
    outcome: str,
    sentence: str,
) -> None:
    comes_to(monkeypatch, what)
    if isinstance(what, Exception):
        with pytest.raises(type(what)):
            machine.do_in_run(GC, [].append)
    else:
        machine.do_in_run(GC, [].append)
    intent, result = lines(state)
    assert (intent["phase"], intent["outcome"], intent["start_ticks"]) == ("intent", None, 7)
    assert (result["phase"], result["outcome"]) == ("result", outcome)
    assert result["sentence"] == sentence
    assert result["at"] >= intent["at"]
    assert {intent["operation"], result["operation"]} == {"gc"}


def test_a_journal_that_cannot_be_written_is_told_and_hinders_nothing(
    machine: LiveMachine, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.write_text("in the way")
    comes_to(monkeypatch, RunOutcome(ok=True, sentence="freed"))
    said: list[str] = []
    assert machine.do_in_run(GC, said.append).ok
    (told,) = said
    assert "cannot be written" in told
    assert told.endswith("the action goes on")
