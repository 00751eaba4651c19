"""A line as the strip that Textual draws."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from cockpit.model.text import clean
from cockpit.tui.line import Line, Role


def to_strip(line: Line, width: int, styles: dict[Role, Style]) -> Strip:
    """The line at exactly this width, neighbours of one style merged, control characters shown."""
    parts: list[tuple[str, Style]] = []
    left = width
    for text, role in line:
        if not text.isprintable():
            text = clean(text)  # renderers clean already; this is the last door before the screen
        cells = len(text) if text.isascii() else cell_len(text)
        if cells > left:
            text, cells = set_cell_size(text, left), left
        left -= cells
        _append(parts, text, styles[role])
        if not left:
            break
    _append(parts, " " * left, styles[""])
    return Strip([Segment(text, style) for text, style in parts], width)


def _append(parts: list[tuple[str, Style]], text: str, style: Style) -> None:
    if parts and parts[-1][1] == style:
        parts[-1] = (parts[-1][0] + text, style)
    elif text:
        parts.append((text, style))
