"""Traces advance in place: what changes from one sample to the next."""

from __future__ import annotations

import pytest

from cockpit.model.gpu import Driver, Gpu
from cockpit.model.history import History
from cockpit.model.host import Host
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.tui.line import plain
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.trace import area, spark, sweep, trace_lines

SETS = [Glyphs.unicode(), Glyphs.unicode(braille=False), Glyphs.ascii()]


def add(history, value):
    n = history.count
    history.append(
        Snapshot(
            taken_at=f"2026-11-30T{n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}.000Z",
            host=Host(),
            driver=Driver(),
            gpus=(Gpu(index=0, utilization_pct=value),),
            sampler=SamplerStatus(interval_s=1.0),
        )
    )


def filled(values):
    history = History()
    for value in values:
        add(history, value)
    return history


def differences(before, after):
    assert len(before) == len(after)
    return [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]


@pytest.mark.parametrize("glyphs", SETS)
def test_a_new_sample_changes_two_neighbouring_cells(glyphs):
    history = filled([30.0, 90.0, 60.0] * 10)
    for value in (10.0, 80.0, 55.0, 20.0, 99.0):
        before = spark(history, 0, "util", 8, glyphs)[0]
        add(history, value)
        changed = differences(before, spark(history, 0, "util", 8, glyphs)[0])
        assert len(changed) <= 2
        assert changed in ([0, 7], [7, 0]) or changed[-1] - changed[0] <= 1


@pytest.mark.parametrize("glyphs", SETS)
def test_an_area_changes_at_most_two_columns(glyphs):
    history = filled([30.0, 90.0, 60.0] * 40)
    for value in (10.0, 80.0, 55.0, 20.0):
        before = area(history, 0, "util", 20, 3, glyphs)
        add(history, value)
        after = area(history, 0, "util", 20, 3, glyphs)
        columns = {n for a, b in zip(before, after, strict=True) for n in differences(a, b)}
        assert len(columns) <= 2


def test_a_gpu_that_rests_costs_nothing():
    history = filled([0.0] * 30)
    before = spark(history, 0, "util", 8, SETS[0])
    add(history, 0.0)
    assert spark(history, 0, "util", 8, SETS[0]) == before == ("▁" * 8, "dim")


def test_unknown_is_blank_and_zero_is_not():
    assert spark(filled([None] * 9), 0, "util", 4, SETS[0])[0] == "    "
    text = spark(filled([100.0, None, 50.0]), 0, "util", 4, SETS[0])[0]
    assert text == "█ ▅ "


def test_two_samples_a_cell_are_averaged_and_shown_when_both_are_there():
    assert sweep(filled([0.0, 100.0, 40.0]), 0, "util", 4, per_slot=2) == [50.0, None, None, None]


def test_the_pane_keeps_its_size_and_names_every_gpu():
    history = filled([50.0] * 100)
    gpus = [Gpu(index=n) for n in range(8)]
    for glyphs in SETS:
        for width, height in ((40, 8), (80, 16), (200, 9), (120, 3)):
            lines = trace_lines(history, gpus, width, height, glyphs, ["util"])
            assert len(lines) <= height
            assert all(line_width(line) <= width for line in lines)
    lines = trace_lines(history, gpus, 120, 16, SETS[0], ["util"])
    assert all(f" {n} util" in "".join(map(plain, lines)) for n in range(8))
    assert "50%" in plain(lines[1])


@pytest.mark.parametrize("glyphs", [Glyphs.unicode(), Glyphs.ascii()])
def test_the_head_of_a_full_trace_is_a_mark_and_no_blank(glyphs):
    text, _ = spark(filled(range(20, 60)), 0, "util", 10, glyphs)
    assert " " not in text
    assert text.count("|" if glyphs.ascii_only else "│") == 1
