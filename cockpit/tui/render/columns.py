"""A small generic table: columns with widths and priorities, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cockpit.tui.line import Line, Role, Span
from cockpit.tui.render.cells import Align, crop, fit_line, line_width, merged, pad

T = TypeVar("T")

REST = 10_000
"""``grow`` of the column that takes what is left."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column. ``cell(item, width)`` gives the content for the width that was laid out."""

    title: str
    width: int
    cell: Callable[[T, int], Line]
    align: Align = "right"
    priority: int = 0
    """Columns of a higher number are dropped first."""
    gap: int = 1
    """Blank cells before it."""
    grow: int = 0
    """How many more cells it can use where there is room."""
    name: str = ""
    """What sorting calls it; empty: nobody sorts by it."""
    needs: str = ""
    """The field that some row must know; the owner of the columns leaves it out otherwise."""


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """Columns with their final widths."""

    columns: tuple[tuple[Column[T], int], ...]
    width: int

    def header(self, marked: str = "", mark: str = "") -> Line:
        """The titles; the one of the column named ``marked`` carries ``mark`` (its direction)."""
        spans: list[Span] = []
        for column, width in self.columns:
            chosen = bool(marked) and column.name == marked
            title = _title(column.title, mark if chosen else "", width)
            spans.append((" " * column.gap + pad(title, width, column.align), _tone(chosen)))
        return fit_line(merged(spans), self.width)

    def name_at(self, x: int) -> str:
        """What sorting calls the column at this cell; empty where there is none."""
        for column, width in self.columns:
            x -= column.gap + width
            if x < 0:
                return column.name
        return ""

    def row(self, item: T) -> Line:
        """One line of exactly the laid-out cells, without blanks at its end."""
        spans: list[Span] = []
        for column, width in self.columns:
            content = column.cell(item, width)
            room = width - line_width(content)
            if room < 0:
                content = fit_line(content, width)
                room = width - line_width(content)
            if column.align == "right":
                spans += ((" " * (column.gap + room), ""), *content)
            else:
                spans += ((" " * column.gap, ""), *content, (" " * room, ""))
        return _stripped(merged(spans))


def _title(title: str, mark: str, width: int) -> str:
    return crop(title, width - len(mark)) + mark


def _tone(chosen: bool) -> Role:
    return "accent" if chosen else "label"


def _stripped(line: Line) -> Line:
    """Without blanks at the end: the widget fills the row, and they need no comparing."""
    if line and line[-1][0].isspace():
        line = line[:-1]
    if not line:
        return line
    text, role = line[-1]
    return (*line[:-1], (text.rstrip(), role))


def lay_out(columns: Sequence[Column[T]], width: int) -> Table[T]:
    """Choose the columns that fit (lowest priority first), then give away what is left."""
    kept = _kept(columns, width)
    spare = width - sum(column.gap + column.width for column in kept)
    widths = _widths(kept, spare)
    return Table(tuple(zip(kept, widths, strict=True)), width)


def _kept(columns: Sequence[Column[T]], width: int) -> list[Column[T]]:
    chosen: set[int] = set()
    for number in sorted(range(len(columns)), key=lambda n: columns[n].priority):
        needed = columns[number].gap + columns[number].width
        if needed <= width:
            chosen.add(number)
            width -= needed
    return [column for number, column in enumerate(columns) if number in chosen]


def _widths(columns: Iterable[Column[T]], spare: int) -> list[int]:
    """Limited growers first, in their order; REST takes what they leave."""
    columns = list(columns)
    widths = [column.width for column in columns]
    for number in sorted(range(len(columns)), key=lambda n: columns[n].grow >= REST):
        extra = min(columns[number].grow, spare)
        widths[number] += extra
        spare -= extra
    return widths
