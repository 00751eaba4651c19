"""Rows as aligned text for stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len

T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    """Heading, and how a row's text is made; the text is clean already."""

    title: str
    text: Callable[[T], str]
    right: bool = False


def layout(columns: Sequence[Column[T]], rows: Iterable[T]) -> list[str]:
    """Heading and rows, each column as wide as its widest text; the last one is not padded."""
    table = [[column.title for column in columns]]
    table += [[column.text(row) for column in columns] for row in rows]
    widths = [max(cell_len(line[i]) for line in table) for i in range(len(columns))]
    return [
        "  ".join(
            _pad(text, width, column.right)
            for text, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in table
    ]


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
