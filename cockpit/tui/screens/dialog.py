"""What every dialog shares."""

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
