"""The rings: order, gaps, wrap-around, replay that is moved back."""

from __future__ import annotations

from cockpit.model.gpu import Driver, Gpu
from cockpit.model.history import HOST, History
from cockpit.model.host import Host
from cockpit.model.snapshot import SamplerStatus, Snapshot


def a_snapshot(second, *gpus, cpu=None):
    return Snapshot(
        taken_at=f"2026-11-30T14:{second // 60:02d}:{second % 60:02d}.000Z",
        host=Host(cpu_pct=cpu),
        driver=Driver(),
        gpus=gpus,
        sampler=SamplerStatus(interval_s=1.0),
    )


def filled(count, size=600):
    history = History(size)
    for n in range(count):
        history.append(a_snapshot(n, Gpu(index=0, utilization_pct=float(n))))
    return history


def test_values_come_oldest_first():
    assert filled(4).values(0, "util", 3) == [1.0, 2.0, 3.0]


def test_a_ring_keeps_only_its_size():
    history = filled(13, size=5)
    assert history.values(0, "util", 100) == [8.0, 9.0, 10.0, 11.0, 12.0]
    assert history.sample(0, "util", 7) is None
    assert history.sample(0, "util", 13) is None


def test_what_is_not_known_is_a_gap_and_never_zero():
    history = filled(2)
    history.append(a_snapshot(2, Gpu(index=0)))
    assert history.values(0, "util", 3) == [0.0, 1.0, None]
    assert history.latest(0, "util") is None


def test_a_stale_or_lost_gpu_leaves_a_gap_although_it_carries_old_values():
    history = History()
    for n, state in enumerate(("ok", "stale", "lost")):
        history.append(a_snapshot(n, Gpu(index=0, state=state, utilization_pct=50.0)))
    assert history.values(0, "util", 3) == [50.0, None, None]


def test_a_gpu_that_comes_later_has_gaps_before_it():
    history = filled(2)
    history.append(a_snapshot(2, Gpu(index=1, power_w=70.0)))
    assert history.values(1, "power", 3) == [None, None, 70.0]
    assert history.values(0, "util", 3) == [0.0, 1.0, None]


def test_vram_is_a_share_and_unknown_without_a_total():
    history = History()
    history.append(
        a_snapshot(
            0,
            Gpu(index=0, memory_used_bytes=1, memory_total_bytes=4),
            Gpu(index=1, memory_used_bytes=1),
        )
    )
    assert history.latest(0, "vram") == 25.0
    assert history.latest(1, "vram") is None


def test_the_host_has_its_own_ring():
    history = History()
    history.append(a_snapshot(0, cpu=38.0))
    assert history.latest(HOST, "cpu") == 38.0


def test_the_same_snapshot_twice_counts_once():
    history = filled(1)
    history.append(a_snapshot(0, Gpu(index=0, utilization_pct=9.0)))
    assert history.count == 1


def test_a_replay_that_is_moved_back_starts_anew():
    history = filled(30)
    history.append(a_snapshot(3, Gpu(index=0, utilization_pct=7.0)))
    assert history.values(0, "util", 10) == [7.0]


def test_samples_know_their_ages_when_the_interval_changes():
    history = History(size=4)
    for second in (0, 1, 2, 12, 22):
        history.append(a_snapshot(second))
    assert history.ages(10) == [-21.0, -20.0, -10.0, 0.0]
    assert history.ages(2) == [-10.0, 0.0]
    assert History().ages(3) == []


def test_a_reach_counts_what_is_still_to_come_with_the_interval_of_now():
    history = History()
    assert history.reach_s(10, 2.0) == 20.0
    for second in (0, 1, 2):
        history.append(a_snapshot(second))
    assert history.reach_s(2, 10.0) == 2.0
    assert history.reach_s(5, 10.0) == 32.0
