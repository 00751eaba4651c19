"""What a session that only looks may not do, and whose records a flow believes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.act.boot import cockpit_command
from cockpit.act.journal import bounded
from cockpit.attach.run_record import list_runs, record_of, start_ticks
from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine.flow_session import FlowSession
from cockpit.engine.flows import Flows
from cockpit.engine.run_commands import from_process
from cockpit.errors import RefusedError
from cockpit.flows import machine as machines
from cockpit.model.flow import Choose, Confirm, FlowAnswer, FlowRequest
from cockpit.model.remedy import Outcome, UndoRecord

HELD = FlowRequest(flow="vram-held")


def silent(sentence: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "cockpit"


@pytest.fixture
def demo() -> SimulatedMachine:
    found = SimulatedMachine("stray")
    found.start()
    return found


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(code, env={**os.environ, "COCKPIT_RUN_DIR": str(tmp_path / "said")})
    yield process
    process.kill()
    process.wait()


def session_of(flows: Flows, request: FlowRequest) -> FlowSession:
    flows.start(request, silent)
    return next(reversed(flows._open.values()))


@pytest.mark.parametrize("readonly", [True, False], ids=["readonly", "dry run"])
def test_no_answer_makes_a_session_act_that_only_looks(
    demo: SimulatedMachine, state: Path, readonly: bool
) -> None:
    flows = Flows(demo, lambda: demo.snapshot(1.0), readonly=readonly)
    request = FlowRequest(flow="vram-held", dry_run=not readonly)
    session = session_of(flows, request)
    before = {one.pid for one in demo.snapshot(1.0).processes}
    # As if the choice had been let through: confirming, running and undoing refuse by themselves.
    session._state = machines.chosen(session._state, 0)
    for answer in (FlowAnswer(confirmed=True), FlowAnswer(typed="5233")):
        with pytest.raises(RefusedError):
            session.answer(answer, silent)
    preview = session._ready[0].preview
    record = UndoRecord(kind="patch", title="t", data={})
    session._state = machines.finished(
        session._state, preview, Outcome(ok=True, sentence="", undo=record)
    )
    session._state = machines.looked(session._flow, session._state, session._known)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        session.answer(FlowAnswer(undo=0), silent)
    assert {one.pid for one in demo.snapshot(1.0).processes} == before


def test_a_kill_that_was_refused_is_offered_again(demo: SimulatedMachine, state: Path) -> None:
    flows = Flows(demo, lambda: demo.snapshot(1.0))
    begun = flows.start(HELD, silent)
    assert isinstance(begun.prompt, Choose)
    first = begun.prompt.options[0].title
    chosen = flows.answer(begun.id, FlowAnswer(option=0), silent)
    assert isinstance(chosen.prompt, Confirm)
    demo._kill._plans.clear()  # as when the preview stood there for an hour
    after = flows.answer(begun.id, FlowAnswer(confirmed=True), silent)
    assert not after.done[0].ok
    assert isinstance(after.prompt, Choose)
    assert after.prompt.options[0].title == first


def test_a_process_that_names_a_record_of_its_own_making_is_not_believed(
    state: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    said = tmp_path / "said"
    said.mkdir()
    record = {
        "id": "x",
        "name": "x",
        "command": ["sh", "-c", "id > /dev/null"],
        "cwd": "/",
        "environment": {"LD_PRELOAD": "/x.so"},
        "set_for_run": {},
        "started_at": "2026-11-30T00:00:00.000Z",
        "pid": sleeper.pid,
        "start_ticks": start_ticks(sleeper.pid),
        "python": None,
        "host": os.uname().nodename,
        "boot_id": None,
    }
    (said / "meta.json").write_text(json.dumps(record))
    command = from_process(sleeper.pid)
    assert command.argv[-1] == "import time; time.sleep(60)"
    assert "LD_PRELOAD" not in command.environment


def test_a_pid_that_was_given_again_has_no_record_of_the_dead_run(
    state: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    subprocess.run(cockpit_command("run", "--", "true"), check=True, timeout=60)
    old = list_runs(str(state))[0]
    meta = json.loads(Path(old.directory, "meta.json").read_text())
    again = shutil.copytree(
        old.directory, Path(old.directory).with_name("20991130-000000-aaaaaaaa")
    )
    ticks = start_ticks(sleeper.pid)
    assert ticks is not None
    for changed, found in ((ticks - 5, False), (ticks, True)):
        meta |= {"id": again.name, "pid": sleeper.pid, "start_ticks": changed}
        Path(again, "meta.json").write_text(json.dumps(meta))
        assert (record_of(str(state), sleeper.pid) is not None) == found
    meta["boot_id"] = "another boot"
    Path(again, "meta.json").write_text(json.dumps(meta))
    assert record_of(str(state), sleeper.pid) is None


def test_secrets_of_a_command_line_stay_out_of_the_journal() -> None:
    line = bounded("python train.py --hf-token=hf_abcdefghijklmnopqrstuvwxyz --batch-size 8")
    assert "hf_abc" not in line
    assert "--batch-size 8" in line
