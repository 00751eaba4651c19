"""The bar of a run: whatever an allocator says, its slices add up to what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.model.memory import SegmentRow
from cockpit.model.run import RunDevice
from cockpit.model.text import GIB
from cockpit.tui.line import plain
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import (
    Place,
    all_slices,
    amount,
    bar_line,
    held,
    legend_lines,
    numbers,
    slices_of,
)

sizes = st.none() | st.integers(-(1 << 20), 1 << 40)
devices = st.builds(
    RunDevice,
    gpu=st.integers(0, 9),
    allocated_bytes=sizes,
    reserved_bytes=sizes,
    active_bytes=sizes,
    inactive_split_bytes=sizes,
    private_pool_bytes=sizes,
    driver_seen_bytes=sizes,
)
segments = st.lists(
    st.builds(
        lambda size, share, pool, expandable: SegmentRow(
            device=0,
            address=0,
            bytes=size,
            allocated_bytes=size * share // 10,
            active_bytes=size * share // 10,
            pool=pool,
            expandable=expandable,
        ),
        st.integers(0, 1 << 38),
        st.integers(0, 10),
        st.sampled_from([None, "small", "large", "private"]),
        st.booleans(),
    ),
    max_size=6,
)
places = st.builds(Place, sizes, sizes)
glyph_sets = st.sampled_from([Glyphs.unicode(), Glyphs.ascii()])

RUN = RunDevice(
    gpu=0,
    allocated_bytes=int(41.2 * GIB),
    active_bytes=int(41.3 * GIB),
    reserved_bytes=int(85.6 * GIB),
    inactive_split_bytes=int(27.6 * GIB),
    private_pool_bytes=int(5.9 * GIB),
    driver_seen_bytes=int(88.0 * GIB),
)


@given(devices, segments)
def test_no_slice_is_negative_and_all_add_up_to_what_the_process_holds(device, rows):
    parts = slices_of(device, rows)
    assert all(one.bytes >= 0 for one in parts if one.key != "driver")
    if device.reserved_bytes is not None:
        whole = max(0, device.reserved_bytes, device.driver_seen_bytes or 0)
        assert held(parts) == whole


@given(devices, segments, places, st.integers(4, 250), glyph_sets)
def test_the_bar_is_as_wide_as_asked_and_the_gpu_adds_up(device, rows, place, cells, glyphs):
    parts = slices_of(device, rows)
    line = bar_line(parts, place, cells, glyphs)
    shown = all_slices(parts, place)
    if sum(one.bytes for one in shown) > 0 and all(one.bytes >= 0 for one in shown):
        assert line_width(line) == cells
    if place.total_bytes is not None and place.total_bytes >= held(parts):
        assert sum(one.bytes for one in shown) == place.total_bytes
    if glyphs.ascii_only:
        assert plain(line).isascii()


@given(st.lists(st.integers(0, 1 << 40), max_size=8), st.sampled_from([1, 2]))
def test_the_numbers_of_the_legend_add_up_to_their_rounded_sum(values, digits):
    texts = numbers(values, digits)
    whole = sum(int(text.replace(".", "")) for text in texts)
    assert whole == round(sum(values) / (GIB / 10**digits))


@given(devices, places, st.integers(40, 250), glyph_sets)
def test_the_legend_is_never_too_wide(device, place, width, glyphs):
    for line in legend_lines(slices_of(device), place, width, glyphs):
        assert line_width(line) <= width


def test_the_named_slices_of_a_real_looking_run():
    parts = {one.key: round(one.bytes / GIB, 1) for one in slices_of(RUN)}
    assert parts == {
        "live": 41.2,
        "waiting": 0.1,
        "returnable": 10.8,
        "stuck": 27.6,
        "graphs": 5.9,
        "context": 2.4,
    }


def test_without_a_segment_map_the_graphs_are_an_upper_bound():
    assert next(one for one in slices_of(RUN) if one.key == "graphs").at_most
    rows = [SegmentRow(device=0, address=0, bytes=GIB, allocated_bytes=GIB, active_bytes=GIB)]
    assert not next(one for one in slices_of(RUN, rows) if one.key == "graphs").at_most


def test_free_pages_of_expandable_segments_are_not_stuck():
    row = SegmentRow(
        device=0,
        address=0,
        bytes=int(85.6 * GIB),
        allocated_bytes=int(41.2 * GIB),
        active_bytes=int(41.3 * GIB),
        pool="large",
        expandable=True,
    )
    parts = slices_of(RUN, [row])
    assert amount(parts, "stuck") == 0
    assert amount(parts, "returnable") == RUN.reserved_bytes - RUN.active_bytes


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"inactive_split_bytes": None}, ["live", "waiting", "cache", "context"]),
        ({"allocated_bytes": None}, ["cache", "context"]),
        ({"reserved_bytes": None}, ["driver"]),
        ({"reserved_bytes": None, "driver_seen_bytes": None}, []),
        (
            {"driver_seen_bytes": None},
            ["live", "waiting", "returnable", "stuck", "graphs"],
        ),
    ],
)
def test_what_a_torch_does_not_tell_stays_undivided(fields, keys):
    from msgspec.structs import replace

    assert [one.key for one in slices_of(replace(RUN, **fields))] == keys
