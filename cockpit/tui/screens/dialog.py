"""What dialogs share: their measures, and a text that is read to its end and then confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen

from cockpit.errors import CockpitError
from cockpit.tui.line import Line
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint, key_lines
from cockpit.tui.widgets.line_view import FixedLines

if TYPE_CHECKING:
    from cockpit.tui.app import CockpitApp

_WIDEST = 132
_EDGE = 4
"""Columns that border and padding of the dialog take."""
_FRAME = 2
"""Lines that the border takes."""


def text_width(columns: int) -> int:
    """Columns of text in a dialog on a screen of ``columns`` (cockpit.tcss says the same)."""
    return min(_WIDEST, columns * 9 // 10) - _EDGE


def body_height(lines: int, screen: int, keys: Callable[[bool], list[Line]], below: int) -> int:
    """Lines of the body: all of them, or what the screen leaves beside the frame, the ``below``
    lines between body and keys, and the keys that are needed then: ``keys(fits)``.

    Reckoned, not laid out: the keys say "see the rest first" in the same frame as the text.
    """
    if lines <= screen - _FRAME - below - len(keys(True)):
        return max(1, lines)
    return max(1, min(lines, screen - _FRAME - below - len(keys(False))))


def keys_of(dialog: Screen[bool], *ids: str) -> str:
    """The first key of each of these bindings as bound now; a remapped key shows itself."""
    bound: dict[str, str] = {}
    for one in dialog.active_bindings.values():
        if one.binding.id in ids:
            bound.setdefault(one.binding.id or "", dialog.app.get_key_display(one.binding))
    return " ".join(bound[id_] for id_ in ids if id_ in bound)


class ConfirmDialog(ModalScreen[bool]):
    """A question, one confirmation, progress, what came of it. Dismissed with whether anything was
    done. Nothing is done before its end was on screen; once begun, it goes on whoever leaves.
    """

    AUTO_FOCUS = ""

    def __init__(self) -> None:
        super().__init__()
        self._progress: list[str] = []
        self._error: str | None = None
        self._busy = False
        self._done = False
        self._shown: list[Line] = []
        self._end_seen = False
        self._height = 1
        """Lines of the text's pane."""

    def compose(self) -> ComposeResult:
        """Text, what else a kind of dialog has, keys."""
        with Vertical(classes="dialog"):
            yield FixedLines(id="plan")
            yield from self.between()
            yield FixedLines(id="keys")

    def on_mount(self) -> None:
        """The question stands there at once. (Textual calls the handler of each class.)"""
        self.show()

    @property
    def cockpit(self) -> CockpitApp:
        """The app, by its own type."""
        return cast("CockpitApp", self.app)

    # -- what a kind of dialog says

    def between(self) -> ComposeResult:
        """Widgets between text and keys."""
        return ()

    @property
    def lines_between(self) -> int:
        """Lines between text and keys: what is visible of them, and an empty one."""
        return 1

    def body(self, width: int, glyphs: Glyphs) -> list[Line]:
        """The text as it is now."""
        raise NotImplementedError

    def hints(self, *, fits: bool, seen: bool) -> list[Hint]:
        """The keys that do something; ``fits``: nothing has to be scrolled to."""
        raise NotImplementedError

    def can_confirm(self) -> bool:
        """Whether there is anything to be done."""
        return True

    @property
    def is_over(self) -> bool:
        """It was done, or has failed."""
        return self._error is not None

    @property
    def is_busy(self) -> bool:
        """It is being done."""
        return self._busy

    def confirmed(self) -> None:
        """``enter``, and the end of the text has been seen."""
        self.run_it()

    async def perform(self) -> None:
        """Do it and keep what came of it. Raises CockpitError with a sentence."""
        raise NotImplementedError

    # -- keys

    def action_leave(self) -> None:
        """What was begun goes on."""
        if self.is_current:
            self.dismiss(self._done)

    def action_confirm(self) -> None:
        """Do it; after the end, leave."""
        if self.is_over:
            self.action_leave()
        elif not self._busy and self.can_confirm():
            if self.seen_whole:
                self.confirmed()
            else:
                self.scroll_on()  # nobody confirms what was below the edge

    def action_scroll(self, lines: int) -> None:
        """A long text."""
        text = self._text
        for _ in range(abs(lines)):
            (text.action_cursor_up if lines < 0 else text.action_cursor_down)()
        self._show_keys()

    def scroll_on(self) -> None:
        """A page."""
        self._text.action_page_down()
        self._show_keys()

    def run_it(self) -> None:
        """Busy at once: a key that was typed ahead changes nothing any more."""
        self._busy = self._done = True
        self.show()
        self._carry_out()

    @work(group="run", exit_on_error=False)
    async def _carry_out(self) -> None:
        try:
            await self.perform()
        except CockpitError as error:
            self._error = str(error)
        self._busy = False
        self.show()

    def say(self, sentence: str) -> None:
        """Progress."""
        self._progress.append(sentence)
        self.show()

    # -- what is seen

    @property
    def _text(self) -> FixedLines:
        return self.query_one("#plan", FixedLines)

    @property
    def _fits(self) -> bool:
        return len(self._shown) <= self._height

    @property
    def seen_whole(self) -> bool:
        """The end of the text has been on screen."""
        text = self._text
        last = text.top + min(text.body_height, self._height)
        self._end_seen = self._end_seen or self._fits or last >= len(text.rows)
        return self._end_seen

    def show(self) -> None:
        """Draw the state: all of the text where the screen has room for it beside the keys."""
        view = self.cockpit.view
        if view is None or not self.is_attached:
            return
        glyphs, width = view.glyphs, text_width(self.app.size.width)
        shown = [glyphs.finish(line) for line in self.body(width, glyphs)]
        if shown != self._shown:  # another text has to be seen to its end anew
            self._shown, self._end_seen = shown, False

        def keys(fits: bool) -> list[Line]:
            return key_lines(self.hints(fits=fits, seen=fits), width, glyphs)

        self._height = body_height(len(shown), self.app.size.height, keys, self.lines_between)
        self._text.styles.height = self._height
        self._text.show_lines(shown)
        self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        view = self.cockpit.view
        if view is not None and self.is_attached:
            hints = self.hints(fits=self._fits, seen=self.seen_whole)
            lines = key_lines(hints, text_width(self.app.size.width), view.glyphs)
            self.query_one("#keys", FixedLines).show_lines([(), *lines])

    def on_resize(self) -> None:
        """Another width is another text."""
        self.call_after_refresh(self.show)
