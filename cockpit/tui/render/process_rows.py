"""The process table: which columns, one line a process, and the tree of parents.

Rows are drawn one by one (:func:`process_row`), so that a table of 500 processes draws only those
that are on screen. The order is :mod:`cockpit.tui.sorting`'s business.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cockpit.model.process import Process, Relative
from cockpit.model.text import GIB, MIB
from cockpit.tui.line import Line, Role, Row
from cockpit.tui.render.cells import foreign, merged, toned_down
from cockpit.tui.render.columns import REST, Column, Table, lay_out
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_words import (
    STATE_SHORT,
    command_words,
    gpus_words,
    hidden_words,
    is_idle,
    place_words,
    stray_words,
)
from cockpit.tui.render.times import age, seconds_since
from cockpit.tui.render.tree import Entry, tree_order
from cockpit.tui.sorting import Sort, identity, sm_pct


@dataclass(frozen=True, slots=True)
class Seen:
    """One process as the cells see it."""

    process: Process
    now_s: float | None
    mark: str
    branch: str
    wide: bool
    """The rank has a column of its own."""


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Everything about the table that is the same for all its rows."""

    table: Table[Seen]
    glyphs: Glyphs
    now_s: float | None = None
    """The moment of the snapshot, seconds since the epoch (``times.moment(taken_at)``)."""
    tagged: frozenset[Hashable] = frozenset()
    """Identities."""
    attached: frozenset[int] = frozenset()
    """Pids of attached runs."""
    wide: bool = False


WIDE = 110
"""From this width on, rank, place and memory have columns of their own."""


def process_table(
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    tagged: Iterable[Hashable] = (),
    attached: Iterable[int] = (),
    processes: Iterable[Process] = (),
) -> ProcessTable:
    """Lay out the columns. ``processes`` decide which optional columns are worth their cells."""
    columns = _columns(width, list(processes))
    table = lay_out(columns, width)
    return ProcessTable(table, glyphs, now_s, frozenset(tagged), frozenset(attached), width >= WIDE)


def process_header(table: ProcessTable, sort: Sort | None = None) -> Line:
    """The titles, the sorted one marked with its direction."""
    if sort is None:
        return table.glyphs.finish(table.table.header())
    mark = table.glyphs.down if sort.descending else table.glyphs.up
    return table.glyphs.finish(table.table.header(sort.key, mark))


def process_row(table: ProcessTable, process: Process, branch: str = "") -> Row:
    """One process. ``branch`` is drawn before the command, in a tree."""
    key = identity(process)
    tagged = key in table.tagged
    seen = Seen(process, table.now_s, _mark(table, process, tagged), branch, table.wide)
    line = table.table.row(seen)
    if tagged:
        line = merged((text, "tag") for text, _ in line)
    elif not process.visible or (is_idle(process) and process.stray is None):
        line = toned_down(line)
    return Row(key, table.glyphs.finish(line))


def process_rows(table: ProcessTable, processes: Sequence[Process]) -> list[Row]:
    """One row each, in the order given. Pass the visible slice."""
    return [process_row(table, process) for process in processes]


class RowMemo:
    """Draws a table again and again; rows of processes that did not change are kept.

    A row costs 25 µs, and on a shared machine most of 500 processes rest. Held by the screen.
    """

    def __init__(self) -> None:
        self._table: Table[Seen] | None = None
        self._glyphs: Glyphs | None = None
        self._kept: dict[Hashable, tuple[Process, tuple[str, str, str], Row]] = {}

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
        before: Mapping[Hashable, tuple[Process, tuple[str, str, str], Row]],
    ) -> Row:
        process = entry.item
        if not isinstance(process, Process):
            return tree_row(table, entry)
        key = identity(process)
        since = age(seconds_since(process.started_at, table.now_s))
        besides = (since, entry.branch, _mark(table, process, key in table.tagged))
        kept = before.get(key)
        if kept is None or kept[1] != besides or kept[0] != process:
            kept = (process, besides, process_row(table, process, entry.branch))
        self._kept[key] = kept
        return kept[2]


def tree_rows(
    table: ProcessTable, processes: Sequence[Process], relatives: Sequence[Relative]
) -> list[Row]:
    """All processes under their parents; siblings stay in the order given."""
    return [tree_row(table, entry) for entry in tree_order(processes, relatives, table.glyphs)]


def tree_row(table: ProcessTable, entry: Entry) -> Row:
    """One line of the tree, for widgets that draw only what is on screen."""
    if isinstance(entry.item, Process):
        return process_row(table, entry.item, entry.branch)
    stand_in = Process(
        pid=entry.item.pid,
        user=entry.item.user,
        command=entry.item.command,
        name=entry.item.name,
    )
    seen = Seen(stand_in, None, "", entry.branch, table.wide)
    line = table.table.row(seen)
    return Row(("relative", entry.item.pid), table.glyphs.finish(_without_dashes(line)))


def _without_dashes(line: Line) -> Line:
    """A parent that holds no GPU has nothing to be unknown."""
    return merged((text.replace("–", " "), "dim") for text, _ in line)


def _mark(table: ProcessTable, process: Process, tagged: bool) -> str:
    if tagged:
        return "•"
    if process.stray is not None:
        return "!"
    return "a" if process.pid in table.attached else ""


# -- columns


def _columns(width: int, processes: Sequence[Process]) -> list[Column[Seen]]:
    wide = width >= WIDE
    users = max((len(process.user or "") for process in processes), default=0)
    gpus = max((len(gpus_words(process)) for process in processes), default=0)
    more_user, more_gpu = (min(4, max(0, users - 8)), min(7, max(0, gpus - 5))) if wide else (0, 0)
    columns = [
        Column("", 1, _mark_cell, "left"),
        Column("PID", 7, _pid, name="pid"),
        Column("USER", 8, _user, "left", 3, grow=more_user, name="user"),
        Column("GPU", 5, _gpu, "left", 1, grow=more_gpu, name="gpu"),
        Column("VRAM", 7, _vram, priority=0, name="vram"),
        Column("SM%", 4, _sm, priority=2, name="sm"),
        Column("CPU%", 5, _cpu, priority=4, name="cpu"),
        Column("AGE", 5, _age, priority=5, name="age"),
        Column("COMMAND", 30 if wide else 8, _command, "left", gap=2, grow=REST, name="command"),
    ]
    if wide:
        columns[8:8] = _wide_columns(processes)
    return columns


def _wide_columns(processes: Sequence[Process]) -> list[Column[Seen]]:
    """Rank and place only where somebody has one."""
    columns = [Column("RSS", 7, _rss, priority=6, name="rss")]
    columns.append(Column("STATE", 6, _state, "left", 7, gap=2))
    if any(process.rank is not None for process in processes):
        columns.append(Column("RANK", 5, _rank_cell, priority=6))
    places = [place_words(process) for process in processes]
    longest = max(map(len, places), default=0)
    if longest:
        least = min(max(longest, 5), 14)
        more = min(longest, 30) - least
        columns.append(Column("WHERE", least, _where, "left", 8, gap=2, grow=max(0, more)))
    return columns


def _text(text: str, role: Role = "") -> Line:
    return ((text, role),)


def _mark_cell(seen: Seen, _: int) -> Line:
    return _text(seen.mark, "warn" if seen.mark == "!" else "accent")


def _pid(seen: Seen, _: int) -> Line:
    return _text(str(seen.process.pid))


def _user(seen: Seen, _: int) -> Line:
    process = seen.process
    if process.user is not None:
        return _text(foreign(process.user))
    return _text("–" if process.uid is None else str(process.uid))


def _gpu(seen: Seen, _: int) -> Line:
    return _text(gpus_words(seen.process))


def _vram(seen: Seen, _: int) -> Line:
    return _text(short_size(seen.process.vram_bytes))


def short_size(size_bytes: int | None) -> str:
    """``14.1G``, ``512M``: at most seven cells."""
    if size_bytes is None:
        return "–"
    if size_bytes >= 0.95 * GIB:
        return f"{size_bytes / GIB:.1f}G"
    return f"{size_bytes / MIB:.0f}M"


def _sm(seen: Seen, _: int) -> Line:
    value = sm_pct(seen.process)
    return _text("–" if value is None else f"{value:.0f}")


def _cpu(seen: Seen, _: int) -> Line:
    value = seen.process.cpu_pct
    return _text("–" if value is None else f"{value:.0f}")


def _age(seen: Seen, _: int) -> Line:
    return _text(age(seconds_since(seen.process.started_at, seen.now_s)))


def _rss(seen: Seen, _: int) -> Line:
    return _text(short_size(seen.process.rss_bytes))


def _state(seen: Seen, _: int) -> Line:
    state = seen.process.state or ""
    if state == "Z" or state == "D":
        return _text(STATE_SHORT[state], "warn")
    if is_idle(seen.process):
        return _text("idle", "dim")
    return _text(STATE_SHORT.get(state, foreign(state) or "–"))


def _rank_cell(seen: Seen, _: int) -> Line:
    rank, world = seen.process.rank, seen.process.world_size
    if rank is None:
        return _text("–", "dim")
    return merged(((str(rank), ""), ("" if world is None else f"/{world}", "dim")))


def _where(seen: Seen, _: int) -> Line:
    return _text(place_words(seen.process))


def _command(seen: Seen, _: int) -> Line:
    process = seen.process
    branch: Line = _text(seen.branch, "dim") if seen.branch else ()
    if not process.visible and not process.command:
        return merged((*branch, (hidden_words(process), "dim")))
    words = _text(command_words(process, with_rank=not seen.wide))
    if process.stray is not None:
        # The reason first: the end of a command is cut off, and the reason must not be.
        words = ((f"{stray_words(process.stray)}: ", "warn"), *words)
    elif process.state == "Z" and not seen.wide:
        words = (("zombie: ", "warn"), *words)
    elif not process.visible:
        words = ((f"{hidden_words(process)}: ", "dim"), *words)
    return merged((*branch, *words))
