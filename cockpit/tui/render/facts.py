"""Names and values in blocks, and blocks in as many columns as the width allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, line_width, merged, pad, pad_line
from cockpit.tui.render.gaps import gap_words

LABEL = 17
_NARROW = 38


class Fact(NamedTuple):
    """One name with its value. ``field`` names the gap that explains a value of None."""

    label: str
    value: str | None
    field: str = ""
    role: Role = ""
    aside: str = ""
    """A dim word behind the value."""


class Block(NamedTuple):
    """A heading with its facts."""

    title: str
    facts: Sequence[Fact]


def fact_line(fact: Fact, gaps: Mapping[str, str], width: int, stale: bool = False) -> Line:
    """One line; a value that is not known shows its reason instead."""
    label = (f" {pad(foreign(fact.label), LABEL)} ", "label")
    room = width - LABEL - 2
    if fact.value is None:
        reason = gap_words(gaps.get(fact.field), room - 2)
        return fit_line((label, (f"– {reason}", "dim")), width)  # type: ignore[arg-type]
    role: Role = "dim" if stale and not fact.role else fact.role
    line: Line = merged(((label[0], "label"), (foreign(fact.value), role)))
    if fact.aside and line_width(line) + 2 + len(fact.aside) < width:  # whole or not at all
        line = merged((*line, (f"  {foreign(fact.aside)}", "dim")))
    return fit_line(line, width)


def block_lines(
    block: Block, gaps: Mapping[str, str], width: int, stale: bool = False
) -> list[Line]:
    """The heading and its facts."""
    title: Line = ((f" {block.title}", "strong"),)
    return [fit_line(title, width), *(fact_line(f, gaps, width, stale) for f in block.facts)]


def in_columns(
    blocks: Sequence[Sequence[Line]], width: int, most: int = 3, least: int = _NARROW
) -> list[Line]:
    """Blocks in up to ``most`` columns, each of ``least`` cells or more; their order is kept."""
    count = max(1, min(most, width // least))
    each = (width - count + 1) // count
    piles = _piles(blocks, count)
    height = max((len(pile) for pile in piles), default=0)
    lines: list[Line] = []
    for number in range(height):
        spans: list[tuple[str, Role]] = []
        for place, pile in enumerate(piles):
            part = pile[number] if number < len(pile) else ()
            last = place == len(piles) - 1
            spans += fit_line(part, each) if last else (*pad_line(part, each), (" ", ""))
        lines.append(_stripped(merged(spans)))
    return lines


def column_width(width: int, most: int = 3, least: int = _NARROW) -> int:
    """The width of one column of :func:`in_columns`."""
    count = max(1, min(most, width // least))
    return (width - count + 1) // count


def _piles(blocks: Sequence[Sequence[Line]], count: int) -> list[list[Line]]:
    """The lowest height that fits all blocks into ``count`` columns, order kept."""
    total = sum(len(block) + 1 for block in blocks)
    for height in range(-(-total // count), total + 1):
        piles = _filled(blocks, height)
        if len(piles) <= count:
            return piles
    return _filled(blocks, total)


def _filled(blocks: Sequence[Sequence[Line]], height: int) -> list[list[Line]]:
    piles: list[list[Line]] = [[]]
    for block in blocks:
        if piles[-1] and len(piles[-1]) + len(block) + 1 > height:
            piles.append([])
        piles[-1] += [*([()] if piles[-1] else []), *block]
    return piles


def _stripped(line: Line) -> Line:
    while line and not line[-1][0].strip():
        line = line[:-1]
    return line if line_width(line) else ()
