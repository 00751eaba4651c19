"""Numbers of GPUs, short."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,5``: sorted, without repetition, neighbours as a range."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    while ordered:
        run = 1
        while run < len(ordered) and ordered[run] == ordered[0] + run:
            run += 1
        parts.append(f"{ordered[0]}-{ordered[run - 1]}" if run > 1 else str(ordered[0]))
        del ordered[:run]
    return ",".join(parts)
