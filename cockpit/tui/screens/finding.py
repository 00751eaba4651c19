"""One finding, with everything that it rests on. It stays readable when it has cleared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from cockpit.model.finding import Finding
from cockpit.model.finding_history import Known
from cockpit.model.time import moment
from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import Line
from cockpit.tui.render.finding_page import cleared_lines, finding_page, finding_title
from cockpit.tui.render.finding_words import RANKS
from cockpit.tui.render.prose import paragraph
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View, utc_offset_s
from cockpit.tui.widgets.line_view import LineView


class FindingScreen(SubPage):
    """Left and right go to the neighbours in the list."""

    HINTS = ("page.back", "app.troubleshoot", "finding.previous", "finding.next")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous", id="finding.previous", tooltip="Finding before"),
        Binding("right", "step(1)", "next", id="finding.next", tooltip="Next finding"),
    ]

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known

    def flow_subject(self) -> FlowSubject:
        """This finding."""
        return FlowSubject(finding=self._known.finding)

    def show(self, view: View) -> None:
        """As it is now; one that the view does not know any more as it was last."""
        width = self.app.size.width
        ranked = _in_order(view.findings)
        numbers = [one.number for one in ranked]
        place = ""
        forgotten = self._known.number not in numbers
        if not forgotten:
            at = numbers.index(self._known.number)
            self._known = ranked[at]
            place = f"{at + 1} of {len(ranked)}"
        title = finding_title(
            self._known, place, width, view.glyphs, moment(view.snapshot.taken_at), utc_offset_s()
        )
        self.show_lines(view, title, [*self._above(view, width, forgotten), *self._body(view)])

    def _above(self, view: View, width: int, forgotten: bool) -> list[Line]:
        if self._known.cleared_at is not None:
            return cleared_lines(self._known, width, view.glyphs, utc_offset_s())
        if forgotten:
            return [*paragraph("It is not found at this moment; this is what it said.", width), ()]
        return []

    def _body(self, view: View) -> list[Line]:
        finding: Finding = self._known.finding
        return finding_page(finding, view.snapshot, self.app.size.width, view.glyphs)

    def action_step(self, step: int) -> None:
        """The next or previous one, round the end, from its first line."""
        view = self.cockpit.view
        ranked = _in_order(view.findings) if view is not None else []
        if ranked:
            numbers = [one.number for one in ranked]
            here = numbers.index(self._known.number) if self._known.number in numbers else 0
            self._known = ranked[(here + step) % len(ranked)]
            self.query_one("#page", LineView).action_home()
            self.redraw()


def _in_order(findings: Sequence[Known]) -> list[Known]:
    """As in the list: worst first, cleared ones last."""
    return sorted(
        findings, key=lambda one: (one.cleared_at is not None, RANKS[one.finding.severity])
    )
