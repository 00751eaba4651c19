"""Attached runs as rows: what the agent says over FAKED statistics, what their record on disk adds.

The programs are real ones with the agent and torch; their CUDA numbers come from a recording.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit import procfs
from cockpit.attach import run_record
from cockpit.attach.discover import AgentSocket
from cockpit.attach.run_record import Meta, Recorder
from cockpit.engine import in_run
from cockpit.engine.runs import Runs
from cockpit.errors import TargetGoneError
from cockpit.model.event import Event
from cockpit.model.gpu import Gpu
from cockpit.model.memory import RunRequest, Segments
from cockpit.model.run import Run
from tests.agent.talk import Program, running, wait_for

GPUS = (Gpu(index=0, uuid="GPU-other"), Gpu(index=3, uuid="GPU-0aa00000"))
MIB = 1 << 20


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Recorder(run_record.create(str(tmp_path / "cockpit")))


@pytest.fixture
def program(torch_python: str, folder: str, recorder: Recorder) -> Iterator[Program]:
    recorder.begin(
        Meta(
            id="one",
            name="llama-8b",
            command=("python", "ooms.py"),
            cwd=None,
            environment={},
            set_for_run={},
            started_at=run_record.now(),
            pid=os.getpid(),
            start_ticks=run_record.start_ticks(os.getpid()),
            python=None,
            host=socket.gethostname(),
            boot_id=run_record.boot_id(),
        )
    )
    env = {"COCKPIT_RUN_DIR": recorder.directory}
    with running(torch_python, "ooms.py", folder, env=env) as started:
        yield started.wait_socket()


def row(runs: Runs) -> Run:
    (found,) = runs.read((), GPUS)
    return found


def test_a_launched_run_has_its_name_its_ooms_and_its_end(
    program: Program, recorder: Recorder
) -> None:
    events: list[Event] = []
    runs = Runs(events.append)
    runs.note(AgentSocket(program.pid, program.pid, program.path))
    wait_for(lambda: row(runs).state == "running")
    run, stat = row(runs), procfs.stat("/proc", program.pid)
    assert (run.name, run.attached_by, run.exit_status) == ("llama-8b", "launch", None)
    assert isinstance(stat, procfs.Stat)
    assert run.start_ticks == stat.start_ticks
    assert [device.gpu for device in run.devices] == [3]  # torch says 0
    assert (runs.gpu_by_index(program.pid), runs.pids()) == ({0: 3}, (program.pid,))

    Path(program.folder, "oom").touch()
    wait_for(lambda: len(events) == 1)
    assert events[0].sentence == (f"OOM in pid {program.pid} on GPU 3: asked 2.0 GiB, 1.0 GiB free")
    assert (events[0].kind, events[0].gpu, events[0].severity) == ("oom", 3, "error")

    Path(program.folder, "die").touch()  # an OOM between two samples, and the end
    wait_for(lambda: row(runs).state == "ended")
    wait_for(lambda: len(events) == 2)
    assert "asked 3.0 GiB" in events[1].sentence
    assert runs.pids() == ()
    runs._read_exits()
    assert row(runs).exit_status is None  # the command has not ended
    recorder.end(1, None)
    runs._read_exits()
    assert (row(runs).state, row(runs).exit_status) == ("ended", 1)


def test_a_killed_run_has_ended_though_its_socket_is_left(program: Program) -> None:
    runs = Runs()
    runs.note(AgentSocket(program.pid, program.pid, program.path))
    wait_for(lambda: row(runs).state == "running")
    ticks = row(runs).start_ticks
    program.process.kill()
    wait_for(lambda: row(runs).state == "ended", 10)
    assert os.path.exists(program.path)
    program.process.wait()
    gone = RunRequest(pid=program.pid, op="gc", start_ticks=ticks)
    for ask in (
        lambda: in_run.ask(runs.socket(program.pid), program.pid, "census", False, {}),
        lambda: in_run.do(runs.socket(program.pid), gone, lambda _: None, {}),
    ):
        with pytest.raises(TargetGoneError, match=f"pid {program.pid} has ended"):
            ask()


def test_what_was_meant_for_another_process_is_refused(program: Program) -> None:
    socket = AgentSocket(program.pid, program.pid, program.path)
    for one in (socket, None):
        for op in ("gc", "detach"):
            request = RunRequest(pid=program.pid, op=op, start_ticks=1)
            with pytest.raises(TargetGoneError, match="is another process now"):
                in_run.do(one, request, lambda _: None, {})
    assert os.path.exists(program.path)


def test_a_threshold_that_the_allocator_told_as_text_is_undone_as_a_number() -> None:
    request = RunRequest(pid=1, op="set", name="garbage_collection_threshold", value=0.6)
    for old, value in (("0.8", 0.8), ("default", "default")):
        outcome = in_run._outcome(request, {"old": old}, {})
        assert outcome.undo.value == value


def test_a_process_that_is_no_python_is_told_by_its_plan() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        plan = in_run.plan(child.pid, None)
        child.kill()
    assert (plan.way, plan.code) == (None, "not_python")
    assert plan.sentence.startswith(f"pid {child.pid} is no Python process")


def test_an_attach_to_what_has_ended_says_that_it_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = run_record.start_ticks(child.pid)
    child.kill()
    wait_for(lambda: procfs.stat("/proc", child.pid).state == "Z")
    with pytest.raises(TargetGoneError, match="has ended"):
        in_run.attach(child.pid, ticks, lambda _: None)
    child.communicate()
    with pytest.raises(TargetGoneError):
        in_run.attach(child.pid, ticks, lambda _: None)


def test_a_folder_that_is_not_private_is_not_looked_into(
    program: Program, recorder: Recorder
) -> None:
    os.chmod(recorder.directory, 0o755)
    runs = Runs()
    runs.note(AgentSocket(program.pid, program.pid, program.path))
    wait_for(lambda: row(runs).state == "running")
    assert row(runs).name is None


def test_allocations_by_stack_come_with_the_segments_while_history_is_on(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "train.py", folder, "cuda") as trainer:
        trainer.wait_socket().wait_steps()
        agent = AgentSocket(trainer.pid, trainer.pid, trainer.path)
        without = in_run.ask(agent, trainer.pid, "segments", False, {0: 3})
        with trainer.talk() as talk:
            talk.data("history", action="start")
        read = in_run.ask(agent, trainer.pid, "segments", False, {0: 3}, readonly=True)
        ops = [line["op"] for line in trainer.audit()]
        found = in_run.ask(agent, trainer.pid, "segments", False, {0: 3})
        left = [name for name in os.listdir(folder) if name.endswith(".pickle")]
    assert isinstance(without, Segments)
    assert isinstance(read, Segments)
    assert isinstance(found, Segments)
    assert without.sites == ()
    assert (read.sites, read.sentence, ops) == ((), in_run.NO_SITES, ["history"])
    assert {segment.device for segment in found.segments} == {3}
    (site,) = found.sites
    assert (site.device, site.bytes, site.count, found.sentence) == (3, 12 * MIB, 3, None)
    assert left == []


def test_without_a_step_the_map_is_shown_and_says_why_it_is_alone(
    torch_python: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_run, "SITES_PATIENCE_S", 0.3)
    env = {"COCKPIT_TEST_CAPTURING": f"{folder}/capturing"}
    with running(torch_python, "train.py", folder, "cuda", env=env) as trainer:
        trainer.wait_socket().wait_steps()
        with trainer.talk() as talk:
            talk.data("history", action="start")
        Path(folder, "capturing").touch()  # from now on nothing may be done at a step
        agent = AgentSocket(trainer.pid, trainer.pid, trainer.path)
        found = in_run.ask(agent, trainer.pid, "segments", False, {})
    assert isinstance(found, Segments)
    assert len(found.segments) == 301
    assert found.sites == ()
    assert found.sentence
