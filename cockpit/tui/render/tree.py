"""Processes under their parents, as branches before each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cockpit.model.process import Process, Relative
from cockpit.tui.render.glyphs import Glyphs

Item = Process | Relative

_DEEPEST = 12
"""Levels that are drawn with their own indentation; shells in shells in tmux stay readable."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the tree."""

    item: Item
    branch: str


def tree_order(
    processes: Sequence[Process], relatives: Sequence[Relative], glyphs: Glyphs
) -> list[Entry]:
    """Depth first; siblings in the order of the processes, each item once, loops cut."""
    items = _items(processes, relatives)
    children: dict[int | None, list[Item]] = {}
    for item in items.values():
        parent = item.ppid if item.ppid in items and item.ppid != item.pid else None
        children.setdefault(parent, []).append(item)
    seen: set[int] = set()
    entries = list(_walk(children, None, "", glyphs, seen, 0))
    # What is in a loop of parents (a pid reused between two readings) hangs on no root.
    return entries + [Entry(item, "") for pid, item in items.items() if pid not in seen]


def _items(processes: Sequence[Process], relatives: Sequence[Relative]) -> dict[int, Item]:
    """Every parent stands where the first of its children stood."""
    parents = {relative.pid: relative for relative in relatives}
    items: dict[int, Item] = {}
    own = {process.pid for process in processes}
    for process in processes:
        for ancestor in _ancestors(process, parents):
            if ancestor.pid not in own:
                items.setdefault(ancestor.pid, ancestor)
        items[process.pid] = process
    return items


def _ancestors(process: Process, parents: dict[int, Relative]) -> list[Relative]:
    """Furthest first."""
    found: list[Relative] = []
    pid = process.ppid
    while pid is not None and pid in parents and len(found) < 64:
        found.append(parents[pid])
        pid = parents[pid].ppid
    return found[::-1]


def _walk(
    children: dict[int | None, list[Item]],
    parent: int | None,
    indent: str,
    glyphs: Glyphs,
    seen: set[int],
    depth: int,
) -> Iterator[Entry]:
    branch, last, passing, nothing = glyphs.tree
    siblings = children.get(parent, [])
    for number, item in enumerate(siblings):
        if item.pid in seen:
            continue
        seen.add(item.pid)
        final = number == len(siblings) - 1
        yield Entry(item, "" if depth == 0 else indent + (last if final else branch))
        below = (
            indent if depth == 0 or depth >= _DEEPEST else indent + (nothing if final else passing)
        )
        yield from _walk(children, item.pid, below, glyphs, seen, depth + 1)
