"""A pid is not enough: reused pids, threads, other namespaces, and the hold on a process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
from killing import (
    HELD,
    IGNORE_TERM,
    FakeVram,
    Make,
    Procs,
    alive,
    ask,
    kill,
    ticks,
)

from cockpit.act import identity
from cockpit.act.identity import Handle
from cockpit.act.plan import subject_refusal
from cockpit.errors import TargetGoneError
from cockpit.model.action import KillRequest, PlannedTarget, Target
from cockpit.model.process import Process


def test_start_ticks_that_do_not_match_signal_nothing(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of(FakeVram({pid: HELD}))
    target = Target(pid=pid, start_ticks=ticks(pid) - 1)
    plan = kills.plan(KillRequest(targets=(target,), signal="KILL"))
    assert plan.targets[0].refusal == "changed"
    (result,) = kills.run(plan.id, None, [].append)
    assert alive(pid)
    assert (result.outcome, result.exit_code) == ("missing", 5)


def test_start_ticks_that_match_are_no_hindrance(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of()
    plan = kills.plan(KillRequest(targets=(Target(pid=pid, start_ticks=ticks(pid)),)))
    assert kills.run(plan.id, None, [].append)[0].outcome == "ended"


@pytest.mark.parametrize("pid", [0, -1, 4194304 * 4])
def test_a_pid_that_cannot_be_is_gone(kills_of: Make, pid: int):
    kills = kills_of()
    plan = kills.plan(ask(pid))
    assert plan.targets[0].refusal == "gone"
    assert kills.run(plan.id, None, [].append)[0].exit_code == 5


def test_a_thread_id_is_told_from_a_process(kills_of: Make, procs: Procs):
    code = "import threading, time\nt = threading.Thread(target=time.sleep, args=(300,))\nt.start()"
    pid, thread = procs.pids(code + "\nprint(__import__('os').getpid(), t.native_id, flush=True)")
    (target,) = kills_of().plan(ask(thread)).targets
    assert target.refusal == "gone"
    assert f"process {pid}" in target.refusal_sentence


def reuse(procs: Procs, pid: int) -> int:
    """End ``pid`` and start a process that gets its number."""
    setting = Path("/proc/sys/kernel/ns_last_pid")
    time.sleep(0.03)  # start times count in ticks of 10 ms
    os.kill(pid, signal.SIGKILL)
    procs.reap(pid)
    for _ in range(50):
        try:
            setting.write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"cannot choose the next pid: {error.strerror}")
        new = procs.start()
        if new == pid:
            return new
        os.kill(new, signal.SIGKILL)
    pytest.skip("other processes took the pid")


def test_a_pid_reused_between_plan_and_run_is_not_signalled(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of(FakeVram({pid: HELD}))
    plan = kills.plan(ask(pid))
    assert reuse(procs, pid) == pid
    (result,) = kills.run(plan.id, None, [].append)
    assert alive(pid)
    assert (result.outcome, result.exit_code) == ("missing", 5)


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_hold_on_a_process_never_reaches_the_next_owner_of_its_pid(
    procs: Procs, monkeypatch: pytest.MonkeyPatch, pidfd: bool
):
    if not pidfd:
        monkeypatch.setattr(identity, "_pidfd", lambda _pid: None)
    pid = procs.start()
    handle = Handle.open(pid, ticks(pid))
    try:
        assert not handle.gone()
        reuse(procs, pid)
        with pytest.raises(ProcessLookupError):
            handle.send(signal.SIGKILL)
        assert handle.gone()
        assert alive(pid)
    finally:
        handle.close()


def test_opening_compares_the_start_time_after_the_descriptor_is_there(
    procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    pid, opened = procs.start(), []
    real = identity._pidfd

    def spy(asked: int) -> int | None:
        opened.append(real(asked))
        return opened[0]

    monkeypatch.setattr(identity, "_pidfd", spy)
    with pytest.raises(TargetGoneError):
        Handle.open(pid, ticks(pid) + 1)
    with pytest.raises(OSError):
        os.fstat(opened[0])


def test_kill_works_on_a_kernel_without_pidfd(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(identity, "_pidfd", lambda _pid: None)
    pid = procs.start()
    (result,) = kill(kills_of(FakeVram({pid: HELD})), pid)
    assert (result.outcome, alive(pid)) == ("freed", False)


def test_a_pid_of_another_namespace_is_not_taken_for_the_one_of_that_number_here(
    kills_of: Make, procs: Procs
):
    pid = procs.start()
    kills = kills_of(processes=lambda: [Process(pid=pid, vram_bytes=HELD, visible=False)])
    plan = kills.plan(ask(pid, signal="KILL"))
    assert plan.targets[0].refusal == "gone"
    assert "another PID namespace" in plan.targets[0].refusal_sentence
    assert kills.run(plan.id, None, [].append)[0].exit_code == 5
    assert alive(pid)


def test_the_last_look_before_the_signal_compares_the_start_time_too(procs: Procs):
    pid = procs.start()
    planned = PlannedTarget(
        pid=pid, start_ticks=ticks(pid), user=None, command="sleep", vram_bytes=None
    )
    assert subject_refusal(planned, readonly=False) is None
    other = msgspec.structs.replace(planned, start_ticks=ticks(pid) + 1)
    assert subject_refusal(other, readonly=False).code == "changed"


def test_no_descriptor_is_left_open(kills_of: Make, procs: Procs):
    pid, survivor = procs.start(), procs.start(IGNORE_TERM)
    before = len(os.listdir("/proc/self/fd"))
    kill(kills_of(FakeVram({pid: HELD})), pid, survivor, grace_s=0.1)
    assert len(os.listdir("/proc/self/fd")) == before
