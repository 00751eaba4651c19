"""The app's part in troubleshooting: opens a flow and keeps it while its page is left."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from cockpit.errors import UsageError
from cockpit.model.flow import FlowRequest
from cockpit.paths import working_directory
from cockpit.tui.flow_request import request_for
from cockpit.tui.flow_talk import FlowTalk, was_verified
from cockpit.tui.screens.base import Page
from cockpit.tui.session import Session
from cockpit.tui.view import View
from cockpit.tui.wire import WireDiff


class FlowApp(WireDiff[int]):
    """An app that may have one guided flow open."""

    view: View | None = None
    """What is on screen; None before the first tick."""
    talk: FlowTalk | None = None
    """The flow that is open; it goes on while its page is left."""
    asked_flow: FlowRequest | None = None
    """``cockpit fix``: opened after the first tick; leaving it ends the app."""

    @property
    def session(self) -> Session:
        """For pages that ask."""
        raise NotImplementedError

    def open_asked_flow(self) -> None:
        """What ``cockpit fix`` asked for, once."""
        if self.asked_flow is not None and self.talk is None:
            self.open_flow(self.asked_flow)

    def action_troubleshoot(self) -> None:
        """The flow that is open; else one about what is under the cursor, or the worst thing."""
        front = self.screen
        if self.talk is None and self.view is not None and isinstance(front, Page):
            subject = front.flow_subject()
            try:
                cwd = working_directory()
            except UsageError as error:
                self.notify(str(error), severity="warning")
                return
            self.open_flow(request_for(self.view.snapshot, subject, cwd))
        elif self.talk is not None:
            self._show_flow(self.talk)

    def open_flow(self, request: FlowRequest) -> None:
        """Begin a flow, in front."""
        self.talk = talk = FlowTalk(self.session, request, self._run_flow, self._flow_changed)
        talk.start()
        self._show_flow(talk)

    def _run_flow(self, move: Callable[[], Coroutine[Any, Any, None]]) -> object:
        # Of the app, not of the page: leaving that must not stop what runs.
        # Textual takes what makes the coroutine as well; its annotation of that cannot be met.
        return self.run_worker(move, group="flow", exit_on_error=False)  # type: ignore[arg-type]

    def _show_flow(self, talk: FlowTalk) -> None:
        from cockpit.tui.screens.troubleshoot import TroubleshootScreen

        if any(isinstance(screen, TroubleshootScreen) for screen in self.screen_stack):
            while not isinstance(self.screen, TroubleshootScreen):
                self.pop_screen()
        else:
            self.push_screen(TroubleshootScreen(talk))

    def _flow_changed(self) -> None:
        """Draw it where it is in front; else its end is told."""
        from cockpit.tui.screens.troubleshoot import TroubleshootScreen

        if isinstance(self.screen, TroubleshootScreen):
            self.screen.redraw()
        elif self.talk is None or self.talk.busy or not self.is_running:
            return
        elif self.talk.doing is not None:  # else it was only looked around
            pages = [one for one in self.screen_stack if isinstance(one, Page)]
            key = pages[-1].key_of("app.troubleshoot")
            where = f": {key} shows how" if key else ""
            self.notify(f"The fix has ended{where}.", timeout=8)

    def step_out_of_flow(self) -> None:
        """Back to the page before; what runs goes on, and ``!`` shows it again."""
        self.pop_screen()

    def leave_flow(self) -> None:
        """It is over; the app as well when it was opened for it."""
        if self.asked_flow is not None:
            self.exit()
        else:
            self.talk = None
            self.pop_screen()

    @property
    def exit_status(self) -> int:
        """0, except after a signal, and after `cockpit fix` without a fix that was verified."""
        fixed = self.asked_flow is None or (self.talk is not None and was_verified(self.talk.state))
        return self.return_code or (0 if fixed else 1)
