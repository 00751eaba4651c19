"""What widgets tell their screen. Telemetry does not travel by these; screens pass it down."""

from __future__ import annotations

from collections.abc import Hashable

from textual.message import Message
from textual.widget import Widget


class _RowMessage(Message):
    def __init__(self, view: Widget, key: Hashable) -> None:
        super().__init__()
        self.view = view
        """The list that the row is in."""
        self.key = key
        """``Row.key`` of the row."""

    @property
    def control(self) -> Widget:
        """Lets handlers choose by selector: ``@on(RowChosen, "#processes")``."""
        return self.view


class RowChosen(_RowMessage):
    """Enter or a double click on a row: the user asks for its details."""


class RowHighlighted(_RowMessage):
    """The cursor is on another row. Only the newest matters, so a waiting one is replaced."""

    def can_replace(self, message: Message) -> bool:
        """True for a waiting message of the same list."""
        return isinstance(message, RowHighlighted) and message.view is self.view


class HeaderClicked(Message):
    """A click on the heading of a list."""

    def __init__(self, view: Widget, x: int) -> None:
        super().__init__()
        self.view = view
        self.x = x
        """Column of the terminal within the list."""

    @property
    def control(self) -> Widget:
        """Lets handlers choose by selector."""
        return self.view


class FilterTyped(Message):
    """The filter's text has changed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class FilterClosed(Message):
    """The filter line is closed; the filter stays (enter) or is given up (esc)."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.keep = keep
