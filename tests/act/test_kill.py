"""Processes that are really killed, and what the results say of it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest
from killing import (
    GIB,
    HELD,
    IGNORE_TERM,
    SLEEP,
    TREE,
    ZOMBIE,
    FakeVram,
    Make,
    Procs,
    alive,
    ask,
    kill,
    ticks,
    until,
    wait_dead,
)

from cockpit.act import identity
from cockpit.act.identity import read_stat
from cockpit.act.journal import Journal
from cockpit.model.process import DeviceUse, Process


def test_a_sleeper_ends_and_its_memory_is_seen_to_come_back(kills_of: Make, procs: Procs):
    pid = procs.start()
    (result,) = kill(kills_of(FakeVram({pid: HELD})), pid)
    assert not alive(pid)
    assert (result.outcome, result.exit_code) == ("freed", 0)
    assert re.fullmatch(rf"pid {pid}: freed 14.3 of 14.3 GiB in 0\.\d s", result.sentence)
    assert (result.vram_before_bytes, result.freed_bytes) == (HELD, HELD)
    assert 0.1 <= result.elapsed_s < 2


def test_a_process_without_device_memory_just_ends(kills_of: Make, procs: Procs):
    pid = procs.start()
    (result,) = kill(kills_of(), pid)
    assert not alive(pid)
    assert (result.outcome, result.exit_code, result.freed_bytes) == ("ended", 0, None)


def test_who_ignores_sigterm_survives_and_sigkill_is_offered(kills_of: Make, procs: Procs):
    pid = procs.start(IGNORE_TERM)
    kills = kills_of(FakeVram({pid: HELD}))
    plan = kills.plan(ask(pid, grace_s=0.3))
    assert plan.targets[0].note == "ignores SIGTERM"
    (result,) = kills.run(plan.id, None, [].append)
    assert alive(pid)
    assert (result.outcome, result.offer_kill, result.exit_code) == ("survived", True, 1)
    assert "ignores SIGTERM; SIGKILL would end it" in result.sentence
    (result,) = kill(kills, pid, signal="KILL")
    assert (result.outcome, alive(pid)) == ("freed", False)


def test_a_zombie_leader_is_killed_through_the_child_that_holds_the_device(
    kills_of: Make, procs: Procs
):
    leader, child = procs.pids(ZOMBIE)
    wait_dead(leader)
    kills = kills_of(FakeVram({leader: 6 * GIB}, {leader: child}))
    plan = kills.plan(ask(leader))
    assert [(t.pid, t.role) for t in plan.targets] == [(leader, "target"), (child, "holder")]
    assert "zombie" in plan.targets[0].note
    for_leader, for_child = kills.run(plan.id, plan.typed, [].append)
    assert not alive(child)
    assert (for_leader.outcome, for_leader.freed_bytes) == ("freed", 6 * GIB)
    assert "dead already" in for_leader.sentence
    assert for_child.outcome == "ended"


def answers(monkeypatch: pytest.MonkeyPatch, holds: bool | None) -> None:
    """What can be seen of the heirs' open device files."""
    monkeypatch.setattr("cockpit.act.plan.holds_device", lambda _pid: holds)


def test_a_zombie_without_vram_costs_nobody_of_its_session_his_life(kills_of: Make, procs: Procs):
    leader, child = procs.pids(ZOMBIE)
    wait_dead(leader)
    for vram in (FakeVram({}), FakeVram({leader: 0})):
        kills = kills_of(vram)
        plan = kills.plan(ask(leader, named=True))
        assert [(t.pid, t.role) for t in plan.targets] == [(leader, "target")]
        assert "has ended already" in plan.targets[0].note
        kills.run(plan.id, plan.typed, [].append)
        assert alive(child)


def test_an_heir_without_the_device_is_left_alone(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    leader, _child = procs.pids(ZOMBIE)
    wait_dead(leader)
    answers(monkeypatch, False)
    plan = kills_of(FakeVram({leader: 6 * GIB})).plan(ask(leader))
    assert [t.pid for t in plan.targets] == [leader]
    assert "has ended already" in plan.targets[0].note


def test_an_heir_that_is_seen_to_hold_the_device_goes_without_more_words(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    leader, child = procs.pids(ZOMBIE)
    wait_dead(leader)
    answers(monkeypatch, True)
    plan = kills_of(FakeVram({leader: 6 * GIB})).plan(ask(leader, named=True))
    assert (plan.typed, plan.targets[1].refusal) == (None, None)
    assert plan.targets[0].note == f"zombie: its memory is held by pid {child}"
    assert plan.targets[1].note == f"holds the device for pid {leader}"


def test_who_is_alone_in_a_dead_leaders_session_is_taken_for_the_holder(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    leader, child = procs.pids(ZOMBIE)
    wait_dead(leader)
    answers(monkeypatch, None)
    kills = kills_of(FakeVram({leader: 6 * GIB}, {leader: child}))
    plan = kills.plan(ask(leader, named=True))
    assert [(one.pid, one.refusal) for one in plan.targets] == [(leader, None), (child, None)]
    kills.run(plan.id, plan.typed, [].append)
    assert not alive(child)


def test_heirs_of_which_nothing_is_seen_want_to_be_typed_or_named(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    leader, child = procs.pids(ZOMBIE, "two")
    wait_dead(leader)
    answers(monkeypatch, None)
    kills = kills_of(FakeVram({leader: 6 * GIB}, {leader: child}))
    asked = kills.plan(ask(leader))
    assert asked.typed is not None
    assert "cannot be seen" in asked.targets[1].note
    named = kills.plan(ask(leader, named=True))
    assert [one.refusal for one in named.targets[1:]] == ["not_permitted", "not_permitted"]
    kills.run(named.id, named.typed, [].append)
    assert alive(child)


@pytest.mark.parametrize("argv0", [b"tr\xff\xfein", b"\xed\xa0\x80"])
def test_a_process_whose_argv_is_no_utf8_can_be_killed(
    kills_of: Make, procs: Procs, journal: Journal, argv0: bytes
):
    argv = [argv0, b"-S", b"-c", SLEEP.encode(), b"\xff\xfe\x80bad"]
    pid = procs.run(argv, executable=sys.executable).pid
    kills = kills_of(FakeVram({pid: HELD}))
    plan = kills.plan(ask(pid))
    assert "\\x80bad" in plan.targets[0].command
    msgspec.json.encode(plan)
    results = kills.run(plan.id, plan.typed, [].append)
    msgspec.json.encode(results)
    assert results[0].outcome == "freed"
    assert "\\x80bad" in journal.path.read_text()


def test_a_zombies_holder_that_ignores_sigterm_is_offered_sigkill(kills_of: Make, procs: Procs):
    leader, child = procs.pids(ZOMBIE, "ignore")
    wait_dead(leader)
    kills = kills_of(FakeVram({leader: 6 * GIB}, {leader: child}))
    for_leader, for_child = kill(kills, leader, grace_s=0.2)
    assert (for_leader.outcome, for_leader.offer_kill) == ("not_freed", True)
    assert f"pid {child}" in for_leader.sentence
    assert for_child.outcome == "survived"
    assert [r.exit_code for r in kill(kills, leader, signal="KILL")] == [0, 0]


def test_a_leader_that_is_gone_altogether_is_known_by_its_session(kills_of: Make, procs: Procs):
    leader, child = procs.pids(ZOMBIE, "reap")
    wait_dead(leader)
    kills = kills_of(FakeVram({leader: 6 * GIB}, {leader: child}))
    results = kill(kills, leader)
    assert [(r.pid, r.exit_code) for r in results] == [(leader, 0), (child, 0)]
    assert results[0].freed_bytes == 6 * GIB


def test_a_zombie_without_heirs_is_missing(kills_of: Make, procs: Procs):
    leader, child = procs.pids(ZOMBIE)
    wait_dead(leader)
    os.kill(child, signal.SIGKILL)
    wait_dead(child)
    (result,) = kill(kills_of(), leader)
    assert (result.outcome, result.exit_code) == ("missing", 5)
    assert "zombie" in result.sentence


def test_a_child_that_keeps_the_device_open_is_named(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cockpit.act.watch.VERIFY_S", 0.3)
    parent, first, second, grandchild = procs.pids(TREE)
    (result,) = kill(kills_of(FakeVram({parent: 12 * GIB}, {parent: first})), parent)
    assert (result.outcome, result.exit_code, result.freed_bytes) == ("not_freed", 1, 0)
    assert f"pid {parent} is gone, but 12.0 GiB have not come back: pid {first}" in result.sentence
    assert all(alive(pid) for pid in (first, second, grandchild))


def test_a_whole_job_takes_the_children_along(kills_of: Make, procs: Procs):
    pids = procs.pids(TREE)
    kills = kills_of(FakeVram({pids[0]: 12 * GIB}, {pids[0]: pids[3]}))
    plan = kills.plan(ask(pids[0], job=True))
    assert [t.role for t in plan.targets] == ["target", "child", "child", "child"]
    results = kills.run(plan.id, None, [].append)
    assert [r.exit_code for r in results] == [0, 0, 0, 0]
    assert [r.pid for r in results] == [t.pid for t in plan.targets]
    assert not any(alive(pid) for pid in pids)


def test_memory_that_left_the_list_but_is_still_used_is_not_called_free(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cockpit.act.watch.VERIFY_S", 0.4)
    pid = procs.start()
    vram = FakeVram({pid: HELD})
    vram.leak = 2 * GIB
    (result,) = kill(kills_of(vram), pid)
    assert result.outcome == "not_freed"
    assert "2.0 GiB have not come back" in result.sentence


def test_what_another_process_takes_meanwhile_does_not_spoil_the_proof(
    kills_of: Make, procs: Procs
):
    pid, other = procs.start(), procs.start()
    vram = FakeVram({pid: HELD, other: GIB})

    def grow(_sentence: str) -> None:
        vram.held[other] = 10 * GIB

    kills = kills_of(vram)
    (result,) = kills.run(kills.plan(ask(pid)).id, None, grow)
    assert vram.held[other] == 10 * GIB
    assert (result.outcome, result.freed_bytes) == ("freed", HELD)


def test_a_driver_that_stops_answering_leaves_the_memory_unproven(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cockpit.act.watch.VERIFY_S", 0.2)
    pid = procs.start()
    vram = FakeVram({pid: HELD})
    kills = kills_of(vram)
    plan = kills.plan(ask(pid))
    vram.answers = False
    (result,) = kills.run(plan.id, None, [].append)
    assert (result.outcome, result.freed_bytes) == ("not_freed", None)
    assert "the driver did not answer" in result.sentence


def test_a_gpu_that_falls_silent_proves_nothing_for_those_that_were_on_it(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cockpit.act.watch.VERIFY_S", 0.3)
    here, there = procs.start(), procs.start()

    class Vram(FakeVram):
        def used_by_gpu(self) -> dict[int, int]:
            used = super().used_by_gpu()
            return {**used, 1: GIB} if alive(there) else used

    rows = [
        Process(pid=pid, vram_bytes=HELD, devices=(DeviceUse(gpu=gpu, vram_bytes=1, sm_pct=None),))
        for gpu, pid in enumerate((here, there))
    ]
    kills = kills_of(Vram({here: HELD, there: HELD}), processes=lambda: rows)
    on_first, on_second = kill(kills, here, there)
    assert on_first.outcome == "freed"
    assert on_second.outcome == "not_freed"
    assert "the driver did not answer" in on_second.sentence


def test_a_rank_alone_is_warned_of_and_a_slurm_job_is_named(kills_of: Make, procs: Procs):
    pid = procs.start()
    row = Process(pid=pid, vram_bytes=HELD, rank=1, world_size=8, slurm_job="77\x1b")
    loses = " ".join(kills_of(processes=lambda: [row]).plan(ask(pid)).loses)
    assert "Rank 1 of 8" in loses
    assert "scancel 77^[ ends" in loses


def test_a_zombie_rank_brings_its_living_job_when_asked(
    kills_of: Make, procs: Procs, tmp_path: Path
):
    launcher = tmp_path / "torchrun"
    launcher.write_text(
        "import os, time\n"
        "dead = os.fork() or os._exit(0)\n"
        "rank = os.fork() or time.sleep(300)\n"
        "print(os.getpid(), dead, rank, flush=True)\n"
        "time.sleep(300)"
    )
    head, dead, rank = procs.printed([sys.executable, str(launcher)])
    wait_dead(dead)
    plan = kills_of(FakeVram({rank: HELD})).plan(ask(dead, job=True))
    assert [t.pid for t in plan.targets] == [head, dead, rank]


def test_a_stopped_process_is_told_from_one_that_ignores(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of()
    (result,) = kill(kills, pid, signal="STOP")
    assert (result.outcome, result.exit_code) == ("signalled", 0)
    until(lambda: read_stat(pid).state == "T")
    (result,) = kill(kills, pid, grace_s=0.1)
    assert "stopped" in result.sentence
    assert kill(kills, pid, signal="CONT")[0].outcome == "signalled"
    wait_dead(pid)


def test_a_wait_inside_the_kernel_is_named(kills_of: Make, procs: Procs):
    # The parent of a vfork waits in state D until its child ends; its handler waits as well.
    code = """
import ctypes, signal
signal.signal(signal.SIGTERM, lambda *_: None)
print('ready', flush=True)
libc = ctypes.CDLL(None)
if libc.vfork() == 0:
    libc.sleep(300)
"""
    parent = procs.start(code)
    deadline = time.monotonic() + 3
    while read_stat(parent).state != "D" and time.monotonic() < deadline:
        time.sleep(0.02)
    child = next(s.pid for s in identity.all_stats().values() if s.ppid == parent)
    procs.note(child)
    (result,) = kill(kills_of(), parent, grace_s=0.2)
    assert result.outcome == "survived"
    assert "inside the kernel" in result.sentence
    assert "(state D)" in result.sentence


def test_one_bad_target_does_not_spoil_the_others(kills_of: Make, procs: Procs):
    first, second = procs.start(IGNORE_TERM), procs.start()
    vram = FakeVram({first: GIB, second: 2 * GIB})
    results = kill(kills_of(vram), first, 999_999_999, 1, second, grace_s=0.5)
    assert [r.outcome for r in results] == ["survived", "missing", "refused", "freed"]
    assert results[3].elapsed_s < 0.5


def test_who_ends_before_the_run_is_missing_or_has_freed_by_itself(kills_of: Make, procs: Procs):
    holder, idler = procs.start(), procs.start()
    kills = kills_of(FakeVram({holder: HELD}))
    plan = kills.plan(ask(holder, idler))
    for pid in (holder, idler):
        os.kill(pid, signal.SIGKILL)
        procs.reap(pid)
    results = kills.run(plan.id, None, [].append)
    assert [(r.outcome, r.exit_code) for r in results] == [("freed", 0), ("missing", 5)]


def test_progress_is_told_once_a_second(kills_of: Make, procs: Procs):
    said: list[str] = []
    kills = kills_of()
    kills.run(kills.plan(ask(procs.start(IGNORE_TERM), grace_s=1.4)).id, None, said.append)
    assert said == ["sent SIGTERM to 1 process", "waiting 1 of 1 s: 1 still there"]


def test_every_kill_is_in_the_journal_before_and_after(
    kills_of: Make, procs: Procs, journal: Journal
):
    pid = procs.start()
    start = ticks(pid)
    kill(kills_of(FakeVram({pid: HELD})), pid)
    intent, result = map(json.loads, journal.path.read_text().splitlines())
    assert (intent["phase"], intent["outcome"], intent["before_bytes"]) == ("intent", None, HELD)
    assert (result["phase"], result["outcome"], result["after_bytes"]) == ("result", "freed", 0)
    assert (result["pid"], result["start_ticks"], result["uid"]) == (pid, start, os.geteuid())
    assert intent["action"] == result["action"]
    assert SLEEP[:20] in intent["command"]


def test_a_journal_that_cannot_be_written_is_told_once_and_hinders_nothing(
    kills_of: Make, procs: Procs, tmp_path: Path
):
    (tmp_path / "file").write_text("in the way")
    kills = kills_of(journal=Journal(tmp_path / "file" / "journal.jsonl"))
    said: list[str] = []
    pid = procs.start()
    (result,) = kills.run(kills.plan(ask(pid)).id, None, said.append)
    assert (result.outcome, alive(pid)) == ("ended", False)
    assert sum("cannot be written" in sentence for sentence in said) == 1
