"""The memory of runs over time: samples, gaps, and where it is going."""

from __future__ import annotations

import random

import pytest

from cockpit.model.gpu import Driver
from cockpit.model.host import Host
from cockpit.model.run import Run, RunDevice
from cockpit.model.run_history import RunHistory, robust_slope
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB, MIB
from cockpit.model.time import iso


def a_snapshot(second: float, *runs: Run) -> Snapshot:
    return Snapshot(
        taken_at=iso(1_700_000_000 + second),
        host=Host(name="box"),
        driver=Driver(),
        runs=runs,
        sampler=SamplerStatus(interval_s=1.0),
    )


def a_run(allocated: float, *, step: int | None = 0, state="running", **fields) -> Run:
    values = {"reserved_bytes": int(allocated) + GIB, "alloc_retries": 0, **fields}
    device = RunDevice(gpu=0, allocated_bytes=int(allocated), **values)
    return Run(pid=7, state=state, step=step, devices=(device,))


def filled(values, **fields) -> RunHistory:
    history = RunHistory()
    for second, value in enumerate(values):
        history.append(a_snapshot(second, a_run(value, step=2 * second, **fields)))
    return history


def test_the_same_snapshot_twice_is_one_sample_and_an_older_one_starts_anew():
    history = filled([GIB, GIB])
    history.append(a_snapshot(1, a_run(5)))
    assert history.count == 2
    history.append(a_snapshot(0, a_run(5)))
    assert history.values(7, 0, "allocated") == [5.0]


def test_a_run_that_does_not_answer_leaves_a_gap_and_its_last_moment_is_kept():
    history = filled([GIB])
    for second in (1, 2):
        history.append(a_snapshot(second, a_run(GIB, state="no_answer")))
    assert history.values(7, 0, "allocated") == [GIB, None, None]
    assert history.known_at(7) == 1_700_000_000


def test_a_step_that_goes_back_is_another_process():
    history = filled([GIB] * 5)
    history.append(a_snapshot(5, a_run(9, step=1)))
    assert history.values(7, 0, "allocated") == [None] * 5 + [9.0]


def test_a_run_that_is_long_gone_is_forgotten():
    history = RunHistory(size=3)
    history.append(a_snapshot(0, a_run(1)))
    for second in range(1, 5):
        history.append(a_snapshot(second))
    assert history.known_at(7) is None
    assert not history._rings


def test_a_leak_has_its_slope_by_step_and_a_time_until_full():
    trend = filled([GIB + n * 100 * MIB for n in range(60)]).trend(7, 0, "allocated")
    assert trend is not None
    assert not trend.steady
    assert trend.bytes_per_s == pytest.approx(100 * MIB)
    assert trend.bytes_per_step == pytest.approx(50 * MIB)
    assert trend.full_in_s(GIB) == pytest.approx(10.24)


def test_noise_is_steady_and_never_full():
    source = random.Random(4)
    trend = filled([20 * GIB + source.uniform(-GIB, GIB) for _ in range(300)]).trend(
        7, 0, "allocated"
    )
    assert trend is not None
    assert trend.steady
    assert trend.full_in_s(GIB) is None


def test_a_sawtooth_of_activations_is_steady():
    trend = filled([20 * GIB + n % 10 * GIB for n in range(200)]).trend(7, 0, "allocated")
    assert trend is not None
    assert trend.steady


def test_a_slow_leak_under_a_sawtooth_is_found():
    values = [20 * GIB + n % 10 * 200 * MIB + n * 40 * MIB for n in range(300)]
    trend = filled(values).trend(7, 0, "allocated")
    assert trend is not None
    assert not trend.steady
    assert trend.bytes_per_s == pytest.approx(40 * MIB, rel=0.1)


def test_outliers_do_not_turn_the_slope():
    points = [(float(n), float(n * 20 * MIB)) for n in range(60)]
    points[30] = (30.0, 400.0 * GIB)
    slope, steady = robust_slope(points)
    assert slope == pytest.approx(20 * MIB)
    assert not steady


def test_few_samples_say_nothing():
    assert filled([GIB] * 5).trend(7, 0, "allocated") is None


def test_a_run_without_steps_has_a_trend_by_time_alone():
    history = RunHistory()
    for second in range(30):
        history.append(a_snapshot(second, a_run(second * GIB, step=None)))
    trend = history.trend(7, 0, "allocated")
    assert trend is not None
    assert trend.bytes_per_step is None


def test_retries_per_minute():
    history = RunHistory()
    for second in range(121):
        run = a_run(GIB, step=second, alloc_retries=second // 20)
        history.append(a_snapshot(second, run))
    assert history.per_minute(7, 0) == pytest.approx(3.0)
    assert RunHistory().per_minute(7, 0) is None
