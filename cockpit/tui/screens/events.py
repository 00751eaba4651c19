"""Everything that happened since the engine started, newest first."""

from __future__ import annotations

from cockpit.model.time import moment
from cockpit.tui.line import Line
from cockpit.tui.render.cells import wrapped
from cockpit.tui.render.event_rows import event_header, event_rows
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View, utc_offset_s


class EventsScreen(SubPage):
    """The last 100 events."""

    OPENED_BY = "events"
    HINTS = ("page.back",)

    def show(self, view: View) -> None:
        """A row an event; long sentences are wrapped."""
        width = self.app.size.width
        events = view.snapshot.events
        rows = event_rows(
            events, width, view.glyphs, moment(view.snapshot.taken_at), utc_offset_s()
        )
        title: Line = ((f" Events of {view.snapshot.host.name or 'this machine'}", "title"),)
        if not events:
            words = wrapped("Nothing has happened since the cockpit looks.", width - 2)
            self.show_lines(view, title, [((f" {part}", "dim"),) for part in words])
            return
        header = event_header(width, view.glyphs)
        self.show_page(view, title, rows, header)
