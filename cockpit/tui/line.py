"""The one currency between renderers and widgets: a line is a tuple of (text, style role).

Plain tuples, because comparing them with those of the last tick is how a widget finds out which
lines changed. Text in a Line is clean already (``model.text.clean``) and holds no line end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol, overload

Role = Literal[
    "",  # plain text
    "dim",  # known to be old, idle or secondary
    "label",  # headings of columns, names of fields
    "title",  # the first line of a page
    "accent",  # what can be pressed, what is chosen
    "good",
    "warn",  # a threshold was passed
    "error",  # needs somebody
    "removed",  # a line that a change takes away: a colour alone, its sign says it as well
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


class LateRows(Sequence[AnyRow]):
    """Rows of which only those that are looked at are made at all. Immutable."""

    def __init__(self, keys: Sequence[Hashable], make: Callable[[int], Line]) -> None:
        """``make`` gives the line at a place."""
        self._keys = keys
        self._make = make
        self._made: dict[int, LateRow] = {}

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, at: int) -> LateRow: ...

    @overload
    def __getitem__(self, at: slice) -> list[LateRow]: ...

    def __getitem__(self, at: int | slice) -> LateRow | list[LateRow]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self._keys)))]
        row = self._made.get(at)
        if row is None:
            key = self._keys[at]  # IndexError ends an iteration
            row = self._made[at] = LateRow(key, partial(self._make, at))
        return row


def plain(line: Line) -> str:
    """The text alone."""
    return "".join(text for text, _ in line)
