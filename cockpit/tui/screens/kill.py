"""The kill dialog: what exactly would happen, one confirmation, what came of it.

Plan → (typed pid where the policy asks for it) → progress → a result for each process, and the
offer of SIGKILL for those that ignored the signal. The engine plans, signals and proves.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input
from typing_extensions import override

from cockpit.errors import CockpitError
from cockpit.model.action import SIGNALS, KillPlan, KillRequest, KillResult, Target
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint
from cockpit.tui.render.kill_lines import plan_lines, result_lines
from cockpit.tui.screens.dialog import ConfirmDialog, keys_of


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


class KillDialog(ConfirmDialog):
    """Dismissed with whether something was signalled.

    A signal that was sent stays sent: of those who leave, its result comes as an event.
    """

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
        self._results: tuple[KillResult, ...] = ()
        self._pid_typed: str | None = None

    @override
    def between(self) -> ComposeResult:
        yield _Digits(id="typed", select_on_focus=False)

    @property
    @override
    def lines_between(self) -> int:
        return 1 + self._typed.display

    @override
    def on_mount(self) -> None:
        self._typed.display = False
        self._ask_plan()  # at once

    @property
    def _typed(self) -> Input:
        return self.query_one("#typed", Input)

    @property
    @override
    def is_over(self) -> bool:
        return bool(self._results) or super().is_over

    @override
    def can_confirm(self) -> bool:
        return self._plan is not None and any(one.refusal is None for one in self._plan.targets)

    # -- keys

    def action_signal(self, step: int) -> None:
        """Another signal is another plan."""
        if self._busy or self.is_over or self._plan is None:
            return
        index = (SIGNALS.index(self._request.signal) + step) % len(SIGNALS)
        self._replan(signal=SIGNALS[index])

    def action_job(self) -> None:
        """With or without children and ranks."""
        if not (self._busy or self.is_over):
            self._replan(job=not self._request.job)

    @override
    def confirmed(self) -> None:
        if self._plan is not None and self._plan.typed is not None:
            self._typed.focus()
        else:
            self.run_it()

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
        if not self.seen_whole:
            self.scroll_on()
        elif event.value.strip() == self._plan.typed:
            self._pid_typed = event.value.strip()
            self.run_it()
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
        self._plan, self._pid_typed = None, None
        self.show()

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _ask_plan(self) -> None:
        asked = self._request
        try:
            plan = await self.cockpit.session.kill_plan(asked)
        except CockpitError as error:
            self._error = str(error)
        else:
            if asked is self._request:
                self._plan = plan
        self.show()

    @override
    async def perform(self) -> None:
        if self._plan is not None:
            session = self.cockpit.session
            self._results = await session.run_kill(self._plan.id, self._pid_typed, self.say)

    # -- what is seen

    @override
    def show(self) -> None:
        if self.is_attached:
            self._show_field()
        super().show()

    def _show_field(self) -> None:
        typed = None if self._plan is None else self._plan.typed
        opens = typed is not None and self.can_confirm() and not (self._busy or self.is_over)
        if opens and not self._typed.display:
            self._typed.value = ""
            self._typed.placeholder = f"type {foreign(typed or '')}"
            self._typed.display = True
            self._typed.focus()
        elif not opens and self._typed.display:
            self._typed.display = False
            self.set_focus(None)

    @override
    def body(self, width: int, glyphs: Glyphs) -> list[Line]:
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

    @override
    def hints(self, *, fits: bool, seen: bool) -> list[Hint]:
        leave, confirm = keys_of(self, "kill.leave"), keys_of(self, "kill.confirm")
        if self._busy:
            return [(leave, "leave; the result comes as an event")]
        if self.is_over:
            offer = any(one.offer_kill for one in self._results)
            kill = [(keys_of(self, "kill.escalate"), "send SIGKILL")] if offer else []
            return [(confirm, "close"), *kill]
        hints: list[Hint] = [(leave, "leave it alone")]
        if self.can_confirm():
            enter = f"send SIG{self._request.signal}" if seen else "see the rest first"
            in_field = self._typed.display  # which takes enter, whatever confirms elsewhere
            hints.insert(0, ("enter" if in_field else confirm, enter))
            step = keys_of(self, "kill.previous_signal", "kill.next_signal")
            hints.append((step, "another signal"))
        if not fits:
            hints.append((keys_of(self, "kill.up", "kill.down"), "scroll"))
        job = "only these" if self._request.job else "the whole job"
        return [*hints, (keys_of(self, "kill.job"), job)]
