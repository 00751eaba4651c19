"""What is wrong, all of it: a list, and below it what the one under the cursor is about."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual import on
from textual.app import ComposeResult

from cockpit.model.text import plural
from cockpit.model.time import moment
from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import Line
from cockpit.tui.messages import RowChosen, RowHighlighted
from cockpit.tui.render.alerts import Alert, readings_alone
from cockpit.tui.render.cells import ends
from cockpit.tui.render.finding_page import cleared_lines, finding_preview
from cockpit.tui.render.finding_rows import NOTHING, WATCHED, Listed, finding_rows, listed
from cockpit.tui.render.prose import paragraph
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View, utc_offset_s
from cockpit.tui.widgets.line_view import FixedLines, LineView

_LEAST_LIST = 6
"""Lines that the list gets before the preview is given any more than half of the page."""


class FindingsScreen(SubPage):
    """Enter opens the finding's own page, or the process or GPU that an alert is about."""

    OPENED_BY = "findings"
    HINTS = ("page.back", "app.troubleshoot")
    DEFAULT_CSS = "FindingsScreen #preview { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[Hashable, Listed] = {}
        self._list_height = 1

    def compose(self) -> ComposeResult:
        """Four panes."""
        yield FixedLines(id="title")
        yield LineView(id="page")
        yield FixedLines(id="preview")
        yield FixedLines(id="footer")

    def show(self, view: View) -> None:
        """The list takes the lines it needs, half of the page at the most."""
        width, height = self.app.size
        snapshot = view.snapshot
        rows = listed(view.findings, readings_alone(snapshot), snapshot.processes)
        self._rows = {row.key: row for row in rows}
        now_s = moment(snapshot.taken_at)
        page = self.query_one("#page", LineView)
        header, made = finding_rows(rows, width, view.glyphs, now_s, utc_offset_s())
        self._list_height = min(len(rows) + 1, max(_LEAST_LIST, (height - 2) // 2))
        page.styles.height = self._list_height
        page.empty = ((f" {NOTHING}", "good"),)
        self.show_page(view, self._title(view, rows, width), made, header if rows else None)
        self._show_preview(view)

    def _title(self, view: View, rows: Sequence[Listed], width: int) -> Line:
        standing = [one.severity for one in rows if not one.is_cleared]
        counts = [
            plural(standing.count(severity), word)
            for severity, word in (("error", "error"), ("warning", "warning"), ("info", "note"))
            if severity in standing
        ]
        left: Line = (
            (f" Findings of {view.snapshot.host.name or 'this machine'}", "title"),
            (f"  {', '.join(counts)}", "dim"),
        )
        hint = f"{self.key_of('list.choose')}: evidence and fixes " if rows else ""
        return view.glyphs.finish(ends(left, ((hint, "dim"),), width))

    def _show_preview(self, view: View) -> None:
        width = self.app.size.width
        row = self._rows.get(self.query_one("#page", LineView).cursor)
        lines = _preview(row, view, width) if row is not None else paragraph(WATCHED, width)
        lines = [view.glyphs.finish(line) for line in lines]
        room = self.room(view) - 1 - self._list_height
        if len(lines) > room > 1:
            key = self.key_of("list.choose")
            rest: Line = ((f" and {len(lines) - room + 1} more lines: {key}", "dim"),)
            lines[room - 1 :] = [view.glyphs.finish(rest)]
        self.query_one("#preview", FixedLines).show_lines([(), *lines])

    def flow_subject(self) -> FlowSubject:
        """The row under the cursor."""
        row = self._rows.get(self.query_one("#page", LineView).cursor)
        known, alert = (row.known, row.alert) if row is not None else (None, None)
        if known is not None:
            return FlowSubject(finding=known.finding)
        if alert is None or alert.pid is not None:
            return FlowSubject(pid=alert.pid if alert is not None else None)
        return FlowSubject(gpu=alert.gpu)

    # -- messages

    @on(RowHighlighted, "#page")
    def cursor_moved(self) -> None:
        """Another one is previewed."""
        if self.cockpit.view is not None and self.is_current:
            self._show_preview(self.cockpit.view)

    @on(RowChosen, "#page")
    def open_row(self, event: RowChosen) -> None:
        """Enter or a double click."""
        row = self._rows.get(event.key)
        if row is None or not self.is_current:
            return
        if row.known is not None:
            from cockpit.tui.screens.finding import FindingScreen

            self.app.push_screen(FindingScreen(row.known))
        elif row.alert is not None:
            self._open_subject(row.alert)

    def _open_subject(self, alert: Alert) -> None:
        view = self.cockpit.view
        processes = view.snapshot.processes if view is not None else ()
        process = next((one for one in processes if one.pid == alert.pid), None)
        if process is not None:
            from cockpit.tui.screens.process import ProcessScreen

            self.app.push_screen(ProcessScreen(process, "details"))
        elif alert.gpu is not None:
            self.cockpit.open_gpu(alert.gpu)


def _preview(row: Listed, view: View, width: int) -> list[Line]:
    if row.known is not None:
        known = row.known
        return [
            *cleared_lines(known, width, view.glyphs, utc_offset_s()),
            *finding_preview(known.finding, view.snapshot, width, view.glyphs),
        ]
    about = "process" if row.pids != "–" else "GPU" if row.gpus != "–" else None
    lines = paragraph(row.words, width, "strong")
    lines += paragraph("A reading says so; no finding explains it yet.", width, "dim")
    return [*lines, *(paragraph(f"Enter opens its {about}.", width) if about else [])]
