"""The conversation of ``cockpit kill``, with the real plans of an engine without its process."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.act.identity import read_stat
from cockpit.act.journal import Journal
from cockpit.act.signal import Kills
from cockpit.commands.kill import _Conversation
from cockpit.engine.protocol import AskKillPlan, FromEngine, Message, Reply, RunKill
from cockpit.model.action import KillPlan, KillRequest, Target
from cockpit.model.process import Process
from tests.act.killing import GIB, IGNORE_TERM, ZOMBIE, FakeVram, Procs, alive, until, wait_dead

# A child with the pid that is given, by clone3 with set_tid; prints it.
WITH_PID = """
import ctypes, os, signal, struct, sys, time
tid = (ctypes.c_int * 1)(int(sys.argv[1]))
words = (0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(tid), 1, 0)
pid = ctypes.CDLL(None).syscall(435, ctypes.create_string_buffer(struct.pack("11Q", *words)), 88)
if pid == 0:
    os.execvp("sleep", ["sleep", "300"])
print(pid, flush=True)
time.sleep(300)
"""


class KillLink:
    """What ``answer`` needs of a Link."""

    def __init__(self, kills: Kills) -> None:
        self.kills, self.plans = kills, list[KillPlan]()
        self.before: Callable[[KillRequest], None] = lambda _request: None
        """Called before a plan is made."""
        self._replies: list[Reply] = []

    def next_id(self) -> int:
        return 1

    def send(self, message: Message) -> None:
        if isinstance(message, AskKillPlan):
            self.before(message.request)
            self.plans.append(self.kills.plan(message.request))
            self._replies.append(Reply(id=message.id, plan=self.plans[-1]))
        if isinstance(message, RunKill):
            results = self.kills.run(message.plan, message.typed, [].append)
            self._replies.append(Reply(id=message.id, results=results))

    def receive(self, _timeout_s: float) -> FromEngine | None:
        return self._replies.pop(0)


@pytest.fixture
def procs() -> Iterator[Procs]:
    started = Procs()
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def link_of(tmp_path: Path) -> Callable[[FakeVram], KillLink]:
    def make(vram: FakeVram) -> KillLink:
        rows = [Process(pid=pid, vram_bytes=held) for pid, held in vram.held.items()]
        return KillLink(Kills(vram, Journal(tmp_path / "journal"), processes=lambda: rows))

    return make


def named(*pids: int) -> KillRequest:
    return KillRequest(targets=tuple(Target(pid=pid) for pid in pids), grace_s=0.3, named=True)


def test_what_sigkill_would_do_is_shown_before_it_is_asked_for(
    link_of: Callable[[FakeVram], KillLink],
    procs: Procs,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pid = procs.start(IGNORE_TERM)
    link = link_of(FakeVram({pid: GIB}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\n"))
    assert _Conversation(link, yes=False, escalates=True).kill(named(pid)) == 1
    assert alive(pid)
    assert [plan.signal for plan in link.plans] == ["TERM", "KILL"]
    first, second, rest = capfd.readouterr().err.split("[y/N] ")
    assert "half-written files" not in first
    assert f"  {pid}  " in second
    assert "You lose: No clean-up: half-written files" in second
    assert "Send SIGKILL" in second
    assert "You lose" not in rest


def test_a_dead_leaders_memory_is_seen_to_come_back_after_sigkill_to_its_holder(
    link_of: Callable[[FakeVram], KillLink], procs: Procs
) -> None:
    leader, child = procs.pids(ZOMBIE, "reap", "ignore")
    wait_dead(leader)
    link = link_of(FakeVram({leader: GIB}, {leader: child}))
    assert _Conversation(link, yes=True, escalates=True).kill(named(leader)) == 0
    assert not alive(child)
    last = {one.pid: one.start_ticks for one in link.plans[-1].targets}
    assert last == {leader: None, child: last[child]}


@pytest.mark.skipif(os.geteuid() != 0, reason="chooses the pid of a new process")
def test_who_has_the_pid_of_a_dead_leader_by_now_gets_no_sigkill(
    link_of: Callable[[FakeVram], KillLink], procs: Procs
) -> None:
    leader, child = procs.pids(ZOMBIE, "reap", "ignore")
    wait_dead(leader)

    def take_over(request: KillRequest) -> None:
        if request.signal == "KILL" and alive(child):
            os.kill(child, signal.SIGKILL)
            until(lambda: read_stat(child) is None)  # now the kernel may give out its session's pid
            assert procs.pids(WITH_PID, str(leader)) == [leader]

    link = link_of(FakeVram({leader: GIB}, {leader: child}))
    link.before = take_over
    code = _Conversation(link, yes=True, escalates=True).kill(named(leader))
    assert alive(leader)
    assert code != 0
    assert leader not in {one.pid for one in link.plans[-1].targets}
