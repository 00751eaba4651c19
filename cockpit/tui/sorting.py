"""The order of the process table: a key, a direction, and the patience not to jump each tick.

Moving values differ a little at every tick. Two rows change places only when the difference is
worth a look (see ``_PATIENCE``); an order that rests also costs a third of the bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cockpit.model.process import Process
from cockpit.model.text import GIB, clean_command

SortKey = Literal["vram", "sm", "cpu", "age", "pid", "user", "gpu", "command", "rss"]
SORT_KEYS: tuple[SortKey, ...] = (
    "vram",
    "sm",
    "cpu",
    "age",
    "pid",
    "user",
    "gpu",
    "command",
    "rss",
)
"""In the order in which the sort key walks through them."""

_Value = float | str | tuple[int, ...]

_PATIENCE: dict[SortKey, tuple[float, float]] = {
    "sm": (0.10, 3.0),
    "cpu": (0.10, 3.0),
    "vram": (0.02, 0.1 * GIB),
    "rss": (0.10, 0.1 * GIB),
}
"""Share and least difference of values that must be exceeded before rows change places."""

_ASCENDING = frozenset({"pid", "user", "gpu", "command"})


@dataclass(frozen=True, slots=True)
class Sort:
    """What the table is sorted by. ``reverse`` turns the key's natural direction round."""

    key: SortKey = "vram"
    reverse: bool = False

    @property
    def descending(self) -> bool:
        """Largest first: numbers do, names and pids do not."""
        return (self.key not in _ASCENDING) != self.reverse

    def next(self) -> Sort:
        """The next key, in its natural direction."""
        return Sort(SORT_KEYS[(SORT_KEYS.index(self.key) + 1) % len(SORT_KEYS)])


def identity(process: Process) -> Hashable:
    """What stays the same while the process lives: the key of its row."""
    return ("process", process.pid, process.start_ticks)


def sm_pct(process: Process) -> float | None:
    """Its SM share added up over its GPUs; None where the driver has no sample at all."""
    known = [use.sm_pct for use in process.devices if use.sm_pct is not None]
    return sum(known) if known else None


def ordered(
    processes: Iterable[Process], sort: Sort, previous: Sequence[Hashable] = ()
) -> list[Process]:
    """The processes in order; ``previous`` are the identities as they stood before.

    With the same processes, unknown values stand last in both directions and equal ones by pid.
    """
    value = _VALUES[sort.key]
    keyed = [(value(process), process) for process in processes]
    unknown = sorted((p for v, p in keyed if v is None), key=lambda p: p.pid)
    known = sorted((pair for pair in keyed if pair[0] is not None), key=lambda pair: pair[1].pid)
    known.sort(key=lambda pair: pair[0], reverse=sort.descending)  # type: ignore[arg-type,return-value]
    if previous and sort.key in _PATIENCE:
        return _patient(known, sort, previous) + unknown
    return [process for _, process in known] + unknown


def _patient(
    known: Sequence[tuple[object, Process]], sort: Sort, previous: Sequence[Hashable]
) -> list[Process]:
    """Insert in the previous order; a row passes those that it exceeds by more than the patience.

    ``lowest`` holds the running minimum from the top: the first place with a minimum below
    ``value - patience`` is where the row belongs, found by bisection.
    """
    share, least = _PATIENCE[sort.key]
    sign = 1.0 if sort.descending else -1.0
    place = {key: number for number, key in enumerate(previous)}
    rows = [(sign * v, p) for v, p in known if isinstance(v, int | float)]
    # Newcomers go last, so that they find their place among rows that stand already.
    rows.sort(key=lambda row: place.get(identity(row[1]), len(place)))
    lowest: list[float] = []  # negated: bisect wants it rising
    result: list[Process] = []
    for value, process in rows:
        at = bisect_right(lowest, max(least, share * abs(value)) - value)
        result.insert(at, process)
        lowest.insert(at, max(-value, lowest[at - 1]) if at else -value)
    return result


def _gpu(process: Process) -> tuple[int, ...] | None:
    return tuple(sorted({use.gpu for use in process.devices})) or None


def _started(process: Process) -> float | None:
    """Descending means oldest first, so the start counts backwards."""
    return None if process.start_ticks is None else -float(process.start_ticks)


_VALUES: dict[SortKey, Callable[[Process], _Value | None]] = {
    "vram": lambda process: process.vram_bytes,
    "sm": sm_pct,
    "cpu": lambda process: process.cpu_pct,
    "age": _started,
    "pid": lambda process: process.pid,
    "user": lambda process: process.user,
    "gpu": _gpu,
    "command": lambda process: clean_command(process.command, process.name).lower(),
    "rss": lambda process: process.rss_bytes,
}
