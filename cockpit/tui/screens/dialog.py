"""What every dialog shares."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from cockpit.tui.line import Line

_WIDEST = 132
_EDGE = 4
"""Columns that border and padding of the dialog take."""
_FRAME = 2
"""Lines that the border takes."""


def text_width(columns: int) -> int:
    """Columns of text in a dialog on a screen of ``columns`` (cockpit.tcss says the same)."""
    return min(_WIDEST, columns * 9 // 10) - _EDGE


def body_height(lines: int, screen: int, keys: Callable[[bool], list[Line]], below: int = 1) -> int:
    """Lines of the body: all of them, or what the screen leaves beside the frame, the ``below``
    lines between body and keys, and the keys that are needed then: ``keys(fits)``.

    Reckoned, not laid out: the keys say "see the rest first" in the same frame as the text.
    """
    if lines <= screen - _FRAME - below - len(keys(True)):
        return max(1, lines)
    return max(1, min(lines, screen - _FRAME - below - len(keys(False))))


def keys_of(dialog: Screen[bool], *ids: str) -> str:
    """The first key of each of these bindings as bound now; a remapped key shows itself."""
    bound: dict[str, str] = {}
    for one in dialog.active_bindings.values():
        if one.binding.id in ids:
            bound.setdefault(one.binding.id or "", dialog.app.get_key_display(one.binding))
    return " ".join(bound[id_] for id_ in ids if id_ in bound)
