"""The time of a step around a change that is made in a run that goes on: a real torch, a real
agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.in_process import InRun
from cockpit.attach import discover
from cockpit.engine import in_run, live_pace
from cockpit.model.memory import RunOutcome, RunRequest
from tests.commands.walking import end_runs, in_background, wait_for

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def paced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_python: str) -> Iterator[int]:
    """The pid of a training that steps."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pid = in_background(tmp_path / "cockpit", PROGRAMS, torch_python, "paced.py")
    wait_for(lambda: discover.find(pid))
    wait_for(lambda: live_pace.step_times(pid, Console(say=[].append)))
    yield pid
    end_runs(tmp_path / "cockpit")


def do(request: RunRequest, say: Callable[[str], None]) -> RunOutcome:
    return in_run.do(discover.find(request.pid), request, say, {})


def test_a_setting_that_makes_the_steps_faster_is_measured_and_one_that_does_not_is_no_gain(
    paced: int,
) -> None:
    said: list[str] = []
    console = Console(say=said.append)
    request = RunRequest(pid=paced, op="set", name="matmul_precision", value="high")
    fix = InRun(request, do, pace=live_pace.step_times)
    assert "time of a step" in fix.preview().verify
    outcome = fix.run(console)
    assert outcome.verified is True, outcome
    assert "% faster a step." in outcome.sentence
    (row,) = outcome.compared
    assert row.what == "time a step"
    assert row.before.split(" ms")[0] > row.after.split(" ms")[0]
    assert outcome.undo is not None
    assert any("measuring" in one for one in said)
    again = fix.run(console)
    assert again.verified is False
    assert "no difference beyond the noise" in again.sentence.lower()


def test_of_a_run_that_is_gone_no_time_is_known() -> None:
    assert live_pace.step_times(2**22 - 3, Console(say=[].append)) == ()
