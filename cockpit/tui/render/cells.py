"""Text measured in terminal cells: crop, pad, join, wrap. What knows nothing of GPUs.

A Line that leaves this package holds no control character and is never wider than it was asked to
be; :func:`foreign` and :func:`fit_line` are the two places that see to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import wrap as _wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size

from cockpit.model.text import clean
from cockpit.tui.line import Line, Role, Span

Align = Literal["left", "right"]

# Zero-width leftovers that ``clean`` lets through; terminals disagree about the cells that a
# variation selector or a tag character adds, and a row that disagrees is a broken row.
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0"
    r"\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def foreign(text: str) -> str:
    """Text from outside without anything that a terminal would obey or measure differently."""
    cleaned = clean(text)
    return cleaned if cleaned.isascii() else _INVISIBLE.sub("", cleaned)


def width_of(text: str) -> int:
    """Cells that the text takes."""
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Line) -> int:
    """Cells that the line takes."""
    return sum(width_of(text) for text, _ in line)


def crop(text: str, width: int) -> str:
    """The text in at most ``width`` cells, with ``…`` where something was cut off."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    # A 4,000 character name need not be measured whole: no character is wider than two cells.
    return set_cell_size(text[: width * 8], width - 1).rstrip() + "…"


def pad(text: str, width: int, align: Align = "left") -> str:
    """The text in exactly ``width`` cells, cropped where it is too long."""
    text = crop(text, width)
    blank = " " * (width - width_of(text))
    return blank + text if align == "right" else text + blank


def merged(spans: Iterable[Span]) -> Line:
    """Neighbours of one role joined, empty ones left out: fewer styles, fewer bytes."""
    joined: list[Span] = []
    last = ""
    last_role: Role = ""
    for text, role in spans:
        if role == last_role or not last:
            last += text
            last_role = role if text else last_role
        elif text:
            joined.append((last, last_role))
            last, last_role = text, role
    if last:
        joined.append((last, last_role))
    return tuple(joined)


def fit_line(line: Line, width: int) -> Line:
    """The line in at most ``width`` cells; the span that crosses the border is cropped."""
    if line_width(line) <= width:
        return line
    kept: list[Span] = []
    for text, role in line:
        part = crop(text, width)
        kept.append((part, role))
        width -= width_of(part)
        if part != text or width <= 0:
            break
    return merged(kept)


def pad_line(line: Line, width: int, align: Align = "left") -> Line:
    """The line in exactly ``width`` cells."""
    line = fit_line(line, width)
    blank: Span = (" " * (width - line_width(line)), "")
    return merged((blank, *line) if align == "right" else (*line, blank))


def toned_down(line: Line, keep: frozenset[Role] = frozenset({"warn", "error"})) -> Line:
    """The whole line dim, except where it warns."""
    return merged((text, role if role in keep else "dim") for text, role in line)


def join(parts: Iterable[Line], separator: str = "  ") -> Line:
    """Lines one after the other with a separator between those that are not empty."""
    spans: list[Span] = []
    for part in parts:
        if part:
            spans += [(separator, "dim" if separator.strip() else ""), *part] if spans else part
    return merged(spans)


def ends(left: Line, right: Line, width: int) -> Line:
    """One line with a part at each end; the left one is cropped first."""
    right = fit_line(right, width)
    room = width - line_width(right)
    return merged((*pad_line(left, room), *right))


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` cells, broken at spaces where there are any."""
    if width <= 0:
        return []
    if text.isascii():
        return _wrap(text, width, break_on_hyphens=False) or [""]
    lines: list[str] = [""]
    for word in text.split():
        lines[-1:] = _placed(lines[-1], word, width)
    return [line for line in lines if line] or [""]


def _placed(line: str, word: str, width: int) -> list[str]:
    """The line with the word after it, on as many lines as that needs."""
    together = f"{line} {word}" if line else word
    if width_of(together) <= width:
        return [together]
    lines = [line] if line else []
    piece = ""
    for char in word:
        if piece and width_of(piece + char) > width:
            lines.append(piece)
            piece = ""
        piece += char if width_of(char) <= width else "?"
    return [*lines, piece]
