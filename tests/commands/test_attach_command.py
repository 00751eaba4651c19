"""``cockpit attach`` and ``detach`` mean the process that had the pid when they were called."""

from __future__ import annotations

import os

import pytest

from cockpit.commands import attach
from cockpit.engine.protocol import AskAttach, DoInRun, FromEngine, Message, Reply, RunAttach, Tick
from cockpit.model.gpu import Driver
from cockpit.model.host import Host
from cockpit.model.memory import AttachPlan, RunOutcome
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.procfs import Stat, stat
from cockpit.settings import Settings

DONE = RunOutcome(ok=True, sentence="done")
TICK = Tick(
    snapshot=Snapshot(
        taken_at="", host=Host(), driver=Driver(), sampler=SamplerStatus(interval_s=1.0)
    )
)


class Engine:
    """A Link whose run has an agent and does all that it is asked for."""

    log_path = None

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._replies: list[FromEngine] = [TICK]

    def next_id(self) -> int:
        return len(self.sent) + 1

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, AskAttach):
            plan = AttachPlan(
                pid=message.pid, start_ticks=message.start_ticks, way="agent", sentence="there"
            )
            self._replies.append(Reply(id=message.id, attach=plan))
        elif isinstance(message, RunAttach | DoInRun):
            self._replies.append(Reply(id=message.id, outcome=DONE))

    def receive(self, _timeout_s: float) -> FromEngine | None:
        return self._replies.pop(0)

    def close(self, *, may_kill: bool) -> None:
        assert not may_kill


def test_both_pin_the_start_time(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    monkeypatch.setattr(attach, "open_link", lambda _settings: engine)
    assert attach.attach(Settings(), os.getpid(), yes=True) == 0
    assert attach.detach(Settings(), os.getpid()) == 0
    asked, ran, done = engine.sent
    mine = stat("/proc", os.getpid())
    assert isinstance(mine, Stat)
    assert isinstance(asked, AskAttach)
    assert isinstance(ran, RunAttach)
    assert isinstance(done, DoInRun)
    ticks = {asked.start_ticks, ran.start_ticks, done.request.start_ticks}
    assert ticks == {mine.start_ticks}
