"""Unified diffs as lines to show: two texts in, lines without line ends out."""

from __future__ import annotations

import difflib
import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as Python's tokenizer sees it; ``str.splitlines`` also breaks at form feeds."""
_NO_END = "\\ No newline at end of file"


def lines_of(text: str) -> list[str]:
    """Its lines with their ends."""
    return _LINE.findall(text)


def unified(old: str, new: str, before: str, after: str, context: int = 3) -> tuple[str, ...]:
    """The changes from one text to the other; empty when they are equal.

    A changed line end shows as ``\\r`` left in the line: clean it before it is shown.
    """
    found: list[str] = []
    lines = difflib.unified_diff(
        lines_of(old), lines_of(new), before, after, n=context, lineterm=""
    )
    for line in lines:
        is_content = line[:1] in (" ", "+", "-") and not line.startswith(("--- ", "+++ "))
        found.append(_without_end(line))
        if is_content and not line.endswith(("\n", "\r")):
            found.append(_NO_END)
    return tuple(found)


def changed_lines(diff: tuple[str, ...]) -> int:
    """How many lines of the new text differ (or were taken out, if none is new)."""
    added = sum(1 for line in diff if line.startswith("+") and not line.startswith("+++ "))
    return added or sum(1 for line in diff if line.startswith("-") and not line.startswith("--- "))


def _without_end(line: str) -> str:
    return line[:-1] if line.endswith(("\n", "\r")) else line
