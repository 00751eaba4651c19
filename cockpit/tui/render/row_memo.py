"""The process table drawn again and again: rows of processes that did not change are kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from cockpit.model.process import Process, Relative
from cockpit.tui.line import Row
from cockpit.tui.render.columns import Table
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_columns import Seen
from cockpit.tui.render.process_rows import ProcessTable, mark_of, process_row, tree_row
from cockpit.tui.render.times import age, seconds_since
from cockpit.tui.render.tree import Entry, tree_order
from cockpit.tui.sorting import identity

_Kept = tuple[Process, tuple[str, str, str], Row]


class RowMemo:
    """Held by the screen. A row costs 20 µs, and on a shared machine most of 500 processes rest."""

    def __init__(self) -> None:
        self._table: Table[Seen] | None = None
        self._glyphs: Glyphs | None = None
        self._kept: dict[Hashable, _Kept] = {}

    def rows(self, table: ProcessTable, processes: Sequence[Process]) -> list[Row]:
        """As :func:`process_rows`."""
        return self._rows(table, [Entry(process, "") for process in processes])

    def tree(
        self, table: ProcessTable, processes: Sequence[Process], relatives: Sequence[Relative]
    ) -> list[Row]:
        """As :func:`tree_rows`."""
        return self._rows(table, tree_order(processes, relatives, table.glyphs))

    def _rows(self, table: ProcessTable, entries: Sequence[Entry]) -> list[Row]:
        if table.table != self._table or table.glyphs != self._glyphs:
            self._table, self._glyphs, self._kept = table.table, table.glyphs, {}
        before, self._kept = self._kept, {}
        return [self._row(table, entry, before) for entry in entries]

    def _row(
        self,
        table: ProcessTable,
        entry: Entry,
        before: Mapping[Hashable, _Kept],
    ) -> Row:
        process = entry.item
        if not isinstance(process, Process):
            return tree_row(table, entry)
        key = identity(process)
        since = age(seconds_since(process.started_at, table.now_s))
        besides = (since, entry.branch, mark_of(table, process, key in table.tagged))
        kept = before.get(key)
        if kept is None or kept[1] != besides or kept[0] != process:
            kept = (process, besides, process_row(table, process, entry.branch))
        self._kept[key] = kept
        return kept[2]
