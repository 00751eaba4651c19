"""Simulated runs: numbers that agree with each other, and fixes that do what they say."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from cockpit.collect.simulated import SimulatedMachine
from cockpit.errors import RefusedError, TargetGoneError
from cockpit.model.memory import Census, RunRequest, Segments, Stacks
from cockpit.model.run import Run


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def a_machine(scenario: str = "busy", readonly: bool = False):
    clock = Clock()
    began = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
    machine = SimulatedMachine(
        scenario, clock=clock, sleep=lambda _: None, began=began, readonly=readonly
    )
    return machine, clock


def run_of(machine, pid: int) -> Run | None:
    return next((one for one in machine.snapshot(1.0).runs if one.pid == pid), None)


def quiet(_: str) -> None:
    pass


@pytest.mark.parametrize("scenario", ["busy", "oom"])
def test_allocated_active_reserved_and_driver_are_in_order_at_every_moment(scenario):
    machine, clock = a_machine(scenario)
    for second in range(0, 200, 3):
        clock.now_s = float(second)
        snapshot = machine.snapshot(1.0)
        assert snapshot.runs or scenario == "oom"
        seen = {p.pid: p.vram_bytes for p in snapshot.processes}
        for run in snapshot.runs:
            for one in run.devices:
                assert one.allocated_bytes <= one.active_bytes <= one.reserved_bytes
                assert one.reserved_bytes <= one.driver_seen_bytes
            assert sum(one.driver_seen_bytes for one in run.devices) == seen[run.pid]


def test_the_segment_map_adds_up_to_what_is_reserved():
    machine, _ = a_machine()
    device = run_of(machine, 4711).devices[0]
    found = machine.ask_run(4711, "segments", False)
    assert isinstance(found, Segments)
    assert sum(one.bytes for one in found.segments) == device.reserved_bytes
    assert sum(one.active_bytes for one in found.segments) == device.active_bytes
    assert all(sum(size for _, size in one.runs) == one.bytes for one in found.segments)


def test_attach_makes_a_run_and_detach_takes_it_away():
    machine, _ = a_machine()
    assert run_of(machine, 4714) is None
    plan = machine.attach_plan(4714, None)
    assert plan.way == "ptrace"
    assert machine.run_attach(4714, plan.start_ticks, quiet).ok
    assert run_of(machine, 4714).attached_by == "ptrace"
    assert machine.attach_plan(4714, None).way == "agent"
    machine.do_in_run(RunRequest(pid=4714, op="detach"), quiet)
    assert run_of(machine, 4714) is None


@pytest.mark.parametrize(
    ("pid", "words"), [(9120, "belongs to ml2; you are ml1"), (4194001, "another namespace")]
)
def test_what_a_preflight_refuses_is_refused(pid, words):
    machine, _ = a_machine()
    plan = machine.attach_plan(pid, None)
    assert plan.way is None
    assert words in plan.sentence
    with pytest.raises(RefusedError):
        machine.run_attach(pid, None, quiet)


def test_another_start_time_is_another_process():
    machine, _ = a_machine()
    with pytest.raises(TargetGoneError):
        machine.run_attach(4714, 1, quiet)


def test_empty_cache_gives_back_what_the_driver_then_no_longer_sees():
    machine, _ = a_machine()
    before = machine.snapshot(1.0)
    outcome = machine.do_in_run(RunRequest(pid=4711, op="empty_cache"), quiet)
    after = machine.snapshot(1.0)
    back = outcome.before[0].reserved_bytes - outcome.after[0].reserved_bytes
    assert back > 10 << 30
    assert before.gpus[0].memory_used_bytes - after.gpus[0].memory_used_bytes == back
    entry = next(one for one in after.ledger if one.gpu == 0)
    parts = entry.free_bytes + entry.driver_reserved_bytes + entry.unaccounted_bytes
    assert parts + sum(one.bytes for one in entry.processes) == entry.total_bytes
    again = machine.do_in_run(RunRequest(pid=4711, op="empty_cache"), quiet)
    assert again.before[0].reserved_bytes == again.after[0].reserved_bytes


def test_a_setting_carries_its_undo():
    machine, _ = a_machine()
    request = RunRequest(pid=4711, op="set", name="matmul_precision", value="high")
    undo = machine.do_in_run(request, quiet).undo
    assert (undo.name, undo.value) == ("matmul_precision", "highest")


def test_sites_are_known_only_while_history_is_recorded():
    machine, _ = a_machine()
    assert machine.ask_run(4711, "segments", False).sites == ()
    machine.do_in_run(RunRequest(pid=4711, op="history", name="start"), quiet)
    assert machine.ask_run(4711, "segments", False).sites


def test_questions_of_a_process_without_agent_are_refused_except_for_its_stacks():
    machine, _ = a_machine()
    with pytest.raises(RefusedError, match="press a to attach"):
        machine.ask_run(4714, "census", False)
    stacks = machine.ask_run(4714, "stacks", False)
    assert isinstance(stacks, Stacks)
    assert stacks.read_by == "py-spy"
    assert isinstance(machine.ask_run(4711, "census", True), Census)


def test_readonly_attaches_to_nothing_and_changes_nothing():
    machine, _ = a_machine(readonly=True)
    with pytest.raises(RefusedError):
        machine.run_attach(4714, None, quiet)
    with pytest.raises(RefusedError):
        machine.do_in_run(RunRequest(pid=4711, op="gc"), quiet)
