"""What every page is: it is given a View and shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from cockpit.tui.view import View

if TYPE_CHECKING:
    from cockpit.tui.app import CockpitApp


class Page(Screen[None]):
    """A screen over the whole terminal that is drawn anew for each View."""

    AUTO_FOCUS = "LineView"

    @property
    def cockpit(self) -> CockpitApp:
        """The app, by its own type."""
        return cast("CockpitApp", self.app)

    def show(self, view: View) -> None:
        """Draw this View. Called for each tick and whenever the page comes to the front."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the current View again: something of the page's own has changed."""
        view = self.cockpit.view
        if view is not None and self.is_mounted:
            self.show(view)

    def on_screen_resume(self) -> None:
        """Back in front: what was missed meanwhile is drawn."""
        self.call_after_refresh(self.redraw)

    def on_resize(self, _: events.Resize) -> None:
        """Another size is another layout."""
        self.call_after_refresh(self.redraw)


class SubPage(Page):
    """A page that esc leaves again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", id="page.back"),
    ]
