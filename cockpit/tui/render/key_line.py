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
