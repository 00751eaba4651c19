"""The Python of a running process is that of its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import Procs
from wheelhouse import environment

from cockpit.act.run_python import python_of
from cockpit.errors import CockpitError, TargetGoneError

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
Start = Callable[..., int]


@pytest.fixture
def start(procs: Procs) -> Start:
    return lambda argv, **options: procs.run(argv, **options).pid


@pytest.fixture
def python(tmp_path: Path) -> str:
    return environment(tmp_path / "env", pip=False)


def test_a_venv_by_its_path(start: Start, python: str) -> None:
    assert python_of(start([python, "-c", SLEEP])) == python


def test_a_venv_by_a_relative_path(start: Start, python: str, tmp_path: Path) -> None:
    assert python_of(start(["env/bin/python", "-c", SLEEP], cwd=tmp_path)) == python


def test_a_venv_that_was_activated(start: Start, python: str) -> None:
    bin_ = os.path.dirname(python)
    env = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "VIRTUAL_ENV": os.path.dirname(bin_),
    }
    code = f"import os; os.execvp('python', ['python', '-c', {SLEEP!r}])"
    assert python_of(start([sys.executable, "-c", code], env=env)) == python


def test_a_process_that_renamed_itself(start: Start, python: str) -> None:
    env = {**os.environ, "VIRTUAL_ENV": str(Path(python).parents[1])}
    code = f"import os; os.execv({python!r}, ['ray::train', '-c', {SLEEP!r}])"
    assert python_of(start([sys.executable, "-c", code], env=env)) == python


def test_an_activated_environment_of_another_interpreter_is_not_taken(
    start: Start, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\n")
    env = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "other")}
    assert python_of(start([sys.executable, "-c", SLEEP], env=env)) == sys.executable


def test_what_is_gone_or_no_python_is_said(start: Start) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    with pytest.raises(TargetGoneError):
        python_of(ended.pid)
    with pytest.raises(CockpitError, match="no Python"):
        python_of(start(["/bin/sh", "-c", "echo up; read x; :"], stdin=subprocess.PIPE))
