"""Processes that a program with the agent starts: they get one when they train, and not before."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.talk import PROGRAMS, ROOT, Program, Talk, running, wait_for


@contextmanager
def family(python: str, folder: str, how: str, work: str) -> Iterator[tuple[Program, list[int]]]:
    process = subprocess.Popen(
        [python, str(PROGRAMS / "children.py"), folder, how, work],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    program = Program(process, folder)
    try:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        yield program, pids
    finally:
        _, err = process.communicate(timeout=30)
    assert err == b""


def agent_descriptors(pid: int) -> list[str]:
    """Descriptors of event queues and listening sockets in the agent's folder."""
    links = [os.readlink(p) for p in Path(f"/proc/{pid}/fd").iterdir() if p.is_symlink()]
    return [link for link in links if "eventpoll" in link]


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "loader-fork", "loader-spawn"])
def test_a_child_that_does_not_train_has_no_agent(torch_python: str, folder: str, how: str) -> None:
    with family(torch_python, folder, how, "idle") as (program, pids):
        assert pids
        time.sleep(0.5)
        assert [n for n in os.listdir(folder) if n.endswith(".sock")] == [f"{program.pid}.sock"]
        for pid in pids:
            names = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/comm")]
            assert "cockpit-agent\n" not in names
            assert not agent_descriptors(pid)
        with program.talk() as talk:
            assert talk.data("hello")["pid"] == program.pid


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_child_that_trains_gets_an_agent_of_its_own(
    torch_python: str, folder: str, how: str
) -> None:
    with family(torch_python, folder, how, "train") as (program, pids):
        path = f"{folder}/{pids[0]}.sock"
        wait_for(lambda: os.path.exists(path))
        with Talk(path) as talk, program.talk() as parent:
            assert talk.data("hello")["pid"] == pids[0]
            assert talk.data("stats")["step"] >= 1
            assert talk.data("gc")["step"] >= 1
            assert parent.data("hello")["pid"] == program.pid
            assert parent.data("stats")["step"] == 0


def test_the_trace_of_collectives_names_the_rank_behind(torch_python: str, folder: str) -> None:
    with (
        running(torch_python, "ranks.py", folder, "0") as ahead,
        running(torch_python, "ranks.py", folder, "1") as behind,
    ):
        ahead.wait_socket()
        behind.wait_socket()
        time.sleep(0.5)
        last = []
        for program, rank in ((ahead, 0), (behind, 1)):
            with program.talk() as talk:
                hello = talk.data("hello")
                assert (hello["rank"], hello["world_size"]) == (rank, 2)
                trace = talk.data("fr_trace")
                assert trace["active_left_out"] is False
            status = next(iter(trace["pg_status"].values()))
            last.append(int(status["last_enqueued_collective"]))
    assert last == [6, 5]


def test_a_long_trace_of_collectives_is_cut_and_says_so(torch_python: str, folder: str) -> None:
    """1,500 collectives that are not done are some 600 KiB of JSON, read while nobody trains."""
    with (
        running(torch_python, "ranks.py", folder, "0", "1500") as ahead,
        running(torch_python, "ranks.py", folder, "1") as behind,
    ):
        behind.wait_socket()
        ahead.wait_socket()
        with ahead.talk() as talk:
            wait_for(
                lambda: (
                    int(
                        next(iter(talk.data("fr_trace")["pg_status"].values()))[
                            "last_enqueued_collective"
                        ]
                    )
                    > 1500
                ),
                pause_s=0.2,
            )
            trace = talk.data("fr_trace")
    assert trace["active_left_out"] is True
    assert trace["active"] == []
    assert trace["pg_config"]


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.12", "3.13"])
@pytest.mark.parametrize("how", ["alone", "threads"])
@pytest.mark.parametrize("option", ["default", "error::DeprecationWarning"])
def test_a_fork_warns_of_the_programs_own_threads_and_not_of_ours(
    folder: str, version: str, how: str, option: str
) -> None:
    """CPython does since 3.12. All that the program prints is what it prints without us."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no CPython {version} here")
    printed = []
    for where in (folder, ""):
        done = subprocess.run(
            [str(found[0]), "-W", option, str(PROGRAMS / "forks.py"), where, how],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=30,
        )
        printed.append((done.stdout, re.sub(r"pid=\d+", "pid", done.stderr)))
    assert printed[0] == printed[1]
    new = tuple(map(int, version.split("."))) >= (3, 12)
    assert ("is multi-threaded" in printed[0][1]) == (new and how == "threads")
