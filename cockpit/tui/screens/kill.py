"""The kill dialog: what exactly would happen, one confirmation, what came of it.

Plan → (typed pid where the policy asks for it) → progress → a result for each process, and the
offer of SIGKILL for those that ignored the signal. The engine plans, signals and proves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input
from typing_extensions import override

from cockpit.errors import CockpitError
from cockpit.model.action import SIGNALS, KillPlan, KillRequest, KillResult, Target
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint, key_lines
from cockpit.tui.render.kill_lines import plan_lines, result_lines
from cockpit.tui.screens.dialog import body_height, keys_of, text_width
from cockpit.tui.widgets.line_view import FixedLines

if TYPE_CHECKING:
    from cockpit.tui.app import CockpitApp


class _Digits(Input, inherit_bindings=False):
    """What is typed here is a number: every other key is the dialog's, as its key line says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backspace,ctrl+h", "delete_left", show=False),
        Binding("ctrl+u", "delete_left_all", show=False),
        Binding("enter", "submit", show=False),
    ]

    @override
    async def _on_key(self, event: events.Key) -> None:
        if event.character is None or not event.character.isdecimal():
            event.prevent_default()  # of the field: its own handler is called after this one

    @override
    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Digits alone."""
        return character is not None and character.isdecimal()


class KillDialog(ModalScreen[bool]):
    """Dismissed with whether something was signalled."""

    AUTO_FOCUS = ""  # the field is hidden until something has to be typed
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "leave", id="kill.leave", key_display="esc"),
        Binding("enter,y", "confirm", "do it", id="kill.confirm", key_display="enter"),
        Binding("left,h", "signal(-1)", "signal", id="kill.previous_signal"),
        Binding("right,l", "signal(1)", "signal", id="kill.next_signal"),
        Binding("j", "job", "whole job", id="kill.job"),
        Binding("k", "escalate", "SIGKILL", id="kill.escalate"),
        Binding("up", "scroll(-1)", "up", id="kill.up"),
        Binding("down", "scroll(1)", "down", id="kill.down"),
        Binding("pageup", "scroll(-8)", "up", id="kill.page_up"),
        Binding("pagedown", "scroll(8)", "down", id="kill.page_down"),
    ]

    def __init__(self, targets: tuple[Target, ...]) -> None:
        super().__init__()
        self._request = KillRequest(targets=targets)
        self._plan: KillPlan | None = None
        self._progress: list[str] = []
        self._results: tuple[KillResult, ...] = ()
        self._error: str | None = None
        self._busy = False
        self._signalled = False
        self._end_seen = False
        self._height = 1
        """Lines of the plan's pane."""

    def compose(self) -> ComposeResult:
        """Lines, and a field for what has to be typed."""
        with Vertical(classes="dialog"):
            yield FixedLines(id="plan")
            yield _Digits(id="typed", select_on_focus=False)
            yield FixedLines(id="keys")

    def on_mount(self) -> None:
        """Ask for the plan at once."""
        self._typed.display = False
        self._show()
        self._ask_plan()

    @property
    def _cockpit(self) -> CockpitApp:
        return cast("CockpitApp", self.app)

    @property
    def _typed(self) -> Input:
        return self.query_one("#typed", Input)

    @property
    def _is_done(self) -> bool:
        return bool(self._results) or self._error is not None

    # -- keys

    def action_leave(self) -> None:
        """Leave; a signal that was sent stays sent, and its result comes as an event."""
        if self.is_current:
            self.dismiss(self._signalled)

    def action_signal(self, step: int) -> None:
        """Another signal is another plan."""
        if self._busy or self._is_done or self._plan is None:
            return
        index = (SIGNALS.index(self._request.signal) + step) % len(SIGNALS)
        self._replan(signal=SIGNALS[index])

    def action_job(self) -> None:
        """With or without children and ranks."""
        if not (self._busy or self._is_done):
            self._replan(job=not self._request.job)

    def action_confirm(self) -> None:
        """Run the plan; after the end, leave."""
        if self._is_done:
            self.action_leave()
        elif self._plan is not None and not self._busy and self._can_run(self._plan):
            if not self._seen_whole:
                self._scroll_on()  # nobody signals what was below the edge
            elif self._plan.typed is None:
                self._run(self._plan, None)
            else:
                self._typed.focus()

    def action_scroll(self, lines: int) -> None:
        """A long plan or result."""
        body = self._body_view
        (body.action_cursor_up if lines < 0 else body.action_cursor_down)()
        for _ in range(abs(lines) - 1):
            (body.action_cursor_up if lines < 0 else body.action_cursor_down)()
        self._show_keys()

    def _scroll_on(self) -> None:
        self._body_view.action_page_down()
        self._show_keys()

    @property
    def _body_view(self) -> FixedLines:
        return self.query_one("#plan", FixedLines)

    @property
    def _seen_whole(self) -> bool:
        """The end of the plan has been on screen."""
        body = self._body_view
        if body.top + min(body.body_height, self._height) >= len(body.rows):
            self._end_seen = True
        return self._end_seen

    def action_escalate(self) -> None:
        """Plan SIGKILL for those that ignored the signal; it asks for the typed pid."""
        if not any(one.offer_kill for one in self._results):
            return
        ticks = {one.pid: one.start_ticks for one in self._plan.targets} if self._plan else {}
        self._request = KillRequest(
            targets=tuple(
                Target(pid=one.pid, start_ticks=ticks.get(one.pid))
                for one in self._results
                if one.offer_kill
            ),
            signal="KILL",
        )
        self._results, self._progress = (), []
        self._forget_plan()
        self._ask_plan()

    @on(Input.Submitted, "#typed")
    def typed(self, event: Input.Submitted) -> None:
        """The pid was typed: run, or say that it is another one."""
        if self._plan is None or self._busy:
            return
        if not self._seen_whole:
            self._scroll_on()
        elif event.value.strip() == self._plan.typed:
            self._run(self._plan, event.value.strip())
        else:
            self._typed.value = ""
            self.notify(f"Type {self._plan.typed} to go on, esc to leave.", severity="warning")

    # -- conversation with the engine

    def _replan(self, *, signal: str | None = None, job: bool | None = None) -> None:
        self._request = KillRequest(
            targets=self._request.targets,
            signal=signal or self._request.signal,
            job=self._request.job if job is None else job,
        )
        self._forget_plan()
        self._ask_plan()

    def _forget_plan(self) -> None:
        """What was planned is not what is asked for any more: nothing can be confirmed now."""
        self._plan, self._end_seen = None, False
        self._show()

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _ask_plan(self) -> None:
        asked = self._request
        try:
            plan = await self._cockpit.session.kill_plan(asked)
        except CockpitError as error:
            self._error = str(error)
        else:
            if asked is self._request:
                self._plan, self._end_seen = plan, False
        self._show()

    @work(exclusive=True, group="run", exit_on_error=False)
    async def _run(self, plan: KillPlan, typed: str | None) -> None:
        self._busy = self._signalled = True
        self._show()
        try:
            self._results = await self._cockpit.session.run_kill(plan.id, typed, self._say)
        except CockpitError as error:
            self._error = str(error)
        self._busy = False
        if self.is_attached:
            self._show()

    def _say(self, sentence: str) -> None:
        self._progress.append(sentence)
        if self.is_attached:
            self._show()

    # -- what is seen

    @staticmethod
    def _can_run(plan: KillPlan) -> bool:
        return any(one.refusal is None for one in plan.targets)

    def _show(self) -> None:
        asks = self._plan is not None and self._plan.typed is not None
        open_field = asks and not (self._busy or self._is_done) and self._can_run_plan()
        if open_field and not self._typed.display:
            self._typed.value = ""
            self._typed.placeholder = (
                f"type {foreign(self._plan.typed or '')}" if self._plan else ""
            )
            self._typed.display = True
            self._typed.focus()
        elif not open_field and self._typed.display:
            self._typed.display = False
            self.set_focus(None)
        view = self._cockpit.view
        if view is not None:
            self._show_body(self._body(self._width, view.glyphs), view.glyphs)
        self.call_after_refresh(self._show_keys)

    def _show_body(self, lines: list[Line], glyphs: Glyphs) -> None:
        """All of it where the screen has room for that beside the keys that are needed then."""

        def keys(fits: bool) -> list[Line]:
            return key_lines(self._hints(fits=fits, seen=fits), self._width, glyphs)

        below = 1 + self._typed.display
        self._height = body_height(len(lines), self.app.size.height, keys, below)
        self._body_view.styles.height = self._height
        self._body_view.show_lines(lines)

    def _can_run_plan(self) -> bool:
        return self._plan is not None and self._can_run(self._plan)

    @property
    def _width(self) -> int:
        return text_width(self.app.size.width)

    def _show_keys(self) -> None:
        view = self._cockpit.view
        if view is not None and self.is_attached:
            fits = len(self._body_view.rows) <= self._height
            hints = self._hints(fits=fits, seen=fits or self._seen_whole)
            lines = key_lines(hints, self._width, view.glyphs)
            self.query_one("#keys", FixedLines).show_lines([(), *lines])

    def on_resize(self) -> None:
        """Another width is another text."""
        self.call_after_refresh(self._show)

    def _body(self, width: int, glyphs: Glyphs) -> list[Line]:
        if self._error is not None:
            return [((part, "error"),) for part in wrapped(foreign(self._error), width)]
        if self._results:
            return result_lines(self._results, width, glyphs)
        if self._plan is None:
            return [((" looking at the processes …", "dim"),)]
        lines = plan_lines(self._plan, width, glyphs)
        if self._busy:
            return [*lines, (), *(((f" {foreign(one)}", "dim"),) for one in self._progress[-4:])]
        return lines

    def _hints(self, *, fits: bool, seen: bool) -> list[Hint]:
        """The keys that do something; ``fits``: nothing has to be scrolled to."""
        leave, confirm = keys_of(self, "kill.leave"), keys_of(self, "kill.confirm")
        if self._busy:
            return [(leave, "leave; the result comes as an event")]
        if self._is_done:
            offer = any(one.offer_kill for one in self._results)
            kill = [(keys_of(self, "kill.escalate"), "send SIGKILL")] if offer else []
            return [(confirm, "close"), *kill]
        hints: list[Hint] = [(leave, "leave it alone")]
        if self._can_run_plan():
            enter = f"send SIG{self._request.signal}" if seen else "see the rest first"
            in_field = self._typed.display  # which takes enter, whatever confirms elsewhere
            hints.insert(0, ("enter" if in_field else confirm, enter))
            step = keys_of(self, "kill.previous_signal", "kill.next_signal")
            hints.append((step, "another signal"))
        if not fits:
            hints.append((keys_of(self, "kill.up", "kill.down"), "scroll"))
        job = "only these" if self._request.job else "the whole job"
        return [*hints, (keys_of(self, "kill.job"), job)]
