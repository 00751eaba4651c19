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
    Make,
    Procs,
    alive,
    ask,
    kill,
    wait_exec,
)

from cockpit.act import identity
from cockpit.act import signal as act_signal
from cockpit.act.identity import Handle
from cockpit.errors import RefusedError, UsageError

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
