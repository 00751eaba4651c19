"""What every dialog shares."""

from __future__ import annotations

from textual.screen import Screen

_WIDEST = 132
_EDGE = 4
"""Columns that border and padding of the dialog take."""
_FRAME = 2
"""Lines that the border takes."""


def text_width(columns: int) -> int:
    """Columns of text in a dialog on a screen of ``columns`` (cockpit.tcss says the same)."""
    return min(_WIDEST, columns * 9 // 10) - _EDGE


def body_height(lines: int, screen: int, below: int) -> int:
    """Lines of the body: all of them, or what the screen leaves beside frame and those ``below``.

    Reckoned, not laid out: the keys say "see the rest first" in the same frame as the text.
    """
    return max(1, min(lines, screen - _FRAME - below))


def keys_of(dialog: Screen[bool], *ids: str) -> str:
    """The first key of each of these bindings as bound now; a remapped key shows itself."""
    bound: dict[str, str] = {}
    for one in dialog.active_bindings.values():
        if one.binding.id in ids:
            bound.setdefault(one.binding.id or "", dialog.app.get_key_display(one.binding))
    return " ".join(bound[id_] for id_ in ids if id_ in bound)
