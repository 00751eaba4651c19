"""Whose interpreter, environment and rights: of real processes and real virtual environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.collect import job as jobs
from cockpit.errors import RefusedError, TargetGoneError, UsageError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
SLEEP = "import sys, time; print('ready', flush=True); time.sleep(60)"

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """``start(argv, **popen)`` → pid of a process that says ready; ended afterwards."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(argv: list[str], **given: object) -> int:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, **given)  # type: ignore[call-overload]
        children.append(child)
        assert child.stdout.readline() == b"ready\n"
        return int(child.pid)

    yield begin
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment whose python is a link, as they mostly are."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.mark.parametrize("how", ["absolute", "relative", "on PATH", "by another name"])
def test_the_interpreter_of_a_virtual_environment_is_not_that_of_the_system(
    start: Start, environment: Path, how: str
) -> None:
    argv0, given = str(environment / "bin/python"), {}
    if how == "relative":
        given = {"executable": argv0, "cwd": environment}
        argv0 = "bin/python"
    if how == "on PATH":
        given = {"executable": argv0, "env": {"PATH": str(environment / "bin")}}
        argv0 = "python"
    if how == "by another name":  # as setproctitle leaves it
        given = {"executable": argv0, "env": {"VIRTUAL_ENV": str(environment)}}
        argv0 = "ray::train"
    found = jobs.of_process(start([argv0, "-c", SLEEP], **given))
    assert found.python is not None
    assert os.path.dirname(found.python) == str(environment / "bin")


def test_its_environment_is_passed_on_without_what_is_ours(start: Start) -> None:
    mine = {
        "CUDA_VISIBLE_DEVICES": "3",
        "WANDB_API_KEY": "secret",
        "COCKPIT_RUN_DIR": "/tmp/x",
        "PYTHONPATH": "/opt/cockpit/agent/bootstrap:/code",
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
    }
    found = jobs.of_process(start([sys.executable, "-c", SLEEP], env=mine))
    assert found.environment["PYTHONPATH"] == "/code"
    assert found.environment["WANDB_API_KEY"] == "secret"
    assert not {"COCKPIT_RUN_DIR", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"} & found.environment.keys()
    facts = found.facts()
    assert facts.variables == {"CUDA_VISIBLE_DEVICES": "3"}, "and no secret is told"
    assert found.cwd == os.getcwd()
    assert not found.outside


def test_an_empty_entry_of_pythonpath_is_not_passed_on_for_it_means_the_working_directory() -> None:
    # what `export PYTHONPATH=$PYTHONPATH:/code` leaves where it was not set
    assert jobs.passed_on({"PYTHONPATH": ":/code::"}) == {"PYTHONPATH": "/code"}


def test_a_process_that_is_no_python_is_called_by_its_name(start: Start) -> None:
    found = jobs.of_process(start(["/bin/bash", "-c", "echo ready; read -t 60 x < <(sleep 60)"]))
    assert found.python is None
    assert "runs bash, which is no Python" in found.why


def test_a_pid_that_is_another_process_now_is_gone(start: Start) -> None:
    pid = start([sys.executable, "-c", SLEEP])
    with pytest.raises(TargetGoneError):
        jobs.of_process(pid, start_ticks=1)
    with pytest.raises(TargetGoneError):
        jobs.of_process(2**22 - 1)


@needs_root
def test_another_users_process_is_examined_by_root_as_that_user(start: Start) -> None:
    argv = ["setpriv", "--reuid", "1002", "--regid", "1003", "--groups", "1004,1005"]
    found = jobs.of_process(start([*argv, "/usr/bin/python3", "-c", SLEEP]))
    assert found.owner == (1002, 1003, (1004, 1005))


@needs_root
def test_and_by_nobody_else(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = start(["setpriv", "--reuid", "1002", "--clear-groups", "/usr/bin/python3", "-c", SLEEP])
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    with pytest.raises(RefusedError):
        jobs.of_process(pid)


@needs_root
def test_a_process_that_keeps_two_users_is_refused(start: Start) -> None:
    argv = ["setpriv", "--euid", "1002", "--keep-groups", "/usr/bin/python3", "-c", SLEEP]
    with pytest.raises(RefusedError, match="one user alone"):
        jobs.of_process(start(argv))


@needs_root
def test_root_runs_nothing_that_another_user_could_have_written(
    environment: Path, tmp_path: Path
) -> None:
    assert jobs.of_path(sys.executable, os.environ).owner.uid == 0
    copy = tmp_path / "venv"
    shutil.copytree(environment, copy, symlinks=True)
    os.chown(copy / "lib", 65534, 65534)  # an account that every system has
    found = jobs.of_path(str(copy / "bin/python"), {"PATH": "/bin", "AWS_SECRET": "x"})
    assert found.owner.uid == 65534
    assert found.environment == {"PATH": "/bin"}
    assert found.cwd == "/"
    os.chown(copy / "lib", 1002, 1002)  # who is not in the list of accounts
    with pytest.raises(RefusedError, match="root does not run it"):
        jobs.of_path(str(copy / "bin/python"), os.environ)
    os.chown(copy / "lib", 65534, 65534)
    os.chown(copy / "bin", 1, 1)
    with pytest.raises(RefusedError, match="several users"):
        jobs.of_path(str(copy / "bin/python"), os.environ)


@needs_root
def test_nor_does_it_where_its_own_job_does(
    start: Start, environment: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "venv"
    shutil.copytree(environment, copy, symlinks=True)
    os.chown(copy / "lib", 65534, 65534)
    found = jobs.of_process(start([str(copy / "bin/python"), "-c", SLEEP]))
    assert found.python is None
    assert "may change" in found.why


def test_a_path_that_is_no_program_is_refused(tmp_path: Path) -> None:
    for path in (str(tmp_path), str(tmp_path / "none"), "no-such-python"):
        with pytest.raises(UsageError):
            jobs.of_path(path, os.environ)


def test_the_search_begins_with_the_environment_that_is_active(environment: Path) -> None:
    first = next(jobs.candidates({"VIRTUAL_ENV": str(environment), "PATH": "/usr/bin"}))
    assert first.python == str(environment / "bin/python")
    assert not first.named
    every = [one.python for one in jobs.candidates({"PATH": "/usr/bin"})]
    assert every[-1] == sys.executable
    assert len(set(every)) == len(every)
