"""A flow about a slow run waits for what the live rules say, in an engine that is young."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine import flow_tools
from cockpit.engine.flows import Flows
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.snapshot import Snapshot


class Young:
    """An engine whose rules find something in its third snapshot."""

    def __init__(self, found_at: int | None = 3, **changes: object) -> None:
        self.machine = SimulatedMachine("stray")
        self.machine.source = "live"  # one that can be looked at
        self.machine.start()
        snapshot = self.machine.snapshot(1.0)
        self.pid = os.getpid()  # one that lives
        mine = replace(snapshot.processes[0], pid=self.pid, start_ticks=None)
        self.snapshot = replace(snapshot, processes=(mine,))
        self.found_at, self.asked, self.said = found_at, 0, []
        self.changes = changes
        """Of the finding."""

    def fresh(self) -> Snapshot:
        self.asked += 1
        if self.found_at is None or self.asked < self.found_at:
            return self.snapshot
        finding = Finding(
            flow="slow",
            cause="sync",
            severity="warning",
            confidence=0.9,
            title="syncs at train.py:7",
            explanation="It waits.",
            pid=self.pid,
        )
        return replace(self.snapshot, findings=(replace(finding, **self.changes),))

    def begin(self, watched_s: float, pid: int | None = None) -> str:
        flows = Flows(self.machine, self.fresh, watched_s=lambda: watched_s + self.asked)
        request = FlowRequest(flow="slow", pid=pid or self.pid)
        return flows.start(request, self.said.append).cause


@pytest.fixture(autouse=True)
def nothing_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_it_waits_for_the_finding_and_says_so_once() -> None:
    young = Young()
    assert young.begin(0.0) == "syncs at train.py:7"
    assert young.asked == 3
    assert len([one for one in young.said if f"looking at what pid {young.pid} does" in one]) == 1


def test_it_waits_no_longer_than_the_rules_need() -> None:
    young = Young(found_at=None)
    assert young.begin(flow_tools.FINDINGS_WITHIN_S - 3.0) == ""
    assert young.asked == 3


def test_an_engine_that_has_long_been_looking_is_asked_once() -> None:
    young = Young(found_at=None)
    young.begin(3600.0)
    assert young.asked == 1
    assert not young.said


def test_a_process_that_is_on_no_gpu_is_not_waited_for() -> None:
    young = Young(found_at=None)
    young.begin(0.0, pid=os.getppid())
    assert young.asked == 1


@pytest.mark.parametrize(
    "changes",
    [{"pid": 1}, {"pid": None, "gpu": 99}, {"pid": None}, {"pid": 1, "facts": {"pids": [1, 2]}}],
)
def test_a_finding_about_another_process_or_card_does_not_end_the_wait(changes: object) -> None:
    young = Young(found_at=1, **changes)
    young.begin(flow_tools.FINDINGS_WITHIN_S - 3.0)
    assert young.asked == 3


def test_a_finding_that_names_the_process_among_others_or_its_card_ends_the_wait() -> None:
    several = Young(found_at=1, pid=1, facts={"pids": [1, os.getpid()]})
    assert several.begin(0.0) == "syncs at train.py:7"
    assert several.asked == 1
    card = Young(found_at=1, pid=None)
    card.changes = {"pid": None, "gpu": card.snapshot.processes[0].devices[0].gpu}
    card.begin(0.0)
    assert card.asked == 1


def test_the_patience_covers_the_rule_about_data_that_takes_longest() -> None:
    """It was seen to speak after 26 s."""
    assert Young(found_at=3).begin(25.0) == "syncs at train.py:7"
