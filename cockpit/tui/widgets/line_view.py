"""Lists and pages of lines on the line API: what changed is repainted, and nothing else.

``LineView(rows=(), *, cursor=True, header=None, empty=None, id=None, classes=None)``
    ``show(rows)`` takes the new rows; ``header`` and ``empty`` (Lines) may be set at any time.
    ``cursor`` is the key under the cursor (reactive, None when there are no rows), ``cursor_row``
    the Row, ``cursor_index`` its place; ``top`` and ``body_height`` say which rows are in view.
    Posts ``RowHighlighted`` when the cursor comes to another key and ``RowChosen`` on Enter or a
    double click. Keys have the ids ``list.up .down .page_up .page_down .home .end .choose``.
``FixedLines``
    the same without cursor and focus: ``show_lines(lines)``. It scrolls by the wheel.

Not here: what the lines say (``tui.render``) and which role has which colour (``tui.theme``).
There is no scrollbar: it would cost a column that changes each tick.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from typing_extensions import override

from cockpit.tui.line import AnyRow, LateRows, Line, Role, Row
from cockpit.tui.messages import HeaderClicked, RowChosen, RowHighlighted
from cockpit.tui.theme import RowState, faded, role_styles
from cockpit.tui.widgets.strips import to_strip

_NUDGE_S = 0.15
_WHEEL_LINES = 3
_STRIPS_KEPT = 1024

_Shown = tuple[Line, RowState]
_BLANK: _Shown = ((), RowState.PLAIN)


class LineView(Widget, can_focus=True):
    """Rows with a cursor that stays on its key; see the module's first lines."""

    ALLOW_SELECT = False  # a double click chooses; text is selected with the terminal's own shift
    DEFAULT_CSS = """
    LineView { width: 1fr; height: 1fr; overflow: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", "Up", show=False, id="list.up"),
        Binding("down,j", "cursor_down", "Down", show=False, id="list.down"),
        Binding("pageup", "page_up", "Page up", show=False, id="list.page_up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="list.page_down"),
        Binding("home,g", "home", "First row", show=False, id="list.home"),
        Binding("end,G", "end", "Last row", show=False, id="list.end"),
        Binding(
            "enter", "choose", "Details", show=False, id="list.choose", key_display="enter"
        ),  # Textual's own sign for it is not ASCII
    ]

    cursor: reactive[Hashable | None] = reactive(None, repaint=False, always_update=False)

    def __init__(
        self,
        rows: Sequence[AnyRow] = (),
        *,
        cursor: bool = True,
        header: Line | None = None,
        empty: Line | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.has_cursor = cursor
        self.can_focus = cursor
        self.top = 0
        """Index of the first row in view."""
        self.was_moved = False
        """Somebody has put the cursor where it is; at first it only happens to be there."""
        self._rows: Sequence[AnyRow] = ()
        self._index = 0
        self._header = header
        self._empty = empty
        self._nudge: Timer | None = None
        self._nudged = False
        self._picture: list[_Shown] = []
        self._strips: dict[_Shown, Strip] = {}
        self._strips_width = 0
        self._styles: dict[RowState, dict[Role, Style]] = {}
        self.show(rows)

    # What is shown

    @property
    def rows(self) -> Sequence[AnyRow]:
        """The rows as last shown."""
        return self._rows

    @property
    def header(self) -> Line | None:
        """The line that stays on top, or None."""
        return self._header

    @header.setter
    def header(self, line: Line | None) -> None:
        self._header = line
        self._repaint_changes()

    @property
    def empty(self) -> Line | None:
        """What stands there when there are no rows, and why."""
        return self._empty

    @empty.setter
    def empty(self, line: Line | None) -> None:
        self._empty = line
        self._repaint_changes()

    @property
    def cursor_index(self) -> int | None:
        """Place of the cursor among the rows; None without rows or cursor."""
        return self._index if self.has_cursor and self._rows else None

    @property
    def cursor_row(self) -> AnyRow | None:
        """The row under the cursor."""
        return None if self.cursor_index is None else self._rows[self._index]

    @property
    def body_height(self) -> int:
        """Rows that fit below the header."""
        return max(0, self.size.height - (self._header is not None))

    def show(self, rows: Iterable[AnyRow]) -> None:
        """Show these rows; the cursor stays on its key, or goes to what followed a vanished one."""
        old, self._rows = self._rows, rows if isinstance(rows, LateRows) else tuple(rows)
        self._index = self._place_of_cursor(old)
        self._set_cursor()
        if len(old) != len(self._rows) and self.is_attached and self.styles.auto_dimensions:
            self.refresh(layout=True)
        self._repaint_changes()

    def _place_of_cursor(self, old: Sequence[AnyRow]) -> int:
        """Where the cursor belongs now; ``_rows`` are new, ``_index`` is still that in ``old``."""
        index = self._index
        if not self.has_cursor or not self._rows or not old:
            return 0
        if index < len(self._rows) and self._rows[index].key == old[index].key:
            return index
        places = {row.key: place for place, row in enumerate(self._rows)}
        for row in (*old[index:], *reversed(old[:index])):
            if row.key in places:
                return places[row.key]
        return min(index, len(self._rows) - 1)

    # The cursor

    def watch_cursor(self, key: Hashable | None) -> None:
        """Follow the key when it was set from outside; an unknown key changes nothing."""
        row = self.cursor_row
        if row is not None and row.key != key:
            self.was_moved = True
            self._index = next((i for i, r in enumerate(self._rows) if r.key == key), self._index)
            self._set_cursor()
        if self.is_attached:
            self._repaint_changes()
            if self.cursor is not None:
                self.post_message(RowHighlighted(self, self.cursor))

    def _set_cursor(self) -> None:
        row = self.cursor_row
        key = None if row is None else row.key
        if self.is_attached:
            self.cursor = key
        else:
            self.set_reactive(LineView.cursor, key)

    def _move(self, rows: int) -> None:
        """Move the cursor (the view when there is none); say so when it is at the end already."""
        if not self.has_cursor:
            self._scroll(rows)
            return
        self.was_moved = True
        index = max(0, min(len(self._rows) - 1, self._index + rows))
        if index == self._index or not self._rows:
            self._nudge_cursor()
            return
        self._index, self._nudged = index, False
        self._set_cursor()
        self._repaint_changes()

    def _nudge_cursor(self) -> None:
        """A key that cannot move the cursor is still seen to have arrived: the row blinks once."""
        self._nudged = not self._nudged
        if self._nudge is not None:
            self._nudge.stop()
        self._nudge = self.set_timer(_NUDGE_S, self._end_nudge)
        self._repaint_changes()

    def _end_nudge(self) -> None:
        self._nudge, self._nudged = None, False
        self._repaint_changes()

    def _scroll(self, rows: int) -> None:
        """Move the view; a cursor that would leave it is taken along."""
        body = self.body_height
        self.top = max(0, min(len(self._rows) - body, self.top + rows))
        if self._rows and self.has_cursor and body:
            self._index = max(self.top, min(self.top + body - 1, self._index))
            self._set_cursor()
        self._repaint_changes()

    def action_cursor_up(self) -> None:
        """One row up."""
        self._move(-1)

    def action_cursor_down(self) -> None:
        """One row down."""
        self._move(1)

    def action_page_up(self) -> None:
        """A screenful up."""
        self._move(-max(1, self.body_height - 1))

    def action_page_down(self) -> None:
        """A screenful down."""
        self._move(max(1, self.body_height - 1))

    def action_home(self) -> None:
        """To the first row."""
        self._move(-len(self._rows))

    def action_end(self) -> None:
        """To the last row."""
        self._move(len(self._rows))

    def action_choose(self) -> None:
        """Ask for the details of the row under the cursor."""
        if self.cursor is not None:
            self.post_message(RowChosen(self, self.cursor))

    # Mouse and focus

    def on_click(self, event: events.Click) -> None:
        """The cursor goes where was clicked; the second click chooses."""
        offset = event.get_content_offset(self)
        if not self.has_cursor or offset is None:
            return
        if offset.y < (self._header is not None):
            self.post_message(HeaderClicked(self, offset.x))
            return
        index = self.top + offset.y - (self._header is not None)
        if index >= len(self._rows):
            return
        self._move(index - self._index)
        if event.chain == 2:
            self.action_choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three lines a notch."""
        event.stop()
        self._scroll(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three lines a notch."""
        event.stop()
        self._scroll(-_WHEEL_LINES)

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor's colour says whether keys come here."""
        super().watch_has_focus(has_focus)
        self._repaint_changes()

    # Painting

    def _repaint_changes(self) -> None:
        """Refresh the lines that differ from what was painted last, a region a line from x=0
        (Textual crops no span on its left: knowledge of `_compositor.py`, 8.2)."""
        size = self.size
        if not self.is_attached or not size:
            self._picture = []  # hidden: what was painted last is of another time
            return
        old, self._picture = self._picture, self._paint(size.height)
        changed = [y for y, (a, b) in enumerate(zip_longest(old, self._picture)) if a != b]
        if changed:
            self.refresh(*[Region(0, y, size.width, 1) for y in changed])

    def _paint(self, height: int) -> list[_Shown]:
        """What each line of the widget is to show; brings the cursor into view."""
        picture: list[_Shown] = []
        if self._header is not None:
            picture.append((self._header, RowState.PLAIN))
        body = max(0, height - len(picture))
        self._bring_into_view(body)
        picture += [(row.line, RowState.PLAIN) for row in self._rows[self.top : self.top + body]]
        if not self._rows and self._empty is not None and body:
            picture.append((self._empty, RowState.NUDGED if self._nudged else RowState.PLAIN))
        elif self._rows and self.has_cursor and body:
            y = len(picture) - len(self._rows[self.top : self.top + body]) + self._index - self.top
            picture[y] = (self._rows[self._index].line, self._cursor_state())
        return (picture + [_BLANK] * (height - len(picture)))[:height]

    def _bring_into_view(self, body: int) -> None:
        if self.has_cursor:
            self.top = max(self._index - body + 1, min(self.top, self._index))
        self.top = max(0, min(self.top, len(self._rows) - body))

    def _cursor_state(self) -> RowState:
        if self._nudged:
            return RowState.NUDGED
        return RowState.CURSOR if self.has_focus else RowState.BLURRED

    @override
    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines straight from the cache, a third of the time of Textual's way around borders;
        which is taken where there is anything but lines to draw."""
        if self.gutter or self.opacity != 1 or self.styles.tint.a:
            return super().render_lines(crop)
        lines = [self.render_line(y) for y in crop.line_range]
        if crop.column_span == (0, self.size.width):
            return lines
        return [line.crop(*crop.column_span) for line in lines]

    @override
    def render_line(self, y: int) -> Strip:
        """Line ``y``; strips are kept by (line, state) until the width or a style changes."""
        width, height = self.size
        if len(self._picture) != height:
            self._picture = self._paint(height)
        if self._strips_width != width or len(self._strips) > _STRIPS_KEPT:
            self._strips.clear()
            self._strips_width = width
        shown = self._picture[y] if y < height else _BLANK
        strip = self._strips.get(shown)
        if strip is None:
            strip = self._strips[shown] = self._make_strip(shown, width)
        return strip

    def _make_strip(self, shown: _Shown, width: int) -> Strip:
        strip = to_strip(shown[0], width, self._styles_of(shown[1]))
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():  # no colour, or a theme's ansi colours
            strip = strip.apply_filter(line_filter, background)
        return strip

    def _styles_of(self, state: RowState) -> dict[Role, Style]:
        styles = self._styles.get(state)
        if styles is None:
            styles = role_styles(self.app.theme_variables, self.rich_style, state)
            if (opacity := self.styles.text_opacity) < 1:  # Textual's own way to it is not taken
                styles = {role: faded(style, opacity) for role, style in styles.items()}
            self._styles[state] = styles
        return styles

    def notify_style_update(self) -> None:
        """Theme, focus or CSS changed: nothing that was rendered holds."""
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """For ``height: auto``: as many lines as there are, one at least."""
        body = max(len(self._rows), 1 if self._empty is not None else 0)
        return max(1, body + (self._header is not None))

    @override
    def get_content_width(self, container: Size, viewport: Size) -> int:
        """For ``width: auto``: the widest line."""
        lines = [row.line for row in self._rows]
        lines += [line for line in (self._header, self._empty) if line is not None]
        return max((sum(cell_len(text) for text, _ in line) for line in lines), default=0)


class FixedLines(LineView, can_focus=False):
    """Lines without cursor and focus: panels, plots, status lines."""

    DEFAULT_CSS = """
    FixedLines { height: auto; }
    """

    def __init__(
        self,
        lines: Sequence[Line] = (),
        *,
        header: Line | None = None,
        empty: Line | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__((), cursor=False, header=header, empty=empty, id=id, classes=classes)
        self.show_lines(lines)

    def show_lines(self, lines: Iterable[Line]) -> None:
        """Show these lines."""
        self.show(Row(number, line) for number, line in enumerate(lines))
