"""Troubleshooting, step by step: what was checked, what it means, what to do, whether it helped.

Draws one FlowTalk and answers for the user. Nothing runs before its whole preview was on screen
and was confirmed; what runs goes on when the page is left, and is there again at the next ``!``.
"""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from cockpit.errors import CockpitError
from cockpit.model.flow import Ask, Choose, Confirm, Ended, FlowAnswer, InTerminal
from cockpit.model.remedy import Preview
from cockpit.tui.flow_report import write_report
from cockpit.tui.flow_talk import FlowTalk
from cockpit.tui.in_terminal import run_in_terminal
from cockpit.tui.line import Line
from cockpit.tui.messages import RowChosen, RowHighlighted
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.flow_lines import busy_line, flow_title
from cockpit.tui.render.flow_page import FlowPage, Mode, Whole, busy_lines, flow_page
from cockpit.tui.render.flow_preview import command_of, plain_text
from cockpit.tui.render.key_line import Hint, key_lines
from cockpit.tui.screens.base import Page
from cockpit.tui.view import View
from cockpit.tui.widgets.line_view import FixedLines, LineView

Direction = Literal["up", "down", "page_up", "page_down", "home", "end"]
_CHOOSING: tuple[Mode, ...] = ("ask", "choose", "undo")
_BRIEF_S = 0.3
"""A shorter wait for the engine is not shown."""


class TroubleshootScreen(Page):
    """``TroubleshootScreen(talk)``; the app keeps the talk."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    TroubleshootScreen #found, TroubleshootScreen #choices { height: 1; }
    TroubleshootScreen #preview { height: 1fr; }
    TroubleshootScreen #field {
        border: none; height: 1; padding: 0 1; background: $surface; display: none;
    }
    TroubleshootScreen #keys { height: auto; dock: bottom; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "leave", "leave", id="flow.leave", tooltip="Back, or leave"),
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
        Binding("c", "copy", "copy", id="flow.copy", tooltip="Copy the commands or the report"),
        Binding("u", "undo", "undo", id="flow.undo", tooltip="Take back what was done here"),
        Binding("x", "cancel", "cancel", id="flow.cancel", tooltip="Stop what runs"),
        Binding("r", "whole('report')", "report", id="flow.report", tooltip="The report; again"),
        Binding("w", "write", "write", id="flow.write", tooltip="The report into a file here"),
        Binding("up,k", "scroll('up')", "up", id="flow.up", show=False),
        Binding("down,j", "scroll('down')", "down", id="flow.down", show=False),
        # Priority: the list of options has the focus, and needs no pages.
        Binding("pageup", "scroll('page_up')", "up", id="flow.page_up", show=False, priority=True),
        Binding(
            "pagedown", "scroll('page_down')", "on", id="flow.page_down", show=False, priority=True
        ),
        Binding("home,g", "scroll('home')", "start", id="flow.home", show=False),
        Binding("end,G", "scroll('end')", "end", id="flow.end", show=False),
    ]

    def __init__(self, talk: FlowTalk) -> None:
        super().__init__()
        self.talk = talk
        self._whole: Whole | None = None
        self._undoing = False
        self._editing: int | None = None
        self._sentence: str | None = None
        """Of the page itself: a command that cannot be read, a file that cannot be written."""
        self._drawn: tuple[object, ...] = ()
        self._page = FlowPage()
        self._is_cut = False
        """The preview is longer than its pane."""
        self._end_seen = False

    def compose(self) -> ComposeResult:
        """What was found, what can be chosen, what it is, a field, the keys."""
        yield FixedLines(id="title")
        yield FixedLines(id="found")
        yield LineView(id="choices")
        yield FixedLines(id="preview")
        yield Input(id="field", select_on_focus=False)
        yield FixedLines(id="keys")

    def on_mount(self) -> None:
        """The panes are looked up once."""
        self._choices = self.query_one("#choices", LineView)
        self._preview = self.query_one("#preview", FixedLines)
        self._field = self.query_one("#field", Input)
        self._field.cursor_blink = False
        self._timer = self.set_interval(1.0, self._beat, pause=True)

    # -- what there is

    @property
    def mode(self) -> Mode:
        """What the page is for right now."""
        talk = self.talk
        if talk.busy:
            return "busy"
        if talk.state is None:
            return "failed"
        prompt = talk.state.prompt
        if isinstance(prompt, Choose):
            return "undo" if self._undoing else "edit" if self._editing is not None else "choose"
        if isinstance(prompt, Ask):
            return "ask"
        if isinstance(prompt, Confirm):
            return "confirm"
        return "terminal" if isinstance(prompt, InTerminal) else "ended"

    @property
    def _place(self) -> int:
        """Of the cursor among the choices."""
        return self._choices.cursor_index or 0

    def _option(self) -> Preview | None:
        """The fix that keys are about."""
        prompt = self.talk.state.prompt if self.talk.state is not None else None
        if isinstance(prompt, Choose) and self.mode in ("choose", "edit"):
            place = self._place if self._editing is None else self._editing
            return prompt.options[place] if place < len(prompt.options) else None
        return prompt.preview if isinstance(prompt, Confirm | InTerminal) else None

    def _ended(self) -> Ended | None:
        prompt = self.talk.state.prompt if self.talk.state is not None else None
        return prompt if isinstance(prompt, Ended) else None

    # -- drawing

    def show(self, view: View) -> None:
        """Draws what is new; a tick alone changes nothing here."""
        talk = self.talk
        self._steps_back()
        mode = self.mode
        if mode == "busy" and self._is_brief:
            self.set_timer(_BRIEF_S, self.redraw)
            return
        said = (len(talk.said), talk.said[-1] if talk.said else None, talk.cancelled)
        sentence = self._sentence or talk.error
        drawn = (talk.state, mode, self._whole, self._place, self.app.size, said, sentence)
        if drawn == self._drawn:
            return
        opened = self._drawn[:2] != drawn[:2]
        self._drawn = drawn
        self._fill_choices(view, mode)
        self._show_field(mode, opened)
        self._lay_out(view, mode)
        self.call_after_refresh(self._after_layout)

    def _steps_back(self) -> None:
        """What belongs to a prompt that is gone."""
        mode = self.mode
        if mode not in ("choose", "undo", "edit"):
            self._undoing, self._editing = False, None
        if mode == "busy":
            self._whole = None
            self._timer.resume()
        else:
            self._timer.pause()

    @property
    def _is_brief(self) -> bool:
        """Most answers take no time: the page does not blink for them."""
        talk = self.talk
        at_work = talk.state is None or talk.doing is not None or talk.said
        return not at_work and talk.elapsed_s < _BRIEF_S

    def _fill_choices(self, view: View, mode: Mode) -> None:
        width, glyphs, talk = self.app.size.width, view.glyphs, self.talk
        busy = busy_lines(talk.running, list(talk.said), width, glyphs) if mode == "busy" else ()
        self._page = page = flow_page(talk.state, mode, self._whole, width, glyphs, busy)
        choosing = bool(page.rows)
        self._choices.display = choosing
        if choosing:
            self._choices.header = page.header
            titles = [row.line for row in self._choices.rows]
            self._choices.show(page.rows)
            if titles != [row.line for row in page.rows]:  # another question
                self._choices.cursor = page.rows[0].key
        wants = self._choices if choosing else None
        if not self._field_is_open and self.focused is not wants:
            self.set_focus(wants)

    @property
    def _types(self) -> bool:
        """The typed confirmation is open."""
        preview = self._option()
        return self.mode == "confirm" and preview is not None and preview.typed is not None

    @property
    def _field_is_open(self) -> bool:
        return self._whole is None and (self.mode == "edit" or self._types)

    def _show_field(self, mode: Mode, opened: bool) -> None:
        preview = self._option()
        self._field.display = self._field_is_open
        if not self._field_is_open or preview is None:
            return
        if opened:
            self._field.value = command_of(preview) if mode == "edit" else ""
            self._field.cursor_position = len(self._field.value)
            self._field.placeholder = f"type {foreign(preview.typed or '')}"
        if self.focused is not self._field:
            self._field.focus()

    def _lay_out(self, view: View, mode: Mode) -> None:
        """Heights are reckoned here, for the keys depend on whether the preview is cut."""
        width, height = self.app.size
        page, talk = self._page, self.talk
        pane = page.preview(self._place, self._sentence or talk.error)
        head = self._head(view, mode)
        keys = self._key_lines(view, mode)
        for _ in range(2):  # more keys are more lines, and less room
            room = height - 1 - len(keys) - self._field.display
            rows = min(len(page.rows) + 1, max(2, room // 2)) if page.rows else 0
            story = page.story(room - rows, pane) if self._whole is None else []
            self._is_cut = len(pane) > room - rows - len(story) - (head is not None)
            keys = self._key_lines(view, mode)
        self._choices.styles.height = max(1, rows)
        found = self.query_one("#found", FixedLines)
        found.display = bool(story)
        found.styles.height = max(1, len(story))
        found.show_lines(story)
        self._preview.header = head
        self._fill_preview(pane, mode)
        self.query_one("#title", FixedLines).show_lines(
            [flow_title(talk.state, talk.step, width, view.glyphs)]
        )
        self.query_one("#keys", FixedLines).show_lines(keys)

    def _fill_preview(self, lines: Sequence[Line], mode: Mode) -> None:
        old = [row.line for row in self._preview.rows]
        if old == list(lines):
            return
        self._end_seen = False  # another text has to be seen to its end anew
        at_end = self._preview.top + self._preview.body_height >= len(old)
        self._preview.show_lines(lines)
        if mode == "busy" and at_end:
            self._preview.action_end()
        elif mode != "busy" and old[:1] != list(lines[:1]):
            self._preview.action_home()

    def _head(self, view: View, mode: Mode) -> Line | None:
        if mode == "busy" and self._whole is None:
            talk, width = self.talk, self.app.size.width
            return busy_line(talk.doing, talk.elapsed_s, talk.cancelled, width, view.glyphs)
        return self._page.head

    def _beat(self) -> None:
        """Elapsed seconds, while something runs: one line."""
        view = self.cockpit.view
        if view is not None and self.talk.busy and self.is_current:
            self._preview.header = self._head(view, "busy")

    def _after_layout(self) -> None:
        """What fits has been seen; the keys know now whether there is more."""
        if self.is_attached:
            self._look_for_end()
            self._show_keys()

    def _look_for_end(self) -> None:
        pane = self._preview
        if pane.rows and pane.size.height and pane.top + pane.body_height >= len(pane.rows):
            self._end_seen = True

    def _show_keys(self) -> None:
        view = self.cockpit.view
        if view is not None:
            self.query_one("#keys", FixedLines).show_lines(self._key_lines(view, self.mode))

    # -- the key line

    def _key_lines(self, view: View, mode: Mode) -> list[Line]:
        width, height = self.app.size
        return key_lines(self._hints(mode), width, view.glyphs)[: max(2, height // 8)]

    def _hints(self, mode: Mode) -> list[Hint]:
        pairs = self._pairs(mode) if self._whole is None else self._whole_pairs(mode)
        bound = {
            one.binding.id: self.app.get_key_display(one.binding)
            for one in reversed(self.active_bindings.values())
            if one.binding.id
        }
        bound.setdefault("flow.confirm", "enter")  # a list or a field has it now
        hints = [(bound[id_], word) for id_, word in pairs if id_ in bound]
        scrolls = self._is_cut and not any(id_ == "flow.whole" for id_, _ in pairs)
        return [*hints, ("PgUp PgDn", "scroll")] if scrolls else hints

    def _whole_pairs(self, mode: Mode) -> list[tuple[str, str]]:
        """A whole preview is confirmed like the part of it that the page has room for."""
        pairs = [one for one in self._pairs(mode) if one[0] == "flow.confirm"]
        pairs = pairs if self._whole == "preview" else []
        return [*pairs, ("flow.leave", "back")]

    def _pairs(self, mode: Mode) -> list[tuple[str, str]]:
        """(id, what it does now), the first ones first."""
        state, preview = self.talk.state, self._option()
        found = [("flow.found", "found")] if state is not None and state.found else []
        copy = [("flow.copy", "copy")] if preview is not None and preview.lines else []
        cut = self._is_cut and preview is not None
        whole = [("flow.whole", "whole")] if cut else []
        if mode == "busy":
            cancel = [("flow.cancel", "cancel")] if state is not None else []
            return [*cancel, ("flow.leave", "leave; it goes on"), *found]
        if mode == "failed":
            return [("flow.report", "try again"), ("flow.leave", "leave")]
        if mode == "ended":
            return self._ended_pairs(found)
        if mode in ("confirm", "terminal"):
            yes = "run it" if mode == "confirm" else "run it in this terminal"
            yes = yes if self._end_seen else "see the rest first"
            back = ("flow.leave", "back, nothing runs")
            copy = [("flow.copy", "copy it instead")] if mode == "terminal" else copy
            return [("flow.confirm", yes), back, *whole, *copy, *found]
        if mode in ("edit", "undo"):
            return [("flow.confirm", _YES[mode]), ("flow.leave", "back")]
        undo = [("flow.undo", "undo")] if self._undoable else []
        edit = [("flow.edit", "edit")] if _can_be_edited(preview) else []
        leave = "leave" if state is not None and state.done else "leave, nothing was changed"
        enter = ("flow.confirm", "choose")
        return [enter, ("flow.leave", leave), *whole, *edit, *undo, *copy, *found]

    def _ended_pairs(self, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
        ended = self._ended()
        report = [("flow.report", "report"), ("flow.copy", "copy it"), ("flow.write", "write it")]
        has = ended is not None and ended.report
        return [*(report if has else []), *found, ("flow.leave", "leave")]

    @property
    def _undoable(self) -> tuple[str, ...]:
        prompt = self.talk.state.prompt if self.talk.state is not None else None
        return prompt.undoable if isinstance(prompt, Choose) else ()

    # -- keys

    def action_leave(self) -> None:
        """One step back: a whole page, a field, a confirmation, at last the flow."""
        mode, talk = self.mode, self.talk
        self._sentence = None
        if self._whole is not None:
            self._whole = None
        elif mode in ("edit", "undo"):
            self._editing, self._undoing = None, False
        elif mode in ("confirm", "terminal"):
            talk.answer(FlowAnswer(declined=True))
        elif mode == "busy":
            self.cockpit.step_out_of_flow()
            return
        else:
            self._leave_for_good(mode)
            return
        self.redraw()

    def _leave_for_good(self, mode: Mode) -> None:
        """Where something was done its end and report are shown first, unless that fails."""
        state = self.talk.state
        if mode in ("ask", "choose"):
            failed = self.talk.error is not None
            self.talk.answer(FlowAnswer(leave=True))
            if state is not None and state.done and not failed:
                return
            if state is not None and not state.done:
                self.notify("Left; nothing was changed.", timeout=3)
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
        elif mode == "choose" and preview is not None and preview.refusal is not None:
            self.notify(foreign(preview.refusal), severity="warning", timeout=4, markup=False)
        elif mode in ("ask", "choose"):
            self.talk.answer(FlowAnswer(option=number))

    def action_undo(self) -> None:
        """A list of what can be taken back; Enter there takes it back."""
        if self.mode == "choose" and self._undoable:
            self._undoing, self._whole = True, None
            self.redraw()

    def action_edit(self) -> None:
        """The command line in a field."""
        if self.mode == "choose" and self._whole is None and _can_be_edited(self._option()):
            self._editing = self._place
            self.redraw()

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
        text = ended.report if ended is not None else ""
        if preview is not None:
            text = plain_text(preview.lines)
        if text:
            self.app.copy_to_clipboard(plain_text(text.splitlines()))
            self.notify("Copied, where the terminal takes it (OSC 52).", timeout=3)
        if mode == "terminal":
            self.talk.answer(FlowAnswer(declined=True))

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
            self.notify(f"Written: {foreign(path)}", timeout=6, markup=False)
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
        self._look_for_end()
        self._show_keys()

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
        self.notify(words, severity="warning", timeout=4, markup=False)

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


_YES = {"edit": "take this command", "undo": "take it back"}


def _can_be_edited(preview: Preview | None) -> bool:
    return preview is not None and preview.form == "command" and bool(preview.lines)


def _number(key: Hashable) -> int:
    assert isinstance(key, int)
    return key
