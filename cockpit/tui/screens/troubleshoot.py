"""Troubleshooting, step by step: what was checked, what it means, what to do, whether it helped.

Answers one FlowTalk for the user. Nothing runs before its whole preview was on screen and was
confirmed; what runs goes on when the page is left, and is there again at the next ``!``.
"""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal

from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from cockpit.commands.fix_report import write_report
from cockpit.errors import CockpitError
from cockpit.model.flow import Choose, FlowAnswer, FlowState, InTerminal
from cockpit.model.text import clean
from cockpit.tui.flow_talk import FlowTalk
from cockpit.tui.in_terminal import run_in_terminal
from cockpit.tui.messages import RowChosen, RowHighlighted
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.flow_keys import can_be_edited
from cockpit.tui.render.flow_page import Mode, Whole
from cockpit.tui.render.flow_preview import command_of, is_by_hand, plain_text
from cockpit.tui.screens.flow_screen import FlowScreen

Direction = Literal["up", "down", "page_up", "page_down", "home", "end"]
_CHOOSING: tuple[Mode, ...] = ("ask", "choose", "undo")


class TroubleshootScreen(FlowScreen):
    """``TroubleshootScreen(talk)``; the app keeps the talk."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,backspace",
            "leave",
            "leave",
            id="flow.leave",
            key_display="esc",
            tooltip="Back, or leave",
        ),
        Binding(
            "enter,y",
            "confirm",
            "do it",
            id="flow.confirm",
            key_display="enter",
            tooltip="Choose, confirm",
        ),
        # Without a description: nine keys are one line of the help page.
        *(
            Binding(str(n + 1), f"option({n})", "", show=False, id=f"flow.option_{n + 1}")
            for n in range(9)
        ),
        Binding("d", "whole('preview')", "whole", id="flow.whole", tooltip="The whole preview"),
        Binding("f", "whole('found')", "found", id="flow.found", tooltip="All that was found"),
        Binding("e", "edit", "edit", id="flow.edit", tooltip="Edit the command first"),
        Binding(
            "t", "where('tmux')", "in tmux", id="flow.tmux", tooltip="Start it in a tmux window"
        ),
        Binding(
            "o", "where('terminal')", "here", id="flow.here", tooltip="Start it in this terminal"
        ),
        Binding("c", "copy", "copy", id="flow.copy", tooltip="Copy the commands or the report"),
        Binding("u", "undo", "undo", id="flow.undo", tooltip="Take back what was done here"),
        Binding("x", "cancel", "cancel", id="flow.cancel", tooltip="Stop what runs"),
        Binding("r", "whole('report')", "report", id="flow.report", tooltip="The report; again"),
        Binding("w", "write", "write", id="flow.write", tooltip="The report into a file here"),
        Binding("up,k", "scroll('up')", "up", id="flow.up", show=False),
        Binding("down,j", "scroll('down')", "down", id="flow.down", show=False),
        # Priority: the list of options has the focus, and needs no pages.
        Binding(
            "pageup",
            "scroll('page_up')",
            "up",
            id="flow.page_up",
            show=False,
            priority=True,
            tooltip="The preview a page up",
        ),
        Binding(
            "pagedown",
            "scroll('page_down')",
            "on",
            id="flow.page_down",
            show=False,
            priority=True,
            tooltip="The preview a page on",
        ),
        Binding("home,g", "scroll('home')", "start", id="flow.home", show=False),
        Binding("end,G", "scroll('end')", "end", id="flow.end", show=False),
    ]

    def __init__(self, talk: FlowTalk) -> None:
        super().__init__(talk)
        self._tried_at: FlowState | None = None
        """Where esc was said last: still there afterwards, the engine took no notice."""

    def action_leave(self) -> None:
        """One step back: a whole page, a field, a confirmation, at last the flow."""
        mode, talk = self.mode, self.talk
        self._sentence = None
        if self._whole is not None:
            self._whole = None
        elif mode in ("edit", "undo"):
            self._editing, self._undoing = None, False
        elif mode == "busy":
            self.cockpit.step_out_of_flow()
            return
        elif mode in ("confirm", "terminal") and not self._was_tried():
            talk.answer(FlowAnswer(declined=True))
        else:
            self._leave_for_good(mode)
            return
        self.redraw()

    def _was_tried(self) -> bool:
        """Whether esc got nowhere from here: an engine that was started again knows no old flow."""
        tried, self._tried_at = self._tried_at, self.talk.state
        return tried is not None and tried is self.talk.state and self.talk.error is not None

    def _leave_for_good(self, mode: Mode) -> None:
        """Where something was done its end and report are shown first, unless that fails."""
        state = self.talk.state
        if mode in ("ask", "choose"):
            if state is not None and state.done and not self._was_tried():
                self.talk.answer(FlowAnswer(leave=True))
                return
            if state is not None and not state.done:
                self.notify("Left; nothing was changed.", timeout=3)
        self.talk.leave()
        self.cockpit.leave_flow()

    def action_confirm(self) -> None:
        """Enter where no list has it: run what was seen to its end."""
        if self._whole is not None and self._whole != "preview":
            return
        mode = self.mode
        if mode in _CHOOSING:
            self._choose(self._place)
        elif mode not in ("confirm", "terminal") or not self._saw_whole():
            return
        elif self._types:  # in the field, which a whole page has not
            self._whole = None
            self.redraw()
        elif mode == "confirm":
            self.talk.answer(FlowAnswer(confirmed=True))
        else:
            self._run_in_terminal()

    def _saw_whole(self) -> bool:
        """Nobody confirms what was below the edge: the key shows more of it instead."""
        if not self._end_seen:
            self.action_scroll("page_down")
            return False
        return True

    def action_option(self, number: int) -> None:
        """A digit chooses."""
        if self.mode in _CHOOSING and self._whole is None and number < len(self._page.rows):
            self._choices.cursor = number
            self._choose(number)

    @on(RowChosen, "#choices")
    def row_chosen(self, event: RowChosen) -> None:
        """Enter or a double click."""
        event.stop()
        self._choose(_number(event.key))

    @on(RowHighlighted, "#choices")
    def row_highlighted(self) -> None:
        """Another option, another preview."""
        self._sentence = None
        self.redraw()

    def _choose(self, number: int) -> None:
        mode, preview = self.mode, self._option()
        if mode == "undo":
            if self._saw_whole():
                self.talk.answer(FlowAnswer(undo=number))
        elif mode == "choose" and preview is not None and preview.lines and is_by_hand(preview):
            self._copy(preview.lines)
        elif mode == "choose" and preview is not None and preview.refusal is not None:
            self.notify(preview.refusal, severity="warning", timeout=4)
        elif mode in ("ask", "choose"):
            self.talk.answer(FlowAnswer(option=number))

    def action_undo(self) -> None:
        """A list of what can be taken back; Enter there takes it back."""
        prompt = self.talk.state.prompt if self.talk.state is not None else None
        if self.mode == "choose" and isinstance(prompt, Choose) and prompt.undoable:
            self._undoing, self._whole = True, None
            self.redraw()

    def action_edit(self) -> None:
        """The command line in a field."""
        preview = self._option()
        if self.mode != "choose" or self._whole is not None or not can_be_edited(preview):
            return
        assert preview is not None
        line = command_of(preview)
        if clean(line) == line:
            self._editing, self._sentence = self._place, None
        else:  # a field draws what it holds, for the terminal to obey
            self._sentence = "It holds control characters: it can be run, but not edited here."
        self.redraw()

    def action_where(self, where: Literal["tmux", "terminal"]) -> None:
        """The same command, started elsewhere than in the background; it is asked for all the same.

        A fix that starts no run is refused by the engine with a sentence.
        """
        if self.mode == "choose" and self._whole is None and can_be_edited(self._option()):
            self.talk.answer(FlowAnswer(option=self._place, where=where))

    def action_whole(self, what: Whole) -> None:
        """One thing over the whole page, or back."""
        if what == "report" and self.mode == "failed":
            self.talk.start()
            return
        there = {
            "preview": self._option() is not None,
            "found": self.talk.state is not None,
            "report": self._ended() is not None,
        }
        if there[what] and self.mode not in ("busy", "edit"):
            self._whole = None if self._whole == what else what
            self.redraw()

    def action_copy(self) -> None:
        """What would run, or the report; a command for the terminal is then not run here."""
        ended, preview, mode = self._ended(), self._option(), self.mode
        if mode == "busy":
            return
        lines = preview.lines if preview is not None else ended.report.splitlines() if ended else ()
        if lines:
            self._copy(lines)
        if mode == "terminal":
            self.talk.answer(FlowAnswer(declined=True))

    def _copy(self, lines: Sequence[str]) -> None:
        self.app.copy_to_clipboard(plain_text(lines))
        self.notify("Copied, where the terminal takes it (OSC 52).", timeout=3)

    def action_write(self) -> None:
        """The report into the current directory; never over a file that is there."""
        ended, state = self._ended(), self.talk.state
        if ended is None or state is None or not ended.report:
            return
        try:
            path = write_report(plain_text(ended.report.splitlines()), state.flow)
        except CockpitError as error:
            self._sentence = str(error)
        else:
            self.notify(f"Written: {path}", timeout=6)
        self.redraw()

    def action_cancel(self) -> None:
        """What runs stops as soon as that is safe."""
        self.talk.cancel()

    def action_scroll(self, where: Direction) -> None:
        """The preview."""
        pane = self._preview
        moves = {
            "up": pane.action_cursor_up,
            "down": pane.action_cursor_down,
            "page_up": pane.action_page_up,
            "page_down": pane.action_page_down,
            "home": pane.action_home,
            "end": pane.action_end,
        }
        moves[where]()
        self.look_for_end()
        self.show_keys()

    @on(Input.Submitted, "#field")
    def submitted(self, event: Input.Submitted) -> None:
        """What had to be typed, or the edited command."""
        event.stop()
        if self.mode == "edit":
            self._submit_command(event.value)
        elif self._types and self._saw_whole():
            self._submit_typed(event.value)

    def _submit_typed(self, value: str) -> None:
        preview = self._option()
        assert preview is not None
        if value.strip() == preview.typed:
            self.talk.answer(FlowAnswer(typed=value.strip()))
            return
        self._field.value = ""
        words = f"Type {foreign(preview.typed or '')} to go on, esc to go back."
        self.notify(words, severity="warning", timeout=4)

    def _submit_command(self, value: str) -> None:
        try:
            words = tuple(shlex.split(value))
        except ValueError as error:
            self._sentence = f"This is no command line that a shell could read: {error}."
        else:
            self._sentence = None if words else "An empty command cannot be run."
            if words:
                option, self._editing = self._editing, None
                self.talk.answer(FlowAnswer(option=option, command=words))
        self.redraw()

    def _run_in_terminal(self) -> None:
        prompt = self.talk.state.prompt if self.talk.state is not None else None
        assert isinstance(prompt, InTerminal)
        try:
            status = run_in_terminal(self.app, prompt.command)
        except CockpitError as error:
            self._sentence = str(error)
            self.redraw()
        else:
            self.talk.answer(FlowAnswer(exit_status=status))


def _number(key: Hashable) -> int:
    assert isinstance(key, int)
    return key
