"""A run without room on a real GPU is started again with half the batch, and passes the step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.boot import cockpit_command
from cockpit.act.relaunch import Relaunch
from cockpit.act.relaunch_changes import halve
from cockpit.act.relaunch_check import Terms
from cockpit.act.script_files import read_script
from cockpit.attach.run_record import list_runs
from cockpit.engine.run_commands import from_record
from cockpit.engine.run_looks import RunLooks, measure

PROGRAM = Path(__file__).parent / "programs" / "batch.py"


def test_a_real_oom_is_gone_with_half_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    subprocess.run(
        cockpit_command("run", "--", sys.executable, str(PROGRAM), "--batch-size", "32"),
        timeout=120,
    )
    old = list_runs(str(tmp_path / "cockpit"))[0]
    command, before = from_record(old.directory), measure(old.directory)
    assert (before.exit_status, before.step, before.ooms) == (1, 3, 1)
    changes = halve(command, read_script(command.argv, command.cwd))
    assert changes is not None
    action = Relaunch(
        command=command,
        records=RunLooks(),
        before=before,
        terms=Terms(patience_s=90.0, poll_s=0.2),
        **changes.fields(),
    )
    outcome = action.run(Console(print))
    assert outcome.verified is True, outcome
    rows = {row.what: (row.before, row.after) for row in outcome.compared}
    assert rows["out-of-memory errors"] == ("1", "0")
    assert "GiB" in rows["peak memory allocated"][1]
    new = list_runs(str(tmp_path / "cockpit"))[0]
    if new.state == "running":
        os.kill(new.meta.pid, signal.SIGTERM)
