"""What the terminal shows, and the shortest bytes to make it show something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, groupby
from operator import ne

from textual.strip import Strip

from cockpit.tui.wire_cells import CLUSTERS_FROM, TAIL, CellReader, Cells, Pens

CLEAR = "\x1b[m\x1b[2J"
"""A picture starts from an erased screen: without it tmux 3.3a left half of an old wide one."""
_GAP = 4
"""Unchanged cells are sent again where that is no longer than the move over them."""


class Picture:
    """A copy of the terminal's screen. Applying updates collects bytes, ``take`` hands them out."""

    def __init__(self, width: int, height: int, reader: CellReader) -> None:
        self.size = (width, height)
        self._reader = reader
        self._pens: Pens = reader.pens
        blank = (" " * width, self._pens.plain * width)
        self.lines: list[Cells] = [blank] * height
        self._pen = self._pens.plain
        self._y: int | None = None
        self._x: int | None = None
        self._out: list[str] = [CLEAR]

    def take(self) -> str:
        """The bytes since the last call. Afterwards the cursor is wherever Textual puts it."""
        taken = "".join(self._out)
        self._out.clear()
        self._y = self._x = None
        return taken

    def show_line(self, y: int, strips: Iterable[Strip]) -> None:
        """Line ``y`` is these strips from column 0 on."""
        width = self.size[0]
        characters, pens = "", ""
        for strip in strips:
            more = self._reader.cells(strip)
            characters, pens = characters + more[0], pens + more[1]
        missing = width - len(characters)
        if missing > 0:
            characters, pens = characters + " " * missing, pens + self._pens.plain * missing
        self._send(y, _cut((characters, pens), 0, width))

    def show_part(self, y: int, parts: Iterable[tuple[int, int, int, Strip]]) -> None:
        """Line ``y`` has these parts: (x of the strip, first and end column to take of it)."""
        line = self.lines[y]
        for x, start, end, strip in parts:
            cells = self._reader.cells(strip)
            # The strip shows what it holds, so a wide character at the span's edge is sent whole.
            first, last = _whole(cells[0], start - x, end - x)
            line = _patched(line, x + first, _cut(cells, first, last))
        self._send(y, line)

    def _send(self, y: int, new: Cells) -> None:
        old = self.lines[y]
        if old == new:
            return
        self.lines[y] = new
        columns = range(self.size[0])
        changed = set(compress(columns, map(ne, old[0], new[0])))
        changed.update(compress(columns, map(ne, old[1], new[1])))
        for start, end in self._runs(sorted(changed), new):
            self._move(y, start)
            self._write(y, new, start, end)

    def _runs(self, changed: list[int], new: Cells) -> Iterator[tuple[int, int]]:
        """Changed columns as (start, end), joined over gaps that are cheaper sent than jumped."""
        start = last = changed[0]
        for x in changed[1:]:
            if x - last > 1 and not (x - last - 1 <= _GAP and self._is_cheap(new, last, x)):
                yield _whole(new[0], start, last + 1)
                start = x
            last = x
        yield _whole(new[0], start, last + 1)

    def _is_cheap(self, new: Cells, last: int, x: int) -> bool:
        """Whether the cells between two changed ones need no pen of their own."""
        gap = new[0][last + 1 : x]
        if not gap.isascii() or TAIL in gap:
            return False
        gap_pens = new[1][last + 1 : x]
        return any(self._fits(gap, gap_pens, new[1][end]) for end in (last, x))

    def _fits(self, text: str, pens: str, pen: str) -> bool:
        blank = self._pens.blank(pen)
        return all(p == pen or (p == blank and c == " ") for c, p in zip(text, pens, strict=True))

    def _write(self, y: int, new: Cells, start: int, end: int) -> None:
        """Cells ``start`` to ``end``; the cursor is there already."""
        x = start
        for pen, group in groupby(new[1][start:end]):
            stop = x + len(list(group))
            text = new[0][x:stop]
            # Blanks take the pen that is in the hand when it draws them alike.
            if pen != self._pen and not (
                text.isspace() and self._pens.blank(self._pen) == self._pens.blank(pen) == pen
            ):
                self._out.append(self._pens.change(self._pen, pen))
                self._pen = pen
            self._put(y, x, text)
            x = stop

    def _put(self, y: int, x: int, text: str) -> None:
        if max(text) >= CLUSTERS_FROM:
            self._put_clusters(y, x, text)
            return
        self._out.append(text if text.isascii() and TAIL not in text else text.replace(TAIL, ""))
        self._advance(x + len(text))

    def _put_clusters(self, y: int, x: int, text: str) -> None:
        """Terminals disagree about the width of clusters: the column is set anew after each, so
        that one which is wrong spoils a cell and not the line."""
        for place, character in enumerate(text, x):
            if character == TAIL:
                continue
            self._move(y, place)
            is_cluster = character >= CLUSTERS_FROM
            self._out.append(self._reader.cluster(character) if is_cluster else character)
            wide = text[place - x + 1 : place - x + 2] == TAIL
            self._advance(place + 1 + wide)
            if is_cluster:
                self._x = None

    def _advance(self, x: int) -> None:
        # In the last column terminals differ in where the cursor is.
        self._x = x if x < self.size[0] else None

    def _move(self, y: int, x: int) -> None:
        if (y, x) == (self._y, self._x):
            return
        ahead = x - self._x if y == self._y and self._x is not None else 0
        if 0 < ahead < 10:  # most moves are these, and nothing is shorter
            self._out.append(f"\x1b[{ahead}C" if ahead > 1 else "\x1b[C")
        else:
            self._out.append(min(self._ways(y, x), key=len))
        self._y, self._x = y, x

    def _ways(self, y: int, x: int) -> Iterator[str]:
        yield f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"
        if y == self._y:
            yield f"\x1b[{x + 1}G"
            yield from _sideways(x, self._x)
        elif x == self._x:
            yield f"\x1b[{y + 1}d"
        if x == 0 and self._y is not None and y == self._y + 1:
            yield "\r\n"


def _sideways(x: int, now: int | None) -> Iterator[str]:
    if x == 0:
        yield "\r"
    if now is not None:
        count, letter = (x - now, "C") if x > now else (now - x, "D")
        yield f"\x1b[{count if count > 1 else ''}{letter}"


def _whole(characters: str, start: int, end: int) -> tuple[int, int]:
    """The run widened to whole wide characters."""
    if start and characters[start] == TAIL:
        start -= 1
    if characters[end : end + 1] == TAIL:
        end += 1
    return start, end


def _cut(cells: Cells, start: int, end: int) -> Cells:
    """Cells ``start`` to ``end``; half a wide character at an edge becomes a blank."""
    characters, pens = cells[0][start:end], cells[1][start:end]
    if characters.startswith(TAIL):
        characters = " " + characters[1:]
    if cells[0][end : end + 1] == TAIL and characters:
        characters = characters[:-1] + " "
    return characters, pens


def _patched(line: Cells, x: int, part: Cells) -> Cells:
    """The line with the part at ``x``; what it leaves of a wide character becomes a blank."""
    end = x + len(part[0])
    before, after = line[0][:x], line[0][end:]
    if line[0][x : x + 1] == TAIL and before:
        before = before[:-1] + " "
    if after.startswith(TAIL):
        after = " " + after[1:]
    return before + part[0] + after, line[1][:x] + part[1] + line[1][end:]
