"""A real engine as a child: starts, answers, ends, and tells why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.engine.link import Link
from cockpit.engine.protocol import (
    AskAttach,
    AskDetails,
    AskKillPlan,
    DoInRun,
    EngineOptions,
    Hello,
    Progress,
    Reply,
    RunAttach,
    RunKill,
    Tick,
    Watch,
)
from cockpit.errors import LinkError, UsageError
from cockpit.model.action import KillRequest, Target
from cockpit.model.memory import RunRequest


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Link]:
    link = Link(EngineOptions(demo="stray", interval_s=0.2), str(tmp_path / "log"))
    yield link
    with contextlib.suppress(OSError):  # the test closed it
        link.close()


def next_of(link: Link, kind: type, within_s: float = 5.0) -> object:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        message = link.receive(end - time.monotonic())
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} within {within_s} s")


def test_the_first_line_is_hello_and_ticks_follow_on_the_beat(demo: Link) -> None:
    hello = demo.receive(5)
    assert isinstance(hello, Hello)
    assert (hello.source, hello.title) == ("demo", "stray")
    began = time.monotonic()
    for _ in range(4):
        assert isinstance(next_of(demo, Tick), Tick)
    assert time.monotonic() - began < 1.5


def test_a_watch_changes_the_interval_and_brings_relatives(demo: Link) -> None:
    next_of(demo, Tick)
    demo.send(Watch(interval_s=0.1, tree=True))
    ticks = [next_of(demo, Tick) for _ in range(4)]
    assert any(isinstance(tick, Tick) and tick.relatives for tick in ticks)


def test_a_kill_is_planned_run_told_and_proven_over_the_wire(demo: Link) -> None:
    tick = next_of(demo, Tick)
    assert isinstance(tick, Tick)
    stray = next(one for one in tick.snapshot.processes if one.stray and one.vram_bytes)
    target = Target(pid=stray.pid, start_ticks=stray.start_ticks)
    demo.send(AskKillPlan(id=1, request=KillRequest(targets=(target,), grace_s=1)))
    reply = next_of(demo, Reply)
    assert isinstance(reply, Reply)
    assert reply.plan is not None
    demo.send(RunKill(id=2, plan=reply.plan.id))
    assert isinstance(next_of(demo, Progress), Progress)
    reply = next_of(demo, Reply)
    assert isinstance(reply, Reply)
    assert reply.results is not None
    assert reply.id == 2


def test_a_plan_runs_once_only(demo: Link) -> None:
    demo.send(RunKill(id=7, plan="never made"))
    reply = next_of(demo, Reply)
    assert isinstance(reply, Reply)
    assert reply.error is not None
    assert reply.exit_code == 4


def test_details_of_a_pid_that_is_not_there_exit_5(demo: Link) -> None:
    demo.send(AskDetails(id=3, pid=1, start_ticks=99))
    reply = next_of(demo, Reply)
    assert isinstance(reply, Reply)
    assert reply.exit_code == 5


def test_an_engine_ends_by_itself_at_end_of_file(demo: Link) -> None:
    next_of(demo, Tick)
    os.close(demo._writer.fd)
    end = time.monotonic() + 2
    while time.monotonic() < end and not demo._reap():
        time.sleep(0.01)
    assert demo._exit_code == 0
    os.close(demo._reader.fd)


def test_closing_never_waits_for_a_stopped_engine(demo: Link) -> None:
    next_of(demo, Tick)
    os.kill(demo.pid, signal.SIGSTOP)
    began = time.monotonic()
    demo.close()
    assert time.monotonic() - began < 0.2
    end = time.monotonic() + 2
    while time.monotonic() < end and not demo._reap():
        time.sleep(0.01)
    assert demo._exit_code == -signal.SIGKILL


def test_a_killed_engine_is_a_link_error_that_names_the_signal(demo: Link) -> None:
    next_of(demo, Tick)
    os.kill(demo.pid, signal.SIGKILL)
    with pytest.raises(LinkError, match="signal 9"):
        next_of(demo, Reply)


def test_options_that_make_no_sense_are_a_usage_error_with_the_engines_words(
    tmp_path: Path,
) -> None:
    link = Link(EngineOptions(demo="no such scenario"), str(tmp_path / "log"))
    with pytest.raises(UsageError, match="no such scenario"):
        link.receive(5)
    link.close()


def test_modules_in_the_working_directory_are_not_taken_for_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("select", "signal", "json", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    link = Link(EngineOptions(demo="busy"), str(tmp_path / "log"))
    assert isinstance(link.receive(5), Hello)
    link.close()


def test_what_is_done_in_a_run_stands_in_the_journal_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real attach to a real loop, and the detach; the journal has four lines of it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    target = subprocess.Popen([sys.executable, "-c", "while True: sum(range(9999))"])
    link = Link(EngineOptions(interval_s=0.5), str(tmp_path / "log"))
    try:
        link.send(AskAttach(id=1, pid=target.pid, start_ticks=None))
        reply = next_of(link, Reply, 15)
        assert isinstance(reply, Reply)
        assert reply.attach is not None
        if reply.attach.way is None:
            pytest.skip(reply.attach.sentence)
        ticks = reply.attach.start_ticks
        link.send(RunAttach(id=2, pid=target.pid, start_ticks=ticks))
        reply = next_of(link, Reply, 15)
        assert isinstance(reply, Reply)
        assert reply.outcome is not None
        assert reply.outcome.ok, reply.outcome.sentence
        link.send(DoInRun(id=3, request=RunRequest(pid=target.pid, op="detach", start_ticks=1)))
        reply = next_of(link, Reply, 15)
        assert isinstance(reply, Reply)
        assert reply.exit_code == 5  # another start time is another process
        link.send(DoInRun(id=4, request=RunRequest(pid=target.pid, op="detach", start_ticks=ticks)))
        reply = next_of(link, Reply, 15)
        assert isinstance(reply, Reply)
        assert reply.outcome is not None
        assert reply.outcome.ok
        assert target.poll() is None
    finally:
        link.close()
        target.kill()
        target.wait()
    text = (tmp_path / "state" / "cockpit" / "journal.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    told = [(one["operation"], one["phase"], one["outcome"]) for one in lines]
    assert told == [
        ("attach", "intent", None),
        ("attach", "result", "done"),
        ("detach", "intent", None),
        ("detach", "result", "failed"),
        ("detach", "intent", None),
        ("detach", "result", "done"),
    ]
