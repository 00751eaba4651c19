"""How a guided flow is drawn: panes, their heights, what the page is for right now.

What keys say to the flow is in ``troubleshoot.py``; what stands in the panes in ``render/flow_*``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widgets import Input

from cockpit.model.flow import Ask, Choose, Confirm, Ended, InTerminal
from cockpit.model.remedy import Preview
from cockpit.tui.flow_talk import FlowTalk
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.flow_keys import Keys, key_words
from cockpit.tui.render.flow_lines import busy_line, flow_title, owner_lines
from cockpit.tui.render.flow_page import FlowPage, Mode, Whole, busy_lines, flow_page
from cockpit.tui.render.flow_preview import command_of
from cockpit.tui.render.key_line import Hint, key_lines
from cockpit.tui.screens.base import Page
from cockpit.tui.view import View
from cockpit.tui.widgets.line_view import FixedLines, LineView

_BRIEF_S = 0.3
"""A shorter wait for the engine is not shown."""


class FlowScreen(Page):
    """The drawn part of the troubleshoot page."""

    AUTO_FOCUS = ""
    OWN_DIGITS = True
    DEFAULT_CSS = """
    FlowScreen #found, FlowScreen #choices { height: 1; }
    FlowScreen #preview { height: 1fr; }
    FlowScreen #field {
        border: none; height: 1; padding: 0 1; background: $surface; display: none;
    }
    FlowScreen #keys { height: auto; dock: bottom; }
    """

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
        """The last line of what would run has been on screen."""
        self._laid_out = False

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

    def draw(self, view: View) -> None:
        """What comes while the terminal is too small is not seen: it cannot be confirmed."""
        super().draw(view)
        if self.has_class("small"):
            self._drawn, self._end_seen = self._drawn[:2], False
            self.query("#found, #choices, #field").set(display=False)

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
        self._drawn, self._laid_out = drawn, False
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
            story = self._story(view, room - rows, pane) if self._whole is None else []
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

    def _story(self, view: View, room: int, pane: Sequence[Line]) -> list[Line]:
        """What was found; above it whose process it is, where it is somebody else's."""
        # Uids of a demo or of a recording are not of this machine.
        every = view.snapshot.processes if view.source == "live" else ()
        found = (one for one in every if one.pid == self.talk.pid)
        width = self.app.size.width
        whose = owner_lines(next(found, None), os.geteuid(), width, view.glyphs)
        return [*whose, *self._page.story(room - len(whose), pane)]

    def _fill_preview(self, lines: Sequence[Line], mode: Mode) -> None:
        old = [row.line for row in self._preview.rows]
        if old == list(lines):
            return
        self._end_seen = False  # another text has to be seen to its end anew
        at_end = self._preview.top + self._preview.body_height >= len(old)
        self._preview.show_lines(lines)
        if mode == "busy" and at_end:
            self._preview.action_end()
        elif mode != "busy":  # else its end might be on screen without its beginning
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
            self._laid_out = True
            self.look_for_end()
            self.show_keys()

    def look_for_end(self) -> None:
        """Whether the last line of the preview is on screen; before it is laid out nothing is."""
        pane = self._preview
        if self._laid_out and pane.rows and pane.top + pane.body_height >= len(pane.rows):
            self._end_seen = True

    def show_keys(self) -> None:
        """The key line for what there is now."""
        view = self.cockpit.view
        if view is not None:
            self.query_one("#keys", FixedLines).show_lines(self._key_lines(view, self.mode))

    def _key_lines(self, view: View, mode: Mode) -> list[Line]:
        keys = Keys(
            mode, self._whole, self.talk.state, self._option(), self._is_cut, self._end_seen
        )
        words = key_words(keys)
        bound = {
            one.binding.id: self.app.get_key_display(one.binding)
            for one in reversed(self.active_bindings.values())
            if one.binding.id
        }
        bound.setdefault("flow.confirm", "enter")  # a list or a field has it now
        hints: list[Hint] = [(bound[id_], word) for id_, word in words if id_ in bound]
        # In a field `d` is a letter: then paging is all there is.
        if self._is_cut and not any(id_ == "flow.whole" and id_ in bound for id_, _ in words):
            hints.append(("PgUp PgDn", "scroll"))
        width, height = self.app.size
        return key_lines(hints, width, view.glyphs)[: max(2, height // 8)]
