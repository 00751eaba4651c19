"""The order of the table: natural directions, unknown last, and no jumping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.model.process import DeviceUse, Process
from cockpit.model.text import GIB
from cockpit.tui.sorting import SORT_KEYS, Sort, identity, ordered


def a_process(pid, sm=None, **fields):
    return Process(
        pid=pid, start_ticks=pid, devices=(DeviceUse(gpu=0, vram_bytes=None, sm_pct=sm),), **fields
    )


def pids(processes):
    return [process.pid for process in processes]


def by_sm(values, previous=(), reverse=False):
    processes = [a_process(pid, sm) for pid, sm in enumerate(values)]
    return ordered(processes, Sort("sm", reverse), previous)


def test_memory_is_sorted_largest_first_and_unknown_last_in_both_directions():
    processes = [
        a_process(1, vram_bytes=GIB),
        a_process(2),
        a_process(3, vram_bytes=9 * GIB),
        a_process(4, vram_bytes=0),
    ]
    assert pids(ordered(processes, Sort("vram"))) == [3, 1, 4, 2]
    assert pids(ordered(processes, Sort("vram", reverse=True))) == [4, 1, 3, 2]


def test_names_and_pids_rise():
    processes = [a_process(2, user="b"), a_process(1, user="c"), a_process(3, user="a")]
    assert pids(ordered(processes, Sort("user"))) == [3, 2, 1]
    assert pids(ordered(processes, Sort("pid"))) == [1, 2, 3]


def test_the_oldest_comes_first_by_age():
    assert pids(ordered([a_process(9), a_process(1), a_process(5)], Sort("age"))) == [1, 5, 9]


def test_equal_values_stand_by_pid():
    assert pids(by_sm([5.0, 5.0, 5.0])) == [0, 1, 2]


def test_a_small_difference_does_not_move_a_row():
    first = by_sm([50.0, 49.0])
    again = by_sm([49.0, 52.0], [identity(p) for p in first])
    assert pids(again) == [0, 1]


def test_a_large_difference_does():
    first = by_sm([50.0, 49.0])
    again = by_sm([49.0, 70.0], [identity(p) for p in first])
    assert pids(again) == [1, 0]


def test_a_row_that_falls_is_passed_by_the_others():
    first = by_sm([90.0, 50.0, 40.0])
    again = by_sm([1.0, 50.0, 40.0], [identity(p) for p in first])
    assert pids(again) == [1, 2, 0]


def test_a_newcomer_finds_its_place_and_one_that_ended_leaves_no_hole():
    old = [identity(a_process(n)) for n in (7, 0, 1)]
    again = ordered([a_process(0, 80.0), a_process(1, 10.0), a_process(2, 40.0)], Sort("sm"), old)
    assert pids(again) == [0, 2, 1]


def test_without_a_previous_order_it_is_exact():
    assert pids(by_sm([50.0, 51.0])) == [1, 0]


def test_the_key_walks_round():
    sort = Sort()
    for _ in SORT_KEYS:
        sort = sort.next()
    assert sort == Sort()


values = st.lists(st.floats(0.0, 400.0), min_size=1, max_size=40)


@given(values, st.permutations(range(40)), st.booleans())
def test_whatever_stood_before_no_row_stands_over_one_that_exceeds_it(found, before, reverse):
    previous = [identity(a_process(pid)) for pid in before]
    result = by_sm(found, previous, reverse)
    assert sorted(pids(result)) == list(range(len(found)))
    sign = -1.0 if reverse else 1.0
    shown = [sign * found[process.pid] for process in result]
    for upper in range(len(shown)):
        for lower in range(upper + 1, len(shown)):
            patience = max(3.0, 0.1 * abs(shown[lower]))
            assert shown[lower] <= shown[upper] + patience + 1e-9


@given(values)
def test_an_order_that_holds_stays_as_it_is(found):
    first = by_sm(found)
    again = by_sm(found, [identity(p) for p in first])
    assert pids(first) == pids(again)


@pytest.mark.parametrize("key", SORT_KEYS)
def test_every_key_takes_processes_of_which_nothing_is_known(key):
    nobody = [Process(pid=2), Process(pid=1)]
    assert len(ordered(nobody, Sort(key))) == 2
    assert len(ordered(nobody, Sort(key), [identity(p) for p in nobody])) == 2
