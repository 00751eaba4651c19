"""The one currency between renderers and widgets: a line is a tuple of (text, style role).

Plain tuples, because comparing them with those of the last tick is how a widget finds out which
lines changed. Text in a Line is clean already (``model.text.clean``) and holds no line end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple, Protocol

Role = Literal[
    "",  # plain text
    "dim",  # known to be old, idle or secondary
    "label",  # headings of columns, names of fields
    "title",  # the first line of a page
    "accent",  # what can be pressed, what is chosen
    "good",
    "warn",  # a threshold was passed
    "error",  # needs somebody
    "bar",  # filled part of a bar, a trace
    "bar2",  # second colour of a bar, a second trace
    "bar3",
    "bar4",
    "tag",  # a tagged row
    "strong",  # plain, bold
]
"""What a piece of text means; the theme turns it into a style."""

Span = tuple[str, Role]
Line = tuple[Span, ...]


class Row(NamedTuple):
    """A line with an identity: the cursor stays on the key when rows move."""

    key: Hashable
    line: Line


class AnyRow(Protocol):
    """What a list shows: a Row, or a LateRow where there may be hundreds."""

    @property
    def key(self) -> Hashable:
        """Its identity."""

    @property
    def line(self) -> Line:
        """What it shows."""


class LateRow:
    """A row whose line is made when it is first looked at: of 500 rows some 30 are on screen."""

    __slots__ = ("_line", "_make", "key")

    def __init__(self, key: Hashable, make: Callable[[], Line]) -> None:
        self.key = key
        self._make = make
        self._line: Line | None = None

    @property
    def line(self) -> Line:
        """Made once."""
        if self._line is None:
            self._line = self._make()
        return self._line


def plain(line: Line) -> str:
    """The text alone."""
    return "".join(text for text, _ in line)
