"""The overview's panes at the sizes that matter."""

from __future__ import annotations

import pytest

from cockpit.tui.render.layout import FIXED, LEAST_PROCESSES, overview


@pytest.mark.parametrize("gpus", [1, 8])
def test_eight_processes_are_visible_beside_up_to_eight_gpus_on_24_lines(gpus):
    layout = overview(80, 24, gpus, gpus, 40)
    assert layout.gpus == gpus + 1
    assert 24 - FIXED - layout.events - layout.gpus - layout.traces >= LEAST_PROCESSES


def test_sixteen_gpus_get_no_more_lines_than_leave_eight_processes():
    layout = overview(80, 24, 16, 16, 500)
    assert 24 - FIXED - layout.events - layout.gpus - layout.traces >= LEAST_PROCESSES


@pytest.mark.parametrize("height", range(10, 70))
@pytest.mark.parametrize("gpus", [0, 1, 4, 16, 32])
def test_the_panes_never_take_more_than_there_is(height, gpus):
    layout = overview(120, height, gpus, gpus, 20)
    rest = height - FIXED - layout.events - layout.gpus - layout.traces
    assert rest >= 1
    assert layout.traces >= 0


def test_large_terminals_have_traces():
    assert overview(120, 40, 8, 8, 40).traces >= 8


def test_a_process_more_moves_no_pane_most_of_the_time():
    heights = [overview(120, 40, 1, 4, count) for count in range(1, 20)]
    assert len(set(heights)) <= 5
