"""The process table: which columns, one line a process, and the tree of parents.

Rows are late (``line.LateRow``): a table of 500 processes draws only those that are on screen. The
order is :mod:`cockpit.tui.sorting`'s business.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cockpit.model.process import Process, Relative
from cockpit.tui.line import LateRow, LateRows, Line
from cockpit.tui.render.cells import merged, toned_down
from cockpit.tui.render.columns import Table, lay_out
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_columns import WIDE, Seen, process_columns
from cockpit.tui.render.process_words import is_idle
from cockpit.tui.render.tree import Entry, tree_order
from cockpit.tui.sorting import Sort, identity


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Everything about the table that is the same for all its rows."""

    table: Table[Seen]
    glyphs: Glyphs
    now_s: float | None = None
    """The moment of the snapshot, seconds since the epoch (``model.time.moment(taken_at)``)."""
    tagged: frozenset[Hashable] = frozenset()
    """Identities."""
    attached: frozenset[int] = frozenset()
    """Pids of attached runs."""
    stale: frozenset[int] = frozenset()
    """GPUs whose values are old, and with them those of processes that are on no other GPU."""
    wide: bool = False
    troubled: Mapping[int, str] = field(default_factory=dict)
    """Pid → short word of the finding about it (``finding_words.troubled``)."""


def process_table(
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    tagged: Iterable[Hashable] = (),
    attached: Iterable[int] = (),
    processes: Iterable[Process] = (),
    stale: Iterable[int] = (),
    troubled: Mapping[int, str] | None = None,
) -> ProcessTable:
    """Lay out the columns. ``processes`` decide which optional columns are worth their cells."""
    columns = process_columns(width, list(processes))
    table = lay_out(columns, width)
    return ProcessTable(
        table=table,
        glyphs=glyphs,
        now_s=now_s,
        tagged=frozenset(tagged),
        attached=frozenset(attached),
        stale=frozenset(stale),
        wide=width >= WIDE,
        troubled=troubled or {},
    )


def process_header(table: ProcessTable, sort: Sort | None = None) -> Line:
    """The titles, the sorted one marked with its direction."""
    if sort is None:
        return table.glyphs.finish(table.table.header())
    mark = table.glyphs.down if sort.descending else table.glyphs.up
    return table.glyphs.finish(table.table.header(sort.key, mark))


def process_row(table: ProcessTable, process: Process, branch: str = "") -> LateRow:
    """One process. ``branch`` is drawn before the command, in a tree."""
    return LateRow(identity(process), lambda: _process_line(table, process, branch))


def process_rows(
    table: ProcessTable, processes: Sequence[Process], identities: Sequence[Hashable] = ()
) -> LateRows:
    """One row each, in the order given; ``identities`` of them where they are known already."""
    keys = identities or [identity(process) for process in processes]
    return LateRows(keys, lambda at: _process_line(table, processes[at], ""))


def tree_rows(
    table: ProcessTable, processes: Sequence[Process], relatives: Sequence[Relative]
) -> list[LateRow]:
    """All processes under their parents; siblings stay in the order given."""
    return [_tree_row(table, entry) for entry in tree_order(processes, relatives, table.glyphs)]


def _process_line(table: ProcessTable, process: Process, branch: str) -> Line:
    tagged = identity(process) in table.tagged
    word = table.troubled.get(process.pid, "")
    mark = _mark_of(table, process, tagged)
    seen = Seen(process, table.now_s, mark, branch, table.wide, word)
    line = table.table.row(seen)
    if tagged:
        line = merged((text, "tag") for text, _ in line)
    elif _is_secondary(table, process):
        line = toned_down(line)
    return table.glyphs.finish(line)


def _is_secondary(table: ProcessTable, process: Process) -> bool:
    """Old, idle, or not ours to see: dim."""
    if process.devices and all(use.gpu in table.stale for use in process.devices):
        return True
    if not process.visible:
        return True
    return is_idle(process) and process.stray is None and process.pid not in table.troubled


def _tree_row(table: ProcessTable, entry: Entry) -> LateRow:
    item = entry.item
    if isinstance(item, Process):
        return process_row(table, item, entry.branch)
    return LateRow(("relative", item.pid), lambda: _relative_line(table, item, entry.branch))


def _relative_line(table: ProcessTable, relative: Relative, branch: str) -> Line:
    stand_in = Process(
        pid=relative.pid, user=relative.user, command=relative.command, name=relative.name
    )
    line = table.table.row(Seen(stand_in, None, "", branch, table.wide))
    return table.glyphs.finish(_without_dashes(line))


def _without_dashes(line: Line) -> Line:
    """A parent that holds no GPU has nothing to be unknown."""
    return merged((text.replace("–", " "), "dim") for text, _ in line)


def _mark_of(table: ProcessTable, process: Process, tagged: bool) -> str:
    """``•`` tagged, ``!`` stray or named by a finding, ``a`` attached, or nothing."""
    if tagged:
        return "•"
    if process.stray is not None or process.pid in table.troubled:
        return "!"
    return "a" if process.pid in table.attached else ""
