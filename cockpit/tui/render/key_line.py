"""The last line of a page: which keys do something here."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.tui.line import Line, Span
from cockpit.tui.render.cells import foreign, merged, width_of
from cockpit.tui.render.glyphs import Glyphs

Hint = tuple[str, str]
"""Key as it is typed, and a word for what it does."""


def key_line(hints: Iterable[Hint], width: int, glyphs: Glyphs) -> Line:
    """As many hints as fit whole, the first ones first."""
    spans: list[Span] = []
    left = width
    for key, word in hints:
        needed = width_of(key) + width_of(word) + 3
        if needed > left:
            continue
        spans += [(" ", ""), (foreign(key), "accent"), (" ", ""), (foreign(word), "dim"), (" ", "")]
        left -= needed
    return glyphs.finish(merged(spans))


def key_lines(hints: Iterable[Hint], width: int, glyphs: Glyphs) -> list[Line]:
    """All hints, on as many lines as they need: for dialogs, where none may be missing."""
    lines: list[list[Hint]] = [[]]
    used = 0
    for key, word in hints:
        needed = width_of(key) + width_of(word) + 3
        if lines[-1] and used + needed > width:
            lines.append([])
            used = 0
        lines[-1].append((key, word))
        used += needed
    return [key_line(line, width, glyphs) for line in lines]
