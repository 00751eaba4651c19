"""A profile whose steps stop, or that would begin on another thread than the main one.

Only the thread that began a profile can end it: what goes wrong here is a crash of the training.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.talk import Program, running, wait_for

DONE = b"False trained to the end\n"


def begin(program: Program, folder: str, timeout_s: float) -> dict[str, Any]:
    """Asks for a profile and lets the program's steps stop; the answer."""
    program.wait_socket().wait_steps()
    with program.talk(timeout_s=30) as talk:
        number = talk.send("profile", steps=20, timeout_s=timeout_s)
        time.sleep(0.05)
        Path(f"{folder}/go").touch()
        reply = talk.read()
        assert reply["id"] == number
        return reply


def test_a_long_call_in_c_behind_the_deadline_does_not_crash_the_training(
    torch_python: str, folder: str
) -> None:
    """Two questions, 5 s apart, freed what the one before had queued: rc 139."""
    with running(torch_python, "hangs.py", folder, "c", "13") as program:
        reply = begin(program, folder, 1.0)
        assert reply["code"] == "no_step"
        assert program.process.communicate(timeout=30) == (DONE, b"")
        assert program.process.returncode == 0


def test_an_evaluation_among_the_profiled_steps_ends_the_profile(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "hangs.py", folder, "evaluate") as program:
        reply = begin(program, folder, 1.0)
        assert reply["error"].endswith("of 20 steps came within 1 s.")
        with program.talk() as talk:
            assert talk.data("detach")["oom_observer_stays"] is False
        Path(f"{folder}/end").touch()
        assert program.process.communicate(timeout=30) == (b"asked to end, " + DONE, b"")


def test_a_profile_that_takes_the_hosts_memory_is_ended_before_its_time(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "hangs.py", folder, "grow") as program:
        reply = begin(program, folder, 60.0)
        assert "steps came: none for" in reply["error"]
        Path(f"{folder}/end").touch()
        assert program.process.communicate(timeout=30) == (b"asked to end, " + DONE, b"")


def test_a_program_that_ends_in_the_middle_of_a_profile_ends_well(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "hangs.py", folder, "exit") as program:
        program.wait_socket().wait_steps()
        with program.talk() as talk:
            talk.send("profile", steps=20)
            time.sleep(0.05)
            Path(f"{folder}/go").touch()
            assert program.process.communicate(timeout=30) == (b"", b"")
            assert program.process.returncode == 0


def test_a_worker_that_is_forked_in_the_middle_of_a_profile_records_nothing(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "hangs.py", folder, "fork") as program:
        begin(program, folder, 1.0)
        out, err = program.process.communicate(timeout=30)
        grew, _, rest = out.partition(b" MiB, ")
        assert (rest, err) == (DONE, b"")
        assert int(grew) < 20  # 110 where it records


@pytest.mark.parametrize("before", [0, 5])
def test_a_profile_on_another_thread_is_refused_at_its_first_step(
    torch_python: str, folder: str, before: int
) -> None:
    """Before it, nobody knows; with ``before`` steps on the main thread, we were even wrong."""
    with running(torch_python, "threads.py", folder, str(before)) as program:
        program.wait_socket().wait_steps(before)
        with program.talk() as talk:
            number = talk.send("profile", steps=3)
            time.sleep(0.2)
            Path(f"{folder}/go").touch()
            reply = talk.read()
            assert (reply["id"], reply["code"]) == (number, "unsupported")
            assert "another thread" in reply["error"]
            assert talk.data("gc")["step"] > 0  # which any thread may do
        Path(f"{folder}/end").touch()
        assert program.process.communicate(timeout=30) == (DONE, b"")


def test_a_profile_is_refused_where_another_thread_has_imported_torch(
    torch_python: str, folder: str
) -> None:
    """kineto says so on stderr: "External init callback must run in same thread as …"."""
    with running(torch_python, "train.py", folder, "thread") as program:
        program.wait_socket().wait_steps()
        with program.talk() as talk:
            reply = talk.ask("profile", steps=1)
        assert reply["code"] == "unsupported"
        assert reply["error"].startswith("torch was imported on another thread")
        assert program.end() == (b"", b"")


def test_a_profile_on_another_thread_is_refused_at_once(torch_python: str, folder: str) -> None:
    with running(torch_python, "threads.py", folder, "0") as program:
        Path(f"{folder}/go").touch()
        program.wait_socket().wait_steps()
        with program.talk() as talk:
            began = talk.data("stats")["step"]
            reply = talk.ask("profile", steps=3)
            assert reply["code"] == "unsupported"
            assert reply["error"].startswith("The optimizer steps on another thread")
            wait_for(lambda: talk.data("stats")["step"] > began + 3, pause_s=0.1)
        Path(f"{folder}/end").touch()
        assert program.process.communicate(timeout=30) == (DONE, b"")
