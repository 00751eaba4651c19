"""Variables that take GPUs away: where they are set, and what they should be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine.relaunches import relaunch
from cockpit.engine.variable_words import where_set
from cockpit.flows.flow import Known
from cockpit.model.flow import FlowRequest
from cockpit.model.run_command import RunCommand

SNAPSHOT = SimulatedMachine("busy").snapshot(1.0)
NAME = "CUDA_VISIBLE_DEVICES"


def command(**changes: object) -> RunCommand:
    known = {"argv": ("python", "t.py"), "cwd": "/", "uid": os.geteuid(), "source": "record"}
    return RunCommand(**{**known, **changes})  # type: ignore[arg-type]


def test_lines_of_start_up_files_and_the_process_that_had_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(NAME, raising=False)
    (tmp_path / ".bashrc").write_text(
        "\n# none\nexport CUDA_VISIBLE_DEVICES=\x1b[2J WANDB_API_KEY=0123456789abcdef\n"
    )
    venv = tmp_path / "venv/bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("export LD_LIBRARY_PATH=/opt/cuda-11/lib64\n")
    inner = "import time; print('up', flush=True); time.sleep(60)"
    outer = (
        "import subprocess, sys; "
        f"c = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE); "
        "c.stdout.readline(); print(c.pid, flush=True); sys.stdin.read(); c.kill()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", outer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, NAME: "7"},
    )
    known = command(interpreter=str(venv / "python"), environment={NAME: "7"})
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found, of_parent = where_set(known, child), where_set(known, parent.pid)
        other = where_set(replace(known, environment={NAME: "1"}), child)
        parent.stdin.close()
    first, second = found[NAME]
    assert first.startswith("~/.bashrc line 3: export CUDA_VISIBLE_DEVICES=")
    assert "\x1b" not in first
    assert "0123456789abcdef" not in first
    assert second.startswith(f"pid {parent.pid} (")
    assert second.endswith("had it first")
    assert of_parent[NAME] == other[NAME] == (first,)
    assert found["LD_LIBRARY_PATH"] == (
        "~/venv/bin/activate line 1: export LD_LIBRARY_PATH=/opt/cuda-11/lib64",
    )


def test_start_up_files_of_others_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("export CUDA_VISIBLE_DEVICES=3\n")
    assert where_set(command(), None)
    assert where_set(None, None) == {}
    assert where_set(command(uid=os.geteuid() + 1), None) == {}
    assert where_set(command(container="docker:01"), None) == {}


def corrected(value: str, *argv: str) -> dict[str, str] | None:
    known = Known(
        request=FlowRequest(),
        snapshot=SNAPSHOT,
        uid=os.geteuid(),
        command=command(environment={NAME: value}, argv=argv or ("python", "t.py")),
    )
    values = {"setting": "visible_devices", "title": "x", "unset": (), "environment": {}}
    action = relaunch(values, known)
    return None if action is None else dict(action.set_environment)


def test_what_the_variable_names_wrongly_is_left_out() -> None:
    count, uuid = len(SNAPSHOT.gpus), SNAPSHOT.gpus[0].uuid
    assert uuid is not None
    assert corrected(f"0,{count + 3}") == {NAME: "0"}
    assert corrected(f"{uuid[:12]}ffffffff") == {NAME: uuid}
    assert corrected("0") is None
    assert corrected(f"{count + 3}", "env", f"{NAME}=0", "python", "t.py") is None
    assert corrected("0", "env", f"{NAME}=0,{count + 3}", "python", "t.py") == {NAME: "0"}
    assert corrected(f"{uuid}, {uuid[:12]}ffffffff") is None  # the same card twice
    assert corrected(f"{uuid[:12]}ffffffff,GPU-99999999-x") is None  # still wrong
    assert corrected("") is None  # to be unset, which is offered by itself


def test_a_gpu_without_a_uuid_is_matched_by_nothing() -> None:
    gpus = tuple(replace(gpu, uuid=None) for gpu in SNAPSHOT.gpus)
    known = Known(
        request=FlowRequest(),
        snapshot=replace(SNAPSHOT, gpus=gpus),
        uid=os.geteuid(),
        command=command(environment={NAME: "GPU-12345678"}),
    )
    values = {"setting": "visible_devices", "title": "x", "unset": (), "environment": {}}
    assert relaunch(values, known) is None
