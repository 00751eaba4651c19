"""The simulated machine: adds up, repeats itself, and its kill frees simulated memory only."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.collect.demo_scenarios import SCENARIOS
from cockpit.collect.simulated import SimulatedMachine
from cockpit.errors import RefusedError, TargetGoneError, UsageError
from cockpit.model.action import KillPlan, KillRequest, KillResult, Target
from cockpit.model.secret import HIDDEN
from cockpit.model.snapshot import Snapshot, decode, encode

BEGAN = datetime(2026, 11, 30, 14, 2, 11, tzinfo=timezone.utc)


class Demo:
    """A machine with a clock that only a test moves (or a wait of the machine itself)."""

    def __init__(self, scenario: str) -> None:
        self.now_s = 1000.0
        self.machine = SimulatedMachine(
            scenario, clock=lambda: self.now_s, sleep=self.advance, began=BEGAN
        )
        self.machine.start()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def after(self, seconds: float = 1.0) -> Snapshot:
        self.advance(seconds)
        return self.machine.snapshot(1.0)

    def plan(self, *pids: int, **fields) -> KillPlan:
        targets = tuple(Target(pid=pid) for pid in pids)
        return self.machine.plan_kill(KillRequest(targets=targets, **fields))

    def kill(self, *pids: int, typed: str | None = None, **fields) -> tuple[KillResult, ...]:
        return self.machine.run_kill(self.plan(*pids, **fields).id, typed, lambda sentence: None)


def pids(snapshot: Snapshot) -> set[int]:
    return {p.pid for p in snapshot.processes}


def kinds(snapshot: Snapshot) -> list[str]:
    return [e.kind for e in snapshot.events]


def assert_adds_up(snapshot: Snapshot) -> None:
    rows = {p.pid: {d.gpu: d.vram_bytes for d in p.devices} for p in snapshot.processes}
    for gpu, entry in zip(snapshot.gpus, snapshot.ledger, strict=True):
        named = sum(p.bytes for p in entry.processes)
        parts = entry.free_bytes + entry.driver_reserved_bytes + named + entry.unaccounted_bytes
        assert entry.total_bytes == parts
        assert entry.free_bytes >= 0
        assert all(rows[p.pid][gpu.index] == p.bytes for p in entry.processes)
        if entry.unaccounted_bytes > 64 << 20:
            assert entry.explanations
        if gpu.state == "ok":
            assert gpu.memory_total_bytes == entry.total_bytes
            assert gpu.memory_used_bytes == named + entry.unaccounted_bytes


@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.floats(0.01, 60.0), min_size=1, max_size=12))
def test_every_ledger_of_every_scenario_adds_up_to_the_byte(name: str, steps: list[float]) -> None:
    demo = Demo(name)
    for step in steps:
        assert_adds_up(demo.after(step))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_clock_gives_the_same_snapshots_and_they_survive_the_wire(name: str) -> None:
    first, second = Demo(name), Demo(name)
    for _ in range(30):
        line = encode(first.after())
        assert line == encode(second.after())
        assert encode(decode(line)) == line


@pytest.mark.parametrize("name", SCENARIOS)
def test_identities_are_unique_and_every_unknown_gpu_value_has_its_reason(name: str) -> None:
    demo = Demo(name)
    for _ in range(120):
        snapshot = demo.after(1.7)
        assert len(pids(snapshot)) == len(snapshot.processes)
        for gpu in snapshot.gpus:
            unknown = {f for f, v in msgspec.structs.asdict(gpu).items() if v is None}
            assert unknown == set(gpu.gaps) - {"mig_instances"}
        for process in snapshot.processes:
            assert process.vram_bytes is not None or "vram_bytes" in process.gaps


def test_busy_shows_eight_gpus_of_several_users_and_a_row_of_another_namespace() -> None:
    snapshot = Demo("busy").after()
    assert len(snapshot.gpus) == 8
    assert {"ml1", "ml2", "ml3", "svc"} <= {p.user for p in snapshot.processes}
    assert any(not p.visible for p in snapshot.processes)
    assert len(snapshot.topology) == 28
    assert {link.nvlinks for link in snapshot.topology} == {18}


def test_busy_goes_on_evaluations_come_and_go() -> None:
    demo = Demo("busy")
    seen = [demo.after() for _ in range(70)]
    assert {"process_started", "process_ended"} <= set(kinds(seen[-1]))


def test_a_snapshot_of_busy_takes_less_than_a_millisecond() -> None:
    demo = Demo("busy")
    fastest = float("inf")
    for _ in range(50):
        demo.advance(1.0)
        began = time.perf_counter()
        demo.machine.snapshot(1.0)
        fastest = min(fastest, time.perf_counter() - began)
    assert fastest < 0.001


def test_killing_a_stray_holder_frees_its_memory_and_says_how_much() -> None:
    demo = Demo("stray")
    before = demo.after()
    (result,) = demo.kill(5233)
    assert result.outcome == "freed"
    assert result.sentence == "pid 5233: freed 38.4 of 38.4 GiB in 0.1 s"
    after = demo.after()
    assert 5233 not in pids(after)
    assert after.ledger[2].free_bytes - before.ledger[2].free_bytes == result.freed_bytes
    assert_adds_up(after)


def test_the_memory_of_a_killed_process_is_still_in_use_for_a_moment_with_the_reason() -> None:
    demo = Demo("stray")
    demo.after()
    moments = []
    demo.machine._kill._sleep = lambda s: (demo.advance(s), moments.append(demo.after(0.0)))
    demo.kill(5233)
    assert 5233 not in pids(moments[0])
    assert [e.kind for e in moments[0].ledger[2].explanations] == ["gone_process"]
    assert_adds_up(moments[0])


def test_a_process_that_ignores_sigterm_survives_and_sigkill_with_its_pid_typed_ends_it() -> None:
    demo = Demo("stray")
    (survived,) = demo.kill(5240, grace_s=3.0)
    assert (survived.outcome, survived.offer_kill, survived.elapsed_s) == ("survived", True, 3.0)
    assert survived.sentence == (
        "pid 5240 is still there 3.0 s after SIGTERM: it ignores SIGTERM; SIGKILL would end it"
    )
    assert 5240 in pids(demo.after())
    with pytest.raises(RefusedError):
        demo.kill(5240, signal="KILL")
    (freed,) = demo.kill(5240, signal="KILL", typed="5240")
    assert freed.outcome == "freed"
    assert 5240 not in pids(demo.after())


def test_killing_a_zombie_leader_ends_the_child_that_holds_the_device() -> None:
    demo = Demo("stray")
    assert next(p for p in demo.after().processes if p.pid == 5602).state == "Z"
    plan = demo.plan(5602)
    assert [(t.pid, t.role) for t in plan.targets] == [(5602, "target"), (5617, "holder")]
    results = demo.machine.run_kill(plan.id, None, lambda sentence: None)
    assert [r.outcome for r in results] == ["freed", "ended"]
    assert not {5602, 5617} & pids(demo.after())


@pytest.mark.parametrize(
    ("scenario", "pid", "code", "outcome"),
    [
        ("stray", 5844, "not_permitted", "refused"),
        ("busy", 1843, "protected", "refused"),
        ("throttle", 2210, "protected", "refused"),
        ("busy", 4194001, "gone", "missing"),
        ("busy", 77, "gone", "missing"),
    ],
)
def test_what_the_policy_refuses_is_refused_with_a_sentence(scenario, pid, code, outcome) -> None:
    demo = Demo(scenario)
    before = pids(demo.after())
    (target,) = demo.plan(pid).targets
    assert target.refusal == code
    assert str(pid) in (target.refusal_sentence or "")
    (result,) = demo.kill(pid)
    assert result.outcome == outcome
    assert pids(demo.after()) == before


def test_start_ticks_that_do_not_match_are_another_process() -> None:
    demo = Demo("busy")
    plan = demo.machine.plan_kill(KillRequest(targets=(Target(pid=7002, start_ticks=1),)))
    assert plan.targets[0].refusal == "changed"
    (result,) = demo.machine.run_kill(plan.id, None, lambda sentence: None)
    assert result.exit_code == 5


def test_a_job_is_killed_with_all_its_ranks_and_sigkill_asks_for_their_number() -> None:
    demo = Demo("busy")
    plan = demo.plan(4711, job=True, signal="KILL")
    assert [t.pid for t in plan.targets] == [4700, 4711, 4712, 4713, 4714]
    assert plan.targets[0].note == "launcher of the job: goes first"
    assert plan.typed == "5"
    results = demo.machine.run_kill(plan.id, "5", lambda sentence: None)
    assert [r.outcome for r in results] == ["ended"] + ["freed"] * 4
    assert [g.utilization_pct for g in demo.after().gpus[:4]] == [0.0] * 4


def test_a_plan_runs_once_and_an_unknown_one_never() -> None:
    demo = Demo("busy")
    plan = demo.plan(7002)
    demo.machine.run_kill(plan.id, None, lambda sentence: None)
    for plan_id in (plan.id, "demo-99"):
        with pytest.raises(RefusedError):
            demo.machine.run_kill(plan_id, None, lambda sentence: None)


def test_stop_and_continue_are_delivered_and_seen() -> None:
    demo = Demo("busy")
    (result,) = demo.kill(4711, signal="STOP")
    assert result.outcome == "signalled"
    assert next(p for p in demo.after().processes if p.pid == 4711).state == "T"
    demo.kill(4711, signal="CONT")
    assert next(p for p in demo.after().processes if p.pid == 4711).state == "R"


def test_a_stopped_process_sees_sigterm_only_when_continued() -> None:
    demo = Demo("busy")
    demo.kill(7002, signal="STOP")
    (result,) = demo.kill(7002, grace_s=1.0)
    assert result.outcome == "survived"
    assert "stopped" in result.sentence


def test_readonly_refuses_every_target() -> None:
    machine = SimulatedMachine("stray", readonly=True)
    plan = machine.plan_kill(KillRequest(targets=(Target(pid=5233), Target(pid=4711)), job=True))
    assert {t.refusal for t in plan.targets} == {"readonly"}
    results = machine.run_kill(plan.id, None, lambda sentence: None)
    assert {r.outcome for r in results} == {"refused"}
    assert {5233, 4711} <= pids(machine.snapshot(1.0))


def test_waiting_tells_its_progress_once_a_second() -> None:
    demo, said = Demo("stray"), []
    plan = demo.plan(5240, grace_s=3.0)
    demo.machine.run_kill(plan.id, None, said.append)
    assert said[0] == "sent SIGTERM to 1 process"
    assert said[1] == "waiting 1 of 3 s: 1 still there"


def test_a_gpu_is_lost_with_xid_79_and_stays_lost() -> None:
    demo = Demo("lost")
    assert demo.after(7.0).gpus[3].state == "ok"
    lost = demo.after(2.0)
    assert lost.gpus[3].state == "lost"
    assert lost.gpus[3].power_w is None
    assert kinds(lost) == ["xid", "lost"]
    assert lost.events[0].xid == 79
    later = demo.after(600.0)
    assert later.gpus[3].state == "lost"
    assert kinds(later).count("lost") == 1


def test_one_gpu_is_slowed_by_heat_and_one_by_its_power_cap() -> None:
    demo = Demo("throttle")
    for _ in range(40):
        snapshot = demo.after()
    hot, capped = snapshot.gpus[1], snapshot.gpus[2]
    assert (hot.temperature_c, capped.throttle_reasons) == (91, ("sw_power_cap",))
    assert "hw_thermal_slowdown" in (hot.throttle_reasons or ())
    assert (hot.sm_clock_mhz or 0) < 0.6 * (hot.sm_clock_max_mhz or 0)
    assert kinds(snapshot).count("throttle") == 2


def test_memory_fills_until_the_process_dies_of_it_and_it_begins_again() -> None:
    demo = Demo("oom")
    used = [demo.after().gpus[1].memory_used_bytes or 0 for _ in range(85)]
    assert used == sorted(used)
    assert used[-1] > 0.98 * 150754820096
    snapshot = demo.after(10.0)
    assert {"oom", "process_ended"} <= set(kinds(snapshot))
    assert 9157 in pids(demo.after(5.0))


def test_big_has_sixteen_gpus_and_more_than_two_hundred_processes() -> None:
    snapshot = Demo("big").after()
    assert (len(snapshot.gpus), len(snapshot.processes) >= 200) == (16, True)


def test_without_a_driver_there_are_still_host_and_processes() -> None:
    snapshot = Demo("nodriver").after()
    assert snapshot.driver.error is not None
    assert snapshot.driver.error.code == "driver_not_loaded"
    assert not snapshot.gpus
    assert snapshot.processes
    assert snapshot.host.cpu_pct is not None


def test_details_tell_the_family_and_mask_what_looks_secret() -> None:
    demo = Demo("busy")
    details = demo.machine.details(4711, None)
    assert [r.name for r in details.ancestors] == ["torchrun", "bash", "tmux: server", "systemd"]
    environment = dict(details.environment or ())
    assert environment["RANK"] == "0"
    assert environment["WANDB_API_KEY"] == HIDDEN
    assert "/dev/nvidia0" in details.device_files


def test_details_of_others_carry_gaps_and_those_of_nobody_are_an_error() -> None:
    demo = Demo("busy")
    assert demo.machine.details(9120, None).environment is None
    assert demo.machine.details(9120, None).gaps["environment"] == "no_permission"
    assert demo.machine.details(4194001, None).gaps["environment"] == "other_namespace"
    with pytest.raises(TargetGoneError):
        demo.machine.details(77, None)
    with pytest.raises(TargetGoneError):
        demo.machine.details(4711, 1)


def test_relatives_are_the_ancestors_of_those_who_live() -> None:
    demo = Demo("stray")
    names = {r.name for r in demo.machine.relatives(demo.after())}
    assert {"torchrun", "tmux: server", "systemd"} <= names
    demo.kill(4711, 4712)
    assert "torchrun" not in {r.name for r in demo.machine.relatives(demo.after())}


def test_an_unknown_scenario_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="busy, stray, lost"):
        SimulatedMachine("nonsense")
