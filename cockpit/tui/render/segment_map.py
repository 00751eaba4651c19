"""The segments of the caching allocator as a picture: where the holes are that cannot go back.

One line a large segment, the biggest first, each over the full width so that its holes show; the
many segments of one size are packed into shared lines. Signs and colours are those of the bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cockpit.model.memory import SegmentRow, Segments
from cockpit.model.text import plural, size
from cockpit.tui.line import Line, Span
from cockpit.tui.render.cells import fit_line, merged, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import is_stuck, private, sign_of

_LABEL = 29
_ALONE_BYTES = 128 << 20
"""Smaller segments share lines."""
_PACKED_PER_LINE = 32
_LEGEND = (
    ("live", "in use"),
    ("waiting", "waiting for a stream"),
    ("returnable", "free, can go back"),
    ("stuck", "free, stuck in split blocks"),
    ("graphs", "free, a CUDA graph's"),
)


class _Block(NamedTuple):
    key: str
    bytes: int


def segment_lines(segments: Segments, width: int, glyphs: Glyphs) -> list[Line]:
    """Sums, legend, one picture a device."""
    rows = segments.segments
    if not rows:
        return [((" The allocator holds no segment.", "dim"),)]
    lines: list[Line] = [*_legend(width, glyphs)]
    for device in sorted({row.device for row in rows}):
        ours = [row for row in rows if row.device == device]
        lines += [(), *_device_lines(device, ours, width, glyphs)]
    if segments.left_out:
        words = f" {plural(segments.left_out, 'segment')} more are not in this answer."
        lines.append(((words, "warn"),))
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _legend(width: int, glyphs: Glyphs) -> list[Line]:
    lines: list[list[Span]] = [[]]
    room = width
    for key, words in _LEGEND:
        sign, role = sign_of(key, glyphs)
        needed = len(words) + 5
        if needed > room:
            lines.append([])
            room = width
        lines[-1] += [(f" {sign} ", role), (f"{words}  ", "dim")]
        room -= needed
    return [merged(line) for line in lines]


def _device_lines(
    device: int, rows: Sequence[SegmentRow], width: int, glyphs: Glyphs
) -> list[Line]:
    whole = sum(row.bytes for row in rows)
    expandable = sum(row.expandable for row in rows)
    more = f", {expandable} expandable" if expandable else ""
    stuck = [row for row in rows if is_stuck(row) and row.bytes > row.active_bytes]
    held = sum(row.bytes - row.active_bytes for row in stuck)
    head = f"  {plural(len(rows), 'segment')}, {size(whole)}{more}"
    lines: list[Line] = [((f" GPU {device}", "strong"), (head, ""))]
    if held:
        text = f"{size(held)} free in {plural(len(stuck), 'segment')} that something still uses"
        lines += [((f"   {part}", "dim"),) for part in wrapped(text, max(8, width - 4))]
    alone = [row for row in rows if row.bytes >= _ALONE_BYTES]
    for row in sorted(alone, key=lambda row: (-row.bytes, row.address)):
        lines.append(_segment_line(row, width, glyphs))
    packed = [row for row in rows if row.bytes < _ALONE_BYTES]
    for first in range(0, len(packed), _PACKED_PER_LINE):
        lines.append(_packed_line(packed[first : first + _PACKED_PER_LINE], width, glyphs))
    return lines


def _segment_line(row: SegmentRow, width: int, glyphs: Glyphs) -> Line:
    """``  2.0 GiB  68 %  5 holes  ████▒▒``."""
    used = 100 * row.active_bytes / row.bytes if row.bytes else 0
    holes = sum(state == "inactive" for state, _ in row.runs)
    if not row.active_bytes:
        words = "graph" if private(row) else "free"
    elif row.expandable:
        words = "expandable"
    else:
        words = plural(holes, "hole") if holes else "full"
    label = f" {size(row.bytes):>9} {used:3.0f} %  {words:11}  "
    return _line(label, blocks_of(row), width, glyphs)


def _packed_line(rows: Sequence[SegmentRow], width: int, glyphs: Glyphs) -> Line:
    whole, active = sum(r.bytes for r in rows), sum(r.active_bytes for r in rows)
    used = 100 * active / whole if whole else 0
    words = f"{len(rows)} small"
    blocks = [block for row in rows for block in blocks_of(row)]
    return _line(f" {size(whole):>9} {used:3.0f} %  {words:11}  ", blocks, width, glyphs)


def _line(label: str, blocks: Sequence[_Block], width: int, glyphs: Glyphs) -> Line:
    return merged(((label, ""), *_picture(blocks, max(1, width - len(label) - 1), glyphs)))


def blocks_of(row: SegmentRow) -> list[_Block]:
    """What each stretch of a segment is; what an answer left out is shown as not told."""
    free = "graphs" if private(row) else "stuck" if is_stuck(row) else "returnable"
    keys = {"active": "live", "pending": "waiting", "inactive": free}
    blocks = [_Block(keys.get(state, "?"), max(0, bytes_)) for state, bytes_ in row.runs]
    rest = row.bytes - sum(block.bytes for block in blocks)
    return [*blocks, _Block("?", rest)] if rest > 0 else blocks


def _picture(blocks: Sequence[_Block], cells: int, glyphs: Glyphs) -> Line:
    """Each cell shows what fills most of its stretch of addresses."""
    whole = sum(block.bytes for block in blocks)
    if whole <= 0:
        return ()
    spans: list[Span] = []
    for key in _majorities(blocks, whole, cells):
        sign, role = sign_of(key, glyphs)
        spans.append((sign, role))
    return merged(spans)


def _majorities(blocks: Sequence[_Block], whole: int, cells: int) -> Iterable[str]:
    stretch = whole / cells
    number, left = 0, float(blocks[0].bytes)
    for _ in range(cells):
        room = stretch
        found: dict[str, float] = {}
        while room > 1e-6 and number < len(blocks):
            part = min(room, left)
            found[blocks[number].key] = found.get(blocks[number].key, 0.0) + part
            room, left = room - part, left - part
            if left <= 1e-6:
                number += 1
                left = float(blocks[number].bytes) if number < len(blocks) else 0.0
        yield max(found, key=lambda key: found[key]) if found else "?"
