"""What every page is: it is given a View and shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import AnyRow, Line, Row
from cockpit.tui.render.cells import fit_line, foreign
from cockpit.tui.render.key_line import Hint, key_line
from cockpit.tui.view import View
from cockpit.tui.widgets.line_view import FixedLines, LineView

if TYPE_CHECKING:
    from cockpit.tui.app import CockpitApp

LEAST_SIZE = (40, 10)


class Page(Screen[None]):
    """A screen over the whole terminal that is drawn anew for each View."""

    HINTS: ClassVar[tuple[str, ...]] = ()
    """Ids of the bindings that come first in the key line; what does not fit is left out."""
    OPENED_BY: ClassVar[str] = ""
    """The app's action that opens this page."""

    OWN_DIGITS: ClassVar[bool] = False
    """Digits are answers here, and open no GPU."""

    _was_focused: Widget | None = None

    @property
    def cockpit(self) -> CockpitApp:
        """The app, by its own type."""
        return cast("CockpitApp", self.app)

    def draw(self, view: View) -> None:
        """This View, or the line that says that the terminal is too small for it."""
        width, height = self.app.size
        too_small = width < LEAST_SIZE[0] or height < LEAST_SIZE[1]
        if too_small and not self.has_class("small"):
            self._was_focused = self.focused  # hiding the panes takes it away
        elif not too_small and self.has_class("small") and self.focused is None:
            self.call_after_refresh(self.set_focus, self._was_focused)
        self.set_class(too_small, "small")
        if too_small:
            need = f" too small: needs {LEAST_SIZE[0]}x{LEAST_SIZE[1]}"
            self.query_one("#title", FixedLines).show_lines([((need[:width], "warn"),)])
        else:
            self.show(view)

    def show(self, view: View) -> None:
        """Draw this View. Called for each tick and whenever the page comes to the front."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the current View again: something of the page's own has changed."""
        view = self.cockpit.view
        if view is not None and self in self.app.screen_stack:
            self.draw(view)

    def flow_subject(self) -> FlowSubject:
        """What ``!`` is about here; by itself a page is about the whole machine."""
        return FlowSubject()

    def key_line(
        self, view: View, first: tuple[str, ...] = (), more: tuple[Hint, ...] = ()
    ) -> Line:
        """The keys that are on right now, as bound: a remapped key shows itself.

        ``more`` is placed after the first one, which leads out of the page.
        """
        shown = [one for one in self.active_bindings.values() if one.enabled and one.binding.show]
        order = dict.fromkeys((*first, *self.HINTS))
        place = {name: number for number, name in enumerate(order)}
        hints: dict[str, Hint] = {}
        for one in sorted(shown, key=lambda one: place.get(one.binding.id or "", len(place))):
            if one.binding.id and one.binding.description:
                key = self.app.get_key_display(one.binding)
                hints.setdefault(one.binding.id, (key, one.binding.description))
        words = list(hints.values())
        return key_line([*words[:1], *more, *words[1:]], self.app.size.width, view.glyphs)

    def key_of(self, id_: str) -> str:
        """The key of a binding as bound now; empty where it is off."""
        return self.bound_keys().get(id_, "")

    def bound_keys(self) -> dict[str, str]:
        """The first key of each binding that is on right now, by its id."""
        keys: dict[str, str] = {}
        for one in self.active_bindings.values():
            if one.binding.id and one.enabled and one.binding.id not in keys:
                keys[one.binding.id] = self.app.get_key_display(one.binding)
        return keys

    def on_screen_resume(self) -> None:
        """Back in front: what was missed meanwhile is drawn."""
        self.call_after_refresh(self.redraw)

    def on_resize(self, _: events.Resize) -> None:
        """Another size is another layout."""
        self.call_after_refresh(self.redraw)


class SubPage(Page):
    """A page that esc leaves again: a title, lines that scroll, the keys."""

    AUTO_FOCUS = "#page"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "back", id="page.back", key_display="esc"),
    ]

    def compose(self) -> ComposeResult:
        """Three panes."""
        yield FixedLines(id="title")
        page = LineView(id="page", cursor=False)  # read, not chosen from: keys scroll it
        page.can_focus = True
        yield page
        yield FixedLines(id="footer")

    def show_page(
        self, view: View, title: Line, rows: Iterable[AnyRow], header: Line | None
    ) -> None:
        """Fill the panes."""
        page = self.query_one("#page", LineView)
        page.header = header
        page.show(rows)
        self.query_one("#title", FixedLines).show_lines([title])
        self.set_class(view.trouble is not None, "stale")
        below = len(page.rows) - page.top + (header is not None) - self.room(view)
        is_read = not page.has_cursor and below > 0
        more: tuple[Hint, ...] = (("PgDn", "more"),) if is_read else ()
        foot = [*self._why_not_live(view), self.key_line(view, more=more)]
        footer = self.query_one("#footer", FixedLines)
        footer.styles.height = len(foot)
        footer.show_lines(foot)

    def room(self, view: View) -> int:
        """Lines between title and foot."""
        return self.app.size.height - 2 - len(self._why_not_live(view))

    def _why_not_live(self, view: View) -> list[Line]:
        """A line where what stands above is not of this moment."""
        width = self.app.size.width
        if view.trouble is not None:
            return [
                view.glyphs.finish(fit_line(((f" ! {foreign(view.trouble)}", "error"),), width))
            ]
        if view.paused or (view.playback is not None and view.playback.paused):
            key = self.key_of("app.pause")
            words = f": {key} goes on" if key else ""
            return [((" PAUSED", "warn"), (words, "dim"))]
        return []

    def show_lines(self, view: View, title: Line, lines: Iterable[Line]) -> None:
        """Fill the page with lines that have no identity."""
        self.show_page(view, title, (Row(n, line) for n, line in enumerate(lines)), None)
