"""What ended agents left behind is removed, and nothing of a living process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attaching import SLEEPS, Runs, needs_ptrace, until

from cockpit.attach import attach, inject_gdb, reason, script_name, sweep
from cockpit.attach.sweep import unlink_stale
from cockpit.attach.target import look
from cockpit.engine.runs import Runs as EngineRuns

HOUR_S, DAY_S = 3600.0, 86400.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_TOO_YOUNG_S", -1.0)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the sockets, below a runtime directory of its own."""
    short = Path(f"/tmp/cks{os.getpid()}")
    folder = short / "cockpit"
    folder.mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    try:
        yield folder
    finally:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()
        short.rmdir()


def aged(path: Path, age_s: float) -> Path:
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def left_socket(path: Path) -> Path:
    """As a killed process leaves it."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    return path


def ended_pid(runs: Runs) -> int:
    child = runs.start(SLEEPS)
    child.kill()
    child.wait()
    return child.pid


@needs_ptrace
def test_a_socket_of_a_killed_process_is_removed_and_a_living_one_is_not(runs: Runs):
    dead, living = runs.start(), runs.start()
    path = attach.run(attach.plan(dead.pid)).agent.path.split("/root", 1)[1]
    kept = attach.run(attach.plan(living.pid)).agent
    dead.kill()
    dead.wait()
    assert os.path.exists(path)
    assert f"pid {dead.pid} has ended; its socket was removed." in unlink_stale()
    assert not os.path.exists(path)
    assert os.path.exists(kept.path)
    attach.detach(living.pid)


def test_logs_go_a_day_after_their_process_and_sockets_at_once(runs: Runs, runtime: Path):
    dead, living = ended_pid(runs), runs.start(SLEEPS).pid
    old = aged(runtime / f"{dead}.log", 2 * DAY_S)
    gone = [left_socket(runtime / f"{dead}.sock"), left_socket(runtime / f"{dead}.new")]
    stays = [
        aged(runtime / f"{living}.log", 0),
        left_socket(runtime / f"{living}.sock"),
        aged(runtime / f"oom-{dead}-0.json", 9 * DAY_S),
        aged(runtime / f"snapshot-{dead}-0-1.pickle", 9 * DAY_S),
        aged(runtime / f"{dead}.log.txt", 9 * DAY_S),
    ]
    assert len(unlink_stale()) == 2
    assert not any(path.exists() for path in [old, *gone])
    assert all(path.exists() for path in stays)
    young = aged(runtime / f"{dead}.log", HOUR_S)
    unlink_stale()
    assert young.exists()


def test_a_later_process_with_the_pid_does_not_keep_what_the_first_one_left(
    runs: Runs, runtime: Path
):
    """The file is older than the process that has its number now."""
    pid = runs.start(SLEEPS).pid
    log, left = aged(runtime / f"{pid}.log", 2 * DAY_S), left_socket(runtime / f"{pid}.sock")
    os.utime(left, (time.time() - HOUR_S,) * 2)
    unlink_stale()
    assert not left.exists()
    assert not log.exists()


def test_a_log_beside_a_socket_that_answers_stays_whoever_has_the_pid(runs: Runs, runtime: Path):
    """A container's process: its number is not one of ours."""
    dead = ended_pid(runs)
    log = aged(runtime / f"{dead}.log", 2 * DAY_S)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(runtime / f"{dead}.sock"))
        served.listen(1)
        assert unlink_stale() == []
        assert log.exists()
    unlink_stale()
    assert not log.exists()


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /tmp."""
    monkeypatch.setattr(script_name, "FOLDER", str(tmp_path))
    return tmp_path


def test_the_script_of_an_attach_goes_when_its_process_has_ended_without_running_it(
    runs: Runs, runtime: Path, tmp: Path
):
    dead, living = runs.start(SLEEPS), runs.start(SLEEPS)
    left = Path(inject_gdb._leave_script(look(dead.pid), "pass\n"))
    why = aged(Path(reason.new_path(look(dead.pid))), HOUR_S)
    by_itself = aged(tmp / f"{script_name.prefix(look(dead.pid))}a_8xk2.py", HOUR_S)
    waits = Path(inject_gdb._leave_script(look(living.pid), "pass\n"))
    dead.kill()
    dead.wait()
    unlink_stale()
    assert left.exists()  # a moment old
    for path in (left, waits):
        aged(path, HOUR_S)
    unlink_stale()
    assert [path.exists() for path in (left, why, by_itself, waits)] == [False] * 3 + [True]


def test_only_own_regular_files_of_that_name_and_namespace_are_taken_for_scripts(
    runs: Runs, runtime: Path, tmp: Path
):
    dead = runs.start(SLEEPS)
    begins = script_name.prefix(look(dead.pid))
    dead.kill()
    dead.wait()
    kept = aged(tmp / "kept", HOUR_S)
    link, folder = tmp / f"{begins}a.py", tmp / f"{begins}b.py"
    link.symlink_to(kept)
    os.utime(link, (time.time() - HOUR_S,) * 2, follow_symlinks=False)
    folder.mkdir()
    os.utime(folder, (time.time() - HOUR_S,) * 2)
    namespace = begins.split("-")[2]
    others = [
        aged(tmp / name, HOUR_S)
        for name in (
            f"{begins}c.txt",
            f"x{begins}d.py",
            begins.replace(namespace, "4711", 1) + "e.py",
            begins.replace(namespace, "0", 1) + "f.py",
            "cockpit-attach-0123456789abcdef.py",
        )
    ]
    if os.geteuid() == 0:
        foreign = aged(tmp / f"{begins}g.py", HOUR_S)
        os.chown(foreign, 1002, 1002)
        others.append(foreign)
    gone = aged(tmp / f"{begins}h.py", HOUR_S)
    unlink_stale()
    assert not gone.exists()
    assert all(path.exists() for path in [kept, link, folder, *others])


@pytest.mark.parametrize("harm", ["open to others", "a link"])
def test_a_folder_that_is_not_ours_alone_is_let_be(
    harm: str, runs: Runs, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    left = left_socket(runtime / f"{ended_pid(runs)}.sock")
    if harm == "a link":
        (tmp_path / "cockpit").symlink_to(runtime)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    else:
        runtime.chmod(0o755)
    unlink_stale()
    runtime.chmod(0o700)
    assert left.exists()


def test_the_engine_sweeps_while_it_looks_for_runs_unless_it_is_read_only(
    runs: Runs, runtime: Path, monkeypatch: pytest.MonkeyPatch
):
    left = left_socket(runtime / f"{ended_pid(runs)}.sock")
    EngineRuns()._sweep()  # a one-shot command has ended long before its first time
    assert left.exists()
    monkeypatch.setattr("cockpit.engine.runs.FIRST_SWEEP_S", 0.0)
    reader = EngineRuns(tidies=False)
    reader._sweep()
    assert left.exists()
    looks = EngineRuns()
    looks.start()
    looks.read((), ())
    until(lambda: not left.exists())
    again = left_socket(left)
    looks._sweep()  # not that often
    assert again.exists()
