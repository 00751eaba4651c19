"""What attach and the fixes have in common: the question, one confirmation, progress, outcome.

Nothing is done before ``enter`` or ``y``; while it is done, ``esc`` leaves and the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from cockpit.errors import CockpitError
from cockpit.model.memory import RunOutcome
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, wrapped
from cockpit.tui.render.fix_lines import outcome_lines
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint, key_lines
from cockpit.tui.screens.dialog import body_height, keys_of, text_width
from cockpit.tui.widgets.line_view import FixedLines

if TYPE_CHECKING:
    from cockpit.tui.app import CockpitApp

_PROGRESS = 4


class RunDialog(ModalScreen[bool]):
    """Dismissed with whether something was done."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    RunDialog #keys { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "leave", "leave", id="dialog.leave", key_display="esc"),
        Binding("enter,y", "confirm", "do it", id="dialog.confirm", key_display="enter"),
        Binding("u", "undo", "undo", id="dialog.undo"),
        Binding("up", "scroll(-1)", "up", id="dialog.up"),
        Binding("down", "scroll(1)", "down", id="dialog.down"),
        Binding("pageup", "scroll(-8)", "up", id="dialog.page_up"),
        Binding("pagedown", "scroll(8)", "down", id="dialog.page_down"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._progress: list[str] = []
        self._outcome: RunOutcome | None = None
        self._error: str | None = None
        self._busy = False
        self._done = False
        self._shown: list[Line] = []
        self._end_seen = False
        self._height = 1
        """Lines of the question's pane."""

    def compose(self) -> ComposeResult:
        """Lines alone: nothing has to be typed."""
        with Vertical(classes="dialog"):
            yield FixedLines(id="plan")
            yield FixedLines(id="keys")

    def on_mount(self) -> None:
        """The question stands there at once."""
        self.show()

    @property
    def cockpit(self) -> CockpitApp:
        """The app, by its own type."""
        return cast("CockpitApp", self.app)

    # -- what a dialog of this kind says

    def question(self, width: int, glyphs: Glyphs) -> list[Line]:
        """What happens, and what is lost by it."""
        raise NotImplementedError

    def can_confirm(self) -> bool:
        """Whether there is anything to be done."""
        return True

    def yes(self) -> str:
        """What ``enter`` does, in two words."""
        raise NotImplementedError

    def more_hints(self) -> list[Hint]:
        """Keys of the question besides yes and no."""
        return []

    async def perform(self) -> RunOutcome:
        """Raises CockpitError with a sentence."""
        raise NotImplementedError

    @property
    def is_busy(self) -> bool:
        """It is being done."""
        return self._busy

    @property
    def is_over(self) -> bool:
        """It was done, or has failed."""
        return self._outcome is not None or self._error is not None

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
            if self._seen_whole:
                self._run()
            else:  # nobody confirms what was below the edge
                self.query_one("#plan", FixedLines).action_page_down()
                self._show_keys()

    @property
    def _seen_whole(self) -> bool:
        """The end of the question has been on screen."""
        body = self.query_one("#plan", FixedLines)
        if body.rows and body.size.height:
            last = body.top + min(body.body_height, self._height)
            self._end_seen = self._end_seen or last >= len(body.rows)
        return self._end_seen

    def action_undo(self) -> None:
        """Ask anew, for the opposite."""
        undo = None if self._outcome is None else self._outcome.undo
        if undo is not None:
            self.begin_undo()

    def action_scroll(self, lines: int) -> None:
        """A long outcome, such as a profile."""
        body = self.query_one("#plan", FixedLines)
        for _ in range(abs(lines)):
            (body.action_cursor_up if lines < 0 else body.action_cursor_down)()
        self._show_keys()

    def on_resize(self) -> None:
        """Another width is another text."""
        self.call_after_refresh(self.show)

    def begin_undo(self) -> None:
        """Overridden where outcomes can be undone."""

    def start_over(self) -> None:
        """Back to the question."""
        self._progress, self._outcome, self._error = [], None, None
        self.show()

    @work(exclusive=True, exit_on_error=False)
    async def _run(self) -> None:
        self._busy = self._done = True
        self.show()
        try:
            self._outcome = await self.perform()
        except CockpitError as error:
            self._error = str(error)
        self._busy = False
        self.show()

    def say(self, sentence: str) -> None:
        """Progress."""
        self._progress.append(sentence)
        self.show()

    # -- what is seen

    def show(self) -> None:
        """Draw the state."""
        view = self.cockpit.view
        if view is None or not self.is_attached:
            return
        width = text_width(self.app.size.width)
        body = [view.glyphs.finish(line) for line in self._body(width, view.glyphs)]
        if body != self._shown:  # another text has to be seen to its end anew
            self._shown, self._end_seen = body, False

        def keys(fits: bool) -> list[Line]:
            return key_lines(self._hints(fits=fits, seen=fits), width, view.glyphs)

        self._height = body_height(len(body), self.app.size.height, keys)
        plan = self.query_one("#plan", FixedLines)
        plan.styles.height = self._height
        plan.show_lines(body)
        self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        view = self.cockpit.view
        if view is None or not self.is_attached:
            return
        fits = len(self._shown) <= self._height
        hints = self._hints(fits=fits, seen=fits or self._seen_whole)
        lines = key_lines(hints, text_width(self.app.size.width), view.glyphs)
        self.query_one("#keys", FixedLines).show_lines([(), *lines])

    def _body(self, width: int, glyphs: Glyphs) -> list[Line]:
        if self._error is not None:
            return sentence_lines(self._error, width, glyphs)
        if self._outcome is not None:
            return outcome_lines(self._outcome, width, glyphs)
        lines = self.question(width, glyphs)
        if self._busy:
            said: Sequence[str] = self._progress[-_PROGRESS:] or ["asking the engine"]
            return [*lines, (), *(((f" {foreign(one)} …", "dim"),) for one in said)]
        return lines

    def _hints(self, *, fits: bool, seen: bool) -> list[Hint]:
        """The keys that do something; ``fits``: nothing has to be scrolled to."""
        leave, confirm = keys_of(self, "dialog.leave"), keys_of(self, "dialog.confirm")
        scroll = [] if fits else [(keys_of(self, "dialog.up", "dialog.down"), "scroll")]
        if self._busy:
            return [(leave, "leave; it goes on"), *scroll]
        if self.is_over:
            can_undo = self._outcome is not None and self._outcome.undo is not None
            undo = [(keys_of(self, "dialog.undo"), "undo")] if can_undo else []
            return [(confirm, "close"), *undo, *scroll]
        hints: list[Hint] = [*self.more_hints(), (leave, "leave it alone"), *scroll]
        yes = self.yes() if seen else "see the rest first"
        return [(confirm, yes), *hints] if self.can_confirm() else hints


def sentence_lines(text: str, width: int, glyphs: Glyphs) -> list[Line]:
    """A refusal or a failure."""
    parts = wrapped(foreign(text), max(8, width - 4))
    return [
        ((f" {glyphs.no if not number else ' '} ", "error"), (part, ""))
        for number, part in enumerate(parts)
    ]
