"""What every dialog shares."""

_WIDEST = 100
_EDGE = 4
"""Columns that border and padding of the dialog take."""


def text_width(columns: int) -> int:
    """Columns of text in a dialog on a screen of ``columns`` (cockpit.tcss says the same)."""
    return min(_WIDEST, columns * 9 // 10) - _EDGE
