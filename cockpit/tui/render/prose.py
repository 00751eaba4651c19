"""Prose on a page of a finding: paragraphs, headings, and text beside a label."""

from __future__ import annotations

from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import pad, wrapped


def paragraph(text: str, width: int, role: Role = "") -> list[Line]:
    """Clean text, wrapped, one cell of margin at each side."""
    return [((f" {part}", role),) for part in wrapped(text, max(8, width - 2))]


def heading(words: str) -> Line:
    """Over a part of the page."""
    return ((f" {words}", "label"),)


def labelled(label: str, text: str, left: int, width: int, role: Role = "") -> list[Line]:
    """``   label  text``, the text wrapped under itself."""
    parts = wrapped(text, max(8, width - left - 6))
    first: Line = ((f"   {pad(label, left)}  ", "dim"), (parts[0], role))
    return [first, *(((" " * (left + 5), ""), (part, role)) for part in parts[1:])]
