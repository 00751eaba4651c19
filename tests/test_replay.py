"""The recording that ships: made on a real H200, scrubbed, and played by the whole program."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path

import pytest

from cockpit.collect.recording import RecordedMachine, load
from cockpit.engine.link import Link
from cockpit.engine.protocol import AskKillPlan, EngineOptions, Play, Reply, Tick
from cockpit.model.action import KillRequest, Target

RECORDING = Path(__file__).parent / "recordings" / "h200-stray.jsonl.gz"


def test_it_holds_a_training_a_stray_and_its_end_on_a_real_h200() -> None:
    recording = load(str(RECORDING))
    snapshots = [recording.snapshot(number) for number in range(len(recording.times))]
    assert recording.skipped_lines == 0
    assert {gpu.name for one in snapshots for gpu in one.gpus} == {"NVIDIA H200"}
    strays = [[p.pid for p in one.processes if p.stray] for one in snapshots]
    assert [] in strays[:3]
    assert any(strays)
    assert strays[-1] == []
    busiest = max(one.gpus[0].utilization_pct or 0 for one in snapshots)
    assert busiest == 100


def test_every_ledger_in_it_adds_up_to_the_byte() -> None:
    recording = load(str(RECORDING))
    for number in range(len(recording.times)):
        for one in recording.snapshot(number).ledger:
            parts = one.free_bytes + one.driver_reserved_bytes + one.unaccounted_bytes
            assert parts + sum(share.bytes for share in one.processes) == one.total_bytes


def test_it_names_no_host_user_or_path() -> None:
    text = gzip.decompress(RECORDING.read_bytes()).decode()
    names = set(re.findall(r'"name":"([^"]+)"', text))
    assert names <= {"gpu-box", "NVIDIA H200", "python", "python3"}
    assert not re.findall(r"/(home|root|tmp|work|opt)/", text)


def test_a_stray_in_a_recording_cannot_be_killed() -> None:
    machine = RecordedMachine(str(RECORDING))
    machine.play(None, None, 18.0)
    stray = next(one for one in machine.snapshot(1.0).processes if one.stray)
    plan = machine.plan_kill(KillRequest(targets=(Target(pid=stray.pid),)))
    assert [one.refusal for one in plan.targets] == ["readonly"]


@pytest.fixture
def link(tmp_path: Path):
    link = Link(EngineOptions(replay=str(RECORDING), interval_s=0.1), str(tmp_path / "log"))
    yield link
    link.close()


def tick(link: Link) -> Tick:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        message = link.receive(1)
        if isinstance(message, Tick):
            return message
    raise AssertionError("no tick")


def test_it_can_be_held_sought_and_played_faster(link: Link) -> None:
    tick(link)
    link.send(Play(paused=True, seek_s=20.0))
    time.sleep(0.3)
    for _ in range(6):
        held = tick(link)
    assert held.playback is not None
    assert held.playback.paused
    assert abs(held.playback.position_s - 20) < 1.5
    link.send(Play(paused=False, speed=8.0))
    began = time.monotonic()
    while (now := tick(link)).playback.position_s < held.playback.position_s + 4:  # type: ignore[union-attr]
        assert time.monotonic() - began < 3
    assert now.playback is not None
    assert now.playback.speed == 8.0


def test_a_kill_asked_of_a_replay_is_refused_over_the_wire(link: Link) -> None:
    tick(link)
    link.send(AskKillPlan(id=5, request=KillRequest(targets=(Target(pid=1),))))
    while not isinstance(message := link.receive(5), Reply):
        assert message is not None
    assert message.plan is not None
    assert all(one.refusal == "readonly" for one in message.plan.targets)
