"""One process: facts, GPUs, family, environment. What is not in the snapshot is asked for."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual import work
from textual.binding import Binding, BindingType

from cockpit.errors import CockpitError, TargetGoneError
from cockpit.model.action import Target
from cockpit.model.process import Process, ProcessDetails
from cockpit.model.text import age
from cockpit.model.time import moment, seconds_since
from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, toned_down, wrapped
from cockpit.tui.render.finding_mentions import mentions
from cockpit.tui.render.process_page import environment_lines, process_page, process_title
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View, utc_offset_s

Part = Literal["details", "environment"]


class ProcessScreen(SubPage):
    """``e`` changes between facts and environment."""

    HINTS = ("page.back", "process.part", "process.kill")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "part", "facts / environment", id="process.part"),
        Binding("x,f9", "kill", "kill", id="process.kill"),
        Binding("r,f5", "again", "read again", id="process.again"),
    ]

    def __init__(self, process: Process, part: Part) -> None:
        super().__init__()
        self._process = process
        self._part: Part = part
        self._details: ProcessDetails | None = None
        self._trouble: str | None = None
        self._why_no_details = ""
        """Reason of the gap, where nothing more will come by itself."""
        self._seen_at: str | None = None
        """When it was last in a snapshot."""

    def on_mount(self) -> None:
        """Ask at once; the facts of the snapshot are shown meanwhile."""
        self.action_again()

    def action_again(self) -> None:
        """Read everything anew."""
        self._ask()

    def action_part(self) -> None:
        """The other part."""
        self._part = "details" if self._part == "environment" else "environment"
        self.redraw()

    def action_kill(self) -> None:
        """The kill dialog for this process."""
        from cockpit.tui.screens.kill import KillDialog

        target = Target(pid=self._process.pid, start_ticks=self._process.start_ticks)
        self.app.push_screen(KillDialog((target,)))

    def flow_subject(self) -> FlowSubject:
        """This process."""
        return FlowSubject(pid=self._process.pid, start_ticks=self._process.start_ticks)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Read-only offers no action at all."""
        return action != "kill" or self.cockpit.offers_actions

    @work(exclusive=True, exit_on_error=False)
    async def _ask(self) -> None:
        one = self._process
        try:
            self._details = await self.cockpit.session.details(one.pid, one.start_ticks)
            self._trouble = None
        except CockpitError as error:
            self._trouble = str(error)
            gone = isinstance(error, TargetGoneError)  # else it was the engine that failed
            self._why_no_details = "gone" if gone else "not_read_yet"
        self.redraw()

    def show(self, view: View) -> None:
        """The newest facts of the snapshot, and the details that were asked for."""
        width = self.app.size.width
        ours = (self._process.pid, self._process.start_ticks)
        found = [one for one in view.snapshot.processes if (one.pid, one.start_ticks) == ours]
        if found:
            self._process, self._seen_at = found[0], view.snapshot.taken_at
        title = process_title(self._process, width, view.glyphs)
        gone = [] if found else self._old_lines(view)
        told = mentions(view.snapshot, width, view.glyphs, pid=self._process.pid)
        body = self._body(view, width)
        self.show_lines(view, title, [*gone, *told, *(body if found else map(toned_down, body))])

    def _old_lines(self, view: View) -> list[Line]:
        since = seconds_since(self._seen_at, moment(view.snapshot.taken_at))
        old = "" if since is None else f" These values are {age(since)} old."
        return [((f" It holds no GPU memory any more.{old}", "warn"),)]

    def _known_details(self) -> ProcessDetails | None:
        """None while they are on their way."""
        one = self._process
        if self._details is not None or not self._why_no_details:
            return self._details
        gaps = {"environment": self._why_no_details}
        return ProcessDetails(pid=one.pid, start_ticks=one.start_ticks, gaps=gaps)

    def _body(self, view: View, width: int) -> list[Line]:
        details = self._known_details()
        trouble: list[Line] = []
        if self._trouble is not None:
            trouble = [
                ((f" {part}", "warn"),) for part in wrapped(foreign(self._trouble), width - 2)
            ]
        if self._part == "environment" and details is not None:
            return [*trouble, *environment_lines(details, width, view.glyphs)]
        return [
            *trouble,
            *process_page(
                self._process,
                details,
                width,
                view.glyphs,
                moment(self._seen_at or view.snapshot.taken_at),  # one that is gone grows no older
                utc_offset_s(),
            ),
        ]
