"""Recordings: what is written is read back byte for byte, and damage costs only what it hit."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cockpit.collect.recording import RecordedMachine, RecordingWriter, load
from cockpit.collect.simulated import SimulatedMachine
from cockpit.errors import RefusedError, TargetGoneError, UsageError
from cockpit.model.action import KillRequest, Target
from cockpit.model.event import Event
from cockpit.model.finding import Finding
from cockpit.model.gpu import Driver, DriverError, Gpu, TopologyLink
from cockpit.model.host import Host
from cockpit.model.ledger import Ledger, LedgerProcess
from cockpit.model.process import DeviceUse, Process
from cockpit.model.run import Run
from cockpit.model.snapshot import SamplerStatus, Snapshot, encode

numbers = st.none() | st.integers(0, 3) | st.just(1 << 45)
reals = st.none() | st.sampled_from([0.0, -0.0, 0.1, 1.0, 1e300]) | st.floats(allow_nan=False)
texts = st.none() | st.sampled_from(["", "a", "ü\n\x1b", '"\\']) | st.text("ab\u2028é", max_size=4)
gaps = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), max_size=2)
small = st.integers(0, 3)

gpus = st.builds(
    Gpu, index=small, uuid=texts, power_w=reals, memory_used_bytes=numbers, gaps=gaps,
    throttle_reasons=st.none() | st.lists(st.sampled_from(["p", "q"]), max_size=2).map(tuple),
)  # fmt: skip
uses = st.builds(DeviceUse, gpu=small, vram_bytes=numbers, sm_pct=reals)
processes = st.builds(
    Process, pid=small, start_ticks=numbers, name=texts, cpu_pct=reals, gaps=gaps,
    command=st.lists(texts.filter(bool), max_size=2).map(tuple),
    devices=st.lists(uses, max_size=2).map(tuple),
)  # fmt: skip
ledgers = st.builds(
    Ledger, gpu=small, total_bytes=small, free_bytes=small, driver_reserved_bytes=small,
    processes=st.lists(st.builds(LedgerProcess, pid=small, bytes=small), max_size=2).map(tuple),
    unaccounted_bytes=st.integers(-2, 2),
)  # fmt: skip
events = st.builds(
    Event, at=st.sampled_from("abc"), gpu=st.none() | small, kind=st.sampled_from(["xid", "ecc"]),
    sentence=st.sampled_from("xyz"), severity=st.just("info"),
)  # fmt: skip
findings = st.builds(
    Finding, flow=st.just("oom"), cause=st.just("c"), severity=st.just("error"),
    confidence=st.just(0.5), title=st.just("t"), explanation=st.just("e"), not_=st.just(("n",)),
    facts=st.dictionaries(st.just("k"), st.sampled_from([0, 0.0, -0.0, False, None, 1, True])),
)  # fmt: skip


def rows(of: st.SearchStrategy, size: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=size).map(tuple)


snapshots = st.builds(
    Snapshot, taken_at=st.sampled_from(["1", "2"]),
    host=st.builds(Host, name=texts, cpu_pct=reals, gaps=gaps),
    driver=st.builds(
        Driver, version=texts,
        error=st.none() | st.just(DriverError(code="x", message="m", advice=("a",))),
    ),
    topology=rows(st.builds(TopologyLink, a=small, b=small, level=texts, nvlinks=numbers,
                            p2p=texts), 1),
    gpus=rows(gpus), processes=rows(processes, 4), ledger=rows(ledgers), events=rows(events, 5),
    runs=rows(st.builds(Run, pid=small, step=numbers, steps_per_s=reals), 2),
    findings=rows(findings, 1),
    sampler=st.builds(SamplerStatus, interval_s=st.just(1.0), late_ticks=small, cpu_pct=reals),
)  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def demo(count: int, scenario: str = "busy") -> list[Snapshot]:
    clock = Clock()
    machine = SimulatedMachine(scenario, clock=clock)
    taken = []
    for _ in range(count):
        taken.append(machine.snapshot(1.0))
        clock.now_s += 1.0
    return taken


def record(path: Path, taken: list[Snapshot], **options) -> Path:
    clock = Clock()
    with RecordingWriter(str(path), clock=clock, version="0.1.0", **options) as writer:
        for snapshot in taken:
            writer.write(snapshot)
            clock.now_s += 1.0
    return path


def assert_holds(path: Path, taken: list[Snapshot]) -> None:
    recording = load(str(path))
    read = [encode(recording.snapshot(number)) for number in range(len(recording))]
    assert read == [encode(snapshot) for snapshot in taken]
    assert recording.skipped_lines == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(taken=st.lists(snapshots, min_size=1, max_size=5), full_every_s=st.sampled_from([2, 60]))
def test_any_sequence_of_snapshots_is_read_back_byte_for_byte(
    taken: list[Snapshot], full_every_s: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("r") / "r.jsonl"
    assert_holds(record(path, taken, full_every_s=full_every_s), taken)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
@pytest.mark.parametrize("scenario", ["busy", "stray", "lost", "oom", "nodriver"])
def test_a_demo_is_read_back_byte_for_byte(tmp_path: Path, scenario: str, name: str) -> None:
    taken = demo(130, scenario)
    assert_holds(record(tmp_path / name, taken), taken)


def test_any_snapshot_can_be_asked_for_in_any_order(tmp_path: Path) -> None:
    taken = demo(130)
    recording = load(str(record(tmp_path / "r.gz", taken)))
    for number in (129, 0, 61, 60, 59, 62, 62, 120, 5):
        assert encode(recording.snapshot(number)) == encode(taken[number])


def test_the_lines_are_a_header_then_full_ones_every_minute_and_deltas_between(
    tmp_path: Path,
) -> None:
    path = record(tmp_path / "r.jsonl", demo(130))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["kind"] == "recording"
    assert (lines[0]["schema"], lines[0]["version"]) == (1, "0.1.0")
    assert [line["t"] for line in lines if line["kind"] == "full"] == [0.0, 60.0, 120.0]
    assert sum(line["kind"] == "delta" for line in lines) == 127


def test_a_delta_of_busy_is_less_than_a_third_of_a_full_line(tmp_path: Path) -> None:
    lines = record(tmp_path / "r.jsonl", demo(60)).read_bytes().splitlines()
    deltas = [len(line) for line in lines if line.startswith(b'{"kind":"delta"')]
    assert sum(deltas) / len(deltas) < len(lines[1]) / 3


def test_a_recording_is_for_its_owner_only(tmp_path: Path) -> None:
    path = record(tmp_path / "r.jsonl", demo(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_is_not_overwritten_unless_it_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.touch(0o644)
    record(path, demo(2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        RecordingWriter(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", ["/dev/null", "/no/such/folder/r.jsonl", "/"])
def test_what_cannot_be_recorded_to_is_a_sentence(path: str) -> None:
    with pytest.raises(UsageError, match=path):
        RecordingWriter(path)
    assert stat.S_IMODE(os.stat("/dev/null").st_mode) & 0o066 == 0o066


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_ends_the_recording_not_the_engine(tmp_path: Path, caplog) -> None:
    writer = RecordingWriter(str(tmp_path / "r.jsonl"))
    writer._file = open("/dev/full", "wb")  # noqa: SIM115
    for snapshot in demo(3):
        writer.write(snapshot)
    assert len(caplog.records) == 1
    writer.close()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_killed_recording_is_readable_up_to_its_last_whole_line(
    tmp_path: Path, name: str
) -> None:
    path, taken = tmp_path / name, demo(20)
    writer = RecordingWriter(str(path))
    for snapshot in taken:
        writer.write(snapshot)
    killed = path.read_bytes()  # every line was flushed, nothing was closed
    (tmp_path / ("k" + name)).write_bytes(killed)
    assert_holds(tmp_path / ("k" + name), taken)
    (tmp_path / ("t" + name)).write_bytes(killed[:-40])
    torn = load(str(tmp_path / ("t" + name)))
    assert 0 < len(torn) < 20
    assert encode(torn.snapshot(len(torn) - 1)) == encode(taken[len(torn) - 1])
    writer.close()


def test_a_damaged_line_costs_the_deltas_up_to_the_next_full_one_and_is_counted(
    tmp_path: Path,
) -> None:
    taken = demo(70)
    path = record(tmp_path / "r.jsonl", taken)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[51] = b'{"kind":"delta","t":50.0,\xff\n'
    path.write_bytes(b"".join(lines))
    recording = load(str(path))
    assert recording.skipped_lines == 10
    assert len(recording) == 60
    assert encode(recording.snapshot(50)) == encode(taken[60])


def test_a_foreign_line_between_does_no_harm(tmp_path: Path) -> None:
    taken = demo(10)
    path = record(tmp_path / "r.jsonl", taken)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:5], b"\n", b'{"kind":"note"}\n', *lines[5:]]))
    recording = load(str(path))
    assert (recording.skipped_lines, len(recording)) == (2, 10)
    assert encode(recording.snapshot(9)) == encode(taken[9])


@pytest.mark.parametrize(
    "content",
    [b"", b"hello\n", b"\x1f\x8b", b"\x1f\x8bnot gzip at all", b"{}\n", b"\x00" * 100],
)
def test_a_file_that_is_no_recording_is_told_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a recording"):
        load(str(path))


def test_a_header_alone_and_a_newer_schema_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'{"kind":"recording","schema":1}\n')
    with pytest.raises(UsageError, match="no snapshot"):
        load(str(path))
    path.write_bytes(gzip.compress(b'{"kind":"recording","schema":9}\n'))
    with pytest.raises(UsageError, match="newer"):
        load(str(path))


@pytest.mark.parametrize("path", ["/no/such/file", "/", "/dev/null"])
def test_a_path_that_cannot_be_read_is_a_sentence(path: str) -> None:
    with pytest.raises(UsageError, match=path):
        load(path)


# -- replay


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def taken() -> list[Snapshot]:
    return demo(100, "stray")


@pytest.fixture
def machine(tmp_path: Path, taken: list[Snapshot], clock: Clock) -> RecordedMachine:
    machine = RecordedMachine(str(record(tmp_path / "night.jsonl.gz", taken)), clock=clock)
    machine.start()
    return machine


def test_a_replay_runs_in_real_time_and_names_its_file(machine, taken, clock) -> None:
    assert (machine.source, machine.title) == ("replay", "night.jsonl.gz")
    clock.now_s += 7.5
    assert machine.snapshot(1.0) == taken[7]
    assert (machine.playback().position_s, machine.playback().duration_s) == (7.5, 99.0)


def test_a_pause_holds_and_a_seek_moves_while_paused(machine, taken, clock) -> None:
    machine.play(True, None, None)
    clock.now_s += 50
    assert machine.snapshot(1.0) == taken[0]
    machine.play(None, None, 42.0)
    clock.now_s += 50
    assert machine.snapshot(1.0) == taken[42]
    machine.play(False, None, None)
    clock.now_s += 3
    assert machine.snapshot(1.0) == taken[45]


@pytest.mark.parametrize(("asked", "got"), [(8.0, 8.0), (0.01, 0.25), (1000.0, 64.0)])
def test_the_speed_is_kept_between_a_quarter_and_sixty_four(machine, clock, asked, got) -> None:
    machine.play(None, asked, None)
    clock.now_s += 1.0
    assert machine.playback().speed == got
    assert machine.playback().position_s == got


def test_at_the_end_it_holds_the_last_and_is_paused_and_play_begins_again(
    machine, taken, clock
) -> None:
    clock.now_s += 1000
    assert machine.snapshot(1.0) == taken[-1]
    assert machine.playback().paused
    machine.play(False, None, None)
    clock.now_s += 2
    assert machine.snapshot(1.0) == taken[2]


@pytest.mark.parametrize(("seek", "number"), [(-5.0, 0), (1e9, 99), (50.4, 50)])
def test_a_seek_stays_in_the_recording(machine, taken, seek, number) -> None:
    machine.play(None, None, seek)
    assert machine.snapshot(1.0) == taken[number]


def test_nothing_can_be_killed_in_a_recording(machine) -> None:
    request = KillRequest(targets=(Target(pid=5233), Target(pid=1)), signal="KILL", named=True)
    plan = machine.plan_kill(request)
    assert {t.refusal for t in plan.targets} == {"readonly"}
    assert plan.targets[0].refusal_sentence == "this is a recording: nothing can be killed"
    results = machine.run_kill(plan.id, "5233", lambda sentence: None)
    assert [r.outcome for r in results] == ["refused", "refused"]
    with pytest.raises(RefusedError):
        machine.run_kill("nonsense", None, lambda sentence: None)


def test_details_come_from_the_snapshot_and_the_rest_has_its_reason(machine) -> None:
    details = machine.details(5617, None)
    assert details.start_ticks is not None
    assert details.gaps["environment"] == "recording"
    with pytest.raises(TargetGoneError):
        machine.details(99, None)
    with pytest.raises(TargetGoneError):
        machine.details(5617, 1)
