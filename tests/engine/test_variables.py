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
    (tmp_path / ".bashrc").write_text("\n# none\nexport CUDA_VISIBLE_DEVICES=\x1b[2J\n")
    venv = tmp_path / "venv/bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("export LD_LIBRARY_PATH=/opt/cuda-11/lib64\n")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = subprocess.Popen(sleep, env={**os.environ, NAME: "7"})
    try:
        found = where_set(command(interpreter=str(venv / "python")), child.pid)
    finally:
        child.kill()
        child.wait()
    first, second = found[NAME]
    assert first.startswith("~/.bashrc line 3: export CUDA_VISIBLE_DEVICES=")
    assert "\x1b" not in first
    assert second.startswith(f"pid {child.pid} (")
    assert found["LD_LIBRARY_PATH"] == (
        "~/venv/bin/activate line 1: export LD_LIBRARY_PATH=/opt/cuda-11/lib64",
    )
    assert where_set(command(uid=os.geteuid() + 1), None) == {}


def corrected(value: str) -> dict[str, str] | None:
    known = Known(
        request=FlowRequest(),
        snapshot=SNAPSHOT,
        uid=os.geteuid(),
        command=command(environment={NAME: value}),
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
