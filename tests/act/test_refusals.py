"""What is not signalled, and what has to be typed first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from killing import (
    AS_OTHER_USER,
    GIB,
    ZOMBIE,
    FakeVram,
    Make,
    Procs,
    alive,
    ask,
    kill,
    wait_dead,
    wait_exec,
)

from cockpit.act import identity
from cockpit.act import signal as act_signal
from cockpit.act.identity import Handle
from cockpit.errors import RefusedError, UsageError
from cockpit.model.action import KillRequest, Target

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")


def test_sigkill_asks_for_the_pid_and_refuses_anything_else(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of()
    plan = kills.plan(ask(pid, signal="KILL"))
    assert plan.typed == str(pid)
    for typed in (None, "", "yes", str(pid + 1)):
        with pytest.raises(RefusedError):
            kills.run(plan.id, typed, [].append)
    assert alive(pid)
    assert kills.run(plan.id, f" {pid} ", [].append)[0].outcome == "ended"


def test_several_pids_are_confirmed_by_their_number(kills_of: Make, procs: Procs):
    first, second = procs.start(), procs.start()
    assert kills_of().plan(ask(first, second, signal="KILL")).typed == "2"


def test_a_pid_named_on_the_command_line_needs_no_typing(kills_of: Make, procs: Procs):
    assert kills_of().plan(ask(procs.start(), signal="KILL", named=True)).typed is None


def test_signals_that_are_not_offered_are_a_wrong_use(kills_of: Make, procs: Procs):
    pid = procs.start()
    for name in ("SEGV", "9", "", "RTMIN"):
        with pytest.raises(UsageError):
            kills_of().plan(ask(pid, signal=name))
    with pytest.raises(UsageError):
        kills_of().plan(ask())
    assert alive(pid)


def test_who_has_no_handler_for_sigusr1_is_warned_of(kills_of: Make, procs: Procs):
    (target,) = kills_of().plan(ask(procs.start(), signal="usr1")).targets
    assert "would end it" in target.note


def test_readonly_refuses_every_target(kills_of: Make, procs: Procs):
    pid = procs.start()
    kills = kills_of(readonly=True)
    plan = kills.plan(ask(pid, signal="KILL"))
    assert (plan.targets[0].refusal, plan.typed, plan.loses) == ("readonly", None, ())
    (result,) = kills.run(plan.id, None, [].append)
    assert (result.outcome, result.exit_code, alive(pid)) == ("refused", 4, True)


def test_own_ancestors_are_refused(kills_of: Make):
    kills = kills_of()
    line = identity.all_stats()
    parents = [os.getpid(), os.getppid(), line[os.getppid()].ppid, 1]
    plan = kills.plan(ask(*(pid for pid in parents if pid), signal="CONT", named=True))
    assert {target.refusal for target in plan.targets} == {"protected"}
    results = kills.run(plan.id, None, [].append)
    assert {result.exit_code for result in results} == {4}


def test_a_protected_program_is_known_by_its_file_whatever_it_calls_itself(
    kills_of: Make, procs: Procs, tmp_path: Path
):
    sleep = shutil.which("sleep")
    daemon = tmp_path / "nvidia-persistenced"
    shutil.copy(sleep, daemon)
    hidden = procs.run(["python", "300"], executable=str(daemon), lines=False).pid
    liar = procs.run(["sshd", "300"], executable=sleep, lines=False).pid
    wait_exec(hidden, "nvidia-persiste")
    wait_exec(liar, "sleep")
    first, second = kills_of().plan(ask(hidden, liar)).targets
    assert first.refusal == "protected"
    assert "persistence daemon" in first.refusal_sentence
    assert second.refusal is None


def test_who_becomes_protected_between_plan_and_run_is_not_signalled(
    kills_of: Make, procs: Procs, tmp_path: Path
):
    daemon = tmp_path / "nvidia-persistenced"
    shutil.copy(shutil.which("sleep"), daemon)
    shell = procs.run(
        ["sh", "-c", f"read go; exec {daemon} 300"], lines=False, stdin=subprocess.PIPE
    )
    kills = kills_of()
    plan = kills.plan(ask(shell.pid))
    assert plan.targets[0].refusal is None
    shell.stdin.write("go\n")
    shell.stdin.close()
    wait_exec(shell.pid, "nvidia-persiste")
    (result,) = kills.run(plan.id, None, [].append)
    assert (result.outcome, result.exit_code, alive(shell.pid)) == ("refused", 4, True)
    assert "persistence daemon" in result.sentence


@needs_root
def test_root_kills_another_users_process_only_with_the_pid_typed(kills_of: Make, procs: Procs):
    pid = procs.run([*AS_OTHER_USER, "sleep", "300"], lines=False).pid
    wait_exec(pid, "sleep")
    kills = kills_of()
    plan = kills.plan(ask(pid))
    assert plan.typed == str(pid)
    with pytest.raises(RefusedError):
        kills.run(plan.id, None, [].append)
    assert alive(pid)
    assert kills.run(plan.id, str(pid), [].append)[0].outcome == "ended"


# A parent of uid 1002 with children of uids 1003 and 1002; prints the three pids.
OF_TWO_USERS = """
import os, time
read, write = os.pipe()
children = []
for uid in (1003, 1002):
    pid = os.fork()
    if pid == 0:
        os.setuid(uid)
        os.write(write, b".")
        time.sleep(300)
    children.append(pid)
os.read(read, 1), os.read(read, 1)
os.setuid(1002)
print(os.getpid(), *children, flush=True)
time.sleep(300)
"""


@needs_root
def test_root_naming_one_process_ends_no_other_users_member_of_its_job(
    kills_of: Make, procs: Procs
):
    parent, third, own = procs.pids(OF_TWO_USERS)
    kills = kills_of()
    plan = kills.plan(ask(parent, own, named=True, job=True))
    refused = {one.pid: one.refusal for one in plan.targets}
    assert refused == {parent: None, own: None, third: "not_permitted"}
    results = {one.pid: one for one in kills.run(plan.id, plan.typed, [].append)}
    assert alive(third)
    assert not alive(parent)
    assert not alive(own)
    assert results[third].exit_code == 4
    assert f"name {third} as well" in results[third].sentence


@needs_root
def test_start_ticks_of_another_process_name_nobody(kills_of: Make, procs: Procs):
    parent, third, _own = procs.pids(OF_TWO_USERS)
    targets = (Target(pid=parent), Target(pid=third, start_ticks=1))
    plan = kills_of().plan(KillRequest(targets=targets, named=True, job=True))
    assert {one.refusal for one in plan.targets if one.pid == third} == {
        "not_permitted",
        "changed",
    }


@needs_root
def test_where_the_number_is_typed_a_job_of_several_users_goes_as_a_whole(
    kills_of: Make, procs: Procs
):
    pids = procs.pids(OF_TWO_USERS)
    plan = kills_of().plan(ask(pids[0], job=True))
    assert ({one.refusal for one in plan.targets}, plan.typed) == ({None}, "3")


@needs_root
def test_a_holding_heir_of_a_third_user_wants_to_be_named(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    leader, child = procs.pids(ZOMBIE.replace("os.write(write", "os.setuid(1003); os.write(write"))
    wait_dead(leader)
    monkeypatch.setattr("cockpit.act.plan.holds_device", lambda _pid: True)
    kills = kills_of(FakeVram({leader: GIB}, {leader: child}))
    plan = kills.plan(ask(leader, named=True))
    assert {one.pid: one.refusal for one in plan.targets} == {leader: None, child: "not_permitted"}
    kills.run(plan.id, plan.typed, [].append)
    assert alive(child)
    named = kills.plan(ask(leader, child, named=True))
    assert {one.refusal for one in named.targets} == {None}


AS_USER = """
import json, sys
from cockpit.act.journal import Journal
from cockpit.act.signal import Kills
from cockpit.model.action import KillRequest, Target
class Vram:
    def vram_by_pid(self): return {}
    def used_by_gpu(self): return {}
kills = Kills(Vram(), Journal(), processes=lambda: ())
plan = kills.plan(KillRequest(targets=(Target(pid=int(sys.argv[1])),), named=True))
(result,) = kills.run(plan.id, None, lambda s: print(s, file=sys.stderr))
print(json.dumps([plan.targets[0].refusal, result.exit_code, result.sentence]))
"""


@needs_root
def test_a_user_cannot_kill_another_users_process(procs: Procs):
    pid = procs.start()
    done = subprocess.run(
        [*AS_OTHER_USER, sys.executable, "-c", AS_USER, str(pid)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"HOME": "/nowhere", "PATH": os.environ["PATH"]},
    )
    refusal, code, sentence = json.loads(done.stdout)
    assert (refusal, code, alive(pid)) == ("not_permitted", 4, True)
    assert "another user (uid 0)" in sentence
    assert done.stderr.count("cannot be written") == 1


def test_a_denial_by_the_kernel_is_a_refusal_with_its_reason(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    def deny(_self: Handle, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Handle, "send", deny)
    (result,) = kill(kills_of(), procs.start())
    assert (result.outcome, result.exit_code) == ("refused", 4)
    assert "EPERM" in result.sentence


def test_a_plan_runs_once_and_does_not_live_for_ever(
    kills_of: Make, procs: Procs, monkeypatch: pytest.MonkeyPatch
):
    pid = procs.start()
    kills = kills_of()
    old = kills.plan(ask(pid))
    monkeypatch.setattr(act_signal, "PLAN_LIFE_S", -1.0)
    with pytest.raises(RefusedError):
        kills.run(old.id, None, [].append)
    monkeypatch.undo()
    pushed_out = kills.plan(ask(pid))
    for _ in range(act_signal.MAX_PLANS):
        plan = kills.plan(ask(pid))
    with pytest.raises(RefusedError):
        kills.run(pushed_out.id, None, [].append)
    assert alive(pid)
    kills.run(plan.id, None, [].append)
    with pytest.raises(RefusedError):
        kills.run(plan.id, None, [].append)
