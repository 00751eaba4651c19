"""The bar that reconciles allocated ≤ active ≤ reserved ≤ driver-seen, and its legend.

The slices of a run are cut so that they always add up to what is shown; what a torch does not tell
stays undivided and says so. Nothing here is measured: the numbers are the allocator's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from cockpit.model.memory import SegmentRow
from cockpit.model.run import RunDevice
from cockpit.model.text import GIB
from cockpit.tui.line import Line, Role, Span
from cockpit.tui.render.cells import fit_line, line_width, merged
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.ledger_lines import shares_of

SMALL_BYTES = 10 * GIB
"""Runs below this are shown in hundredths of a GiB."""


class Slice(NamedTuple):
    """One part of what a run holds."""

    key: str
    name: str
    bytes: int
    at_most: bool = False
    """The allocator tells no more than this upper bound."""


class Place(NamedTuple):
    """The GPU round the run; None where it is not known."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    """By everybody, the driver's own reserve included."""


def slices_of(device: RunDevice, segments: Sequence[SegmentRow] = ()) -> list[Slice]:
    """What the run holds on one device, in the order of the bar; they add up to :func:`held`.

    ``segments`` of this device make it exact: with them it is known what lies in expandable
    segments (which give back free pages although they are split) and what in graph pools.
    """
    reserved, driver = device.reserved_bytes, device.driver_seen_bytes
    if reserved is None:
        return (
            [Slice("driver", "seen by the driver, not divided", max(0, driver))] if driver else []
        )
    whole = max(0, reserved)
    parts: list[Slice] = []
    live = _within(device.allocated_bytes, whole)
    if live is None:
        parts.append(Slice("cache", "reserved, not divided", whole))
    else:
        parts.append(Slice("live", "live tensors", live))
        active = max(live, _within(device.active_bytes, whole) or 0)
        parts.append(Slice("waiting", "waiting for another stream", active - live))
        parts += _cache(device, whole - active, segments)
    if driver is not None:
        parts.append(Slice("context", "context, libraries", max(0, driver - whole)))
    return parts


def _within(value: int | None, most: int) -> int | None:
    return None if value is None else min(max(0, value), most)


def _cache(device: RunDevice, free: int, segments: Sequence[SegmentRow]) -> list[Slice]:
    """The free part of reserved: returnable, stuck, graph pools."""
    stuck = _within(device.inactive_split_bytes, free)
    if stuck is None:
        return [Slice("cache", "cache, not divided", free)]
    if segments:
        pools = min(_free(segments, private=True), free)
        loose = sum(s.bytes - s.active_bytes for s in segments if s.expandable and not private(s))
        split = sum(s.bytes - s.active_bytes for s in segments if is_stuck(s))
        stuck = min(split, free - pools) if loose or pools else min(stuck, free - pools)
        bound = False
    else:
        # The statistics count the pools' free blocks among the whole ones, their used ones as live.
        pools, bound = min(max(0, device.private_pool_bytes or 0), free - stuck), True
    return [
        Slice("returnable", "returnable cache", free - stuck - pools),
        Slice("stuck", "cache stuck in split blocks", stuck),
        Slice("graphs", "CUDA graphs", pools, bound),
    ]


def private(segment: SegmentRow) -> bool:
    """Of a CUDA graph's or a user's own pool: kept as long as the graph lives."""
    return segment.pool not in (None, "small", "large")


def is_stuck(segment: SegmentRow) -> bool:
    """Its free part cannot be given back: something in it is in use."""
    return segment.active_bytes > 0 and not segment.expandable and not private(segment)


def _free(segments: Sequence[SegmentRow], *, private: bool) -> int:
    wanted = (s for s in segments if (s.pool not in (None, "small", "large")) is private)
    return sum(max(0, s.bytes - s.active_bytes) for s in wanted)


def held(slices: Sequence[Slice]) -> int:
    """What all slices come to: what the driver sees, or reserved where that is not known."""
    return sum(one.bytes for one in slices)


def amount(slices: Sequence[Slice], key: str) -> int | None:
    """One slice by name; None where it was not told apart."""
    return next((one.bytes for one in slices if one.key == key), None)


def sign_of(key: str, glyphs: Glyphs) -> tuple[str, Role]:
    """How a slice looks: the sign is enough without colours."""
    live, returnable, stuck, graphs = tuple(glyphs.fills)
    table: dict[str, tuple[str, Role]] = {
        "live": (live, "bar"),
        "waiting": ("=", "bar"),
        "returnable": (returnable, "bar2"),
        "stuck": (stuck, "bar4"),
        "graphs": (graphs, "bar3"),
        "context": ("·", "label"),
        "cache": (returnable, "bar2"),
        "driver": (returnable, "label"),
        "others": ("×", "dim"),
        "free": (glyphs.track, "dim"),
    }
    return table.get(key, ("?", "warn"))


def all_slices(slices: Sequence[Slice], place: Place) -> list[Slice]:
    """Those of the run, then the rest of the GPU; they add up to its total where it is known."""
    mine = held(slices)
    if place.total_bytes is None or place.total_bytes < mine:
        return list(slices)
    used = min(place.total_bytes, max(mine, place.used_bytes or 0))
    return [
        *slices,
        Slice("others", "other processes, driver", used - mine),
        Slice("free", "free", place.total_bytes - used),
    ]


def bar_line(slices: Sequence[Slice], place: Place, cells: int, glyphs: Glyphs) -> Line:
    """Exactly ``cells`` wide; what is there has one cell at the least."""
    parts = all_slices(slices, place)
    counts = _cells(cells, [part.bytes for part in parts])
    spans: list[Span] = []
    for part, count in zip(parts, counts, strict=True):
        sign, role = sign_of(part.key, glyphs)
        spans.append((sign * count, role))
    return glyphs.finish(merged(spans))


def _cells(cells: int, sizes: Sequence[int]) -> list[int]:
    counts = shares_of(cells, sizes) or [0] * len(sizes)
    whole = sum(sizes)
    for number, one in enumerate(sizes):
        largest = max(range(len(counts)), key=lambda n: counts[n])
        if not counts[number] and one > whole / 2000 and counts[largest] > 1:
            counts[number] += 1
            counts[largest] -= 1
    return counts


def digits_for(slices: Sequence[Slice]) -> int:
    """Digits behind the point: small runs need two."""
    return 2 if held(slices) < SMALL_BYTES else 1


def numbers(sizes: Sequence[int], digits: int) -> list[str]:
    """GiB, each the difference of two rounded sums.

    So they add up to the rounded whole, and to allocated, active and reserved as these are written
    elsewhere on the page.
    """
    unit = GIB / 10**digits
    ends = [0, *(round(one / unit) for one in accumulate(sizes))]
    return [f"{(b - a) / 10**digits:.{digits}f}" for a, b in pairwise(ends)]


def legend_lines(
    slices: Sequence[Slice],
    place: Place,
    width: int,
    glyphs: Glyphs,
    roles: dict[str, Role] | None = None,
) -> list[Line]:
    """``█ live tensors 41.2  ▓ returnable cache 10.9``, on as many lines as that needs.

    What others hold is named where it is more than the driver's own reserve.
    """
    others = amount(all_slices(slices, place), "others") or 0
    if others >= GIB:
        slices = [*slices, Slice("others", "others", others)]
    texts = numbers([one.bytes for one in slices], digits_for(slices))
    lines: list[Line] = []
    for one, text in zip(slices, texts, strict=True):
        if not float(text) and one.key not in ("live", "returnable"):
            continue
        sign, role = sign_of(one.key, glyphs)
        tone = (roles or {}).get(one.key, "")
        bound = "≤ " if one.at_most else ""
        entry: Line = ((f" {sign} ", role), (f"{one.name} ", "dim"), (f"{bound}{text} ", tone))
        if lines and line_width(lines[-1]) + line_width(entry) + 1 <= width:
            lines[-1] = merged((*lines[-1], (" ", ""), *entry))
        else:
            lines.append(merged(entry))
    return [glyphs.finish(fit_line(line, width)) for line in lines]
