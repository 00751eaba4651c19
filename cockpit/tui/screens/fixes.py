"""The menu of what can be done in a run, and the dialog that does one of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from cockpit.model.memory import RunOutcome
from cockpit.tui.line import Line
from cockpit.tui.messages import RowChosen
from cockpit.tui.render.fix import Fix
from cockpit.tui.render.fix_lines import fix_lines, fix_rows, undo_fix
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint, key_line
from cockpit.tui.screens.dialog import keys_of, text_width
from cockpit.tui.screens.run_dialog import RunDialog
from cockpit.tui.widgets.line_view import FixedLines, LineView


class FixMenu(ModalScreen[Fix | None]):
    """Dismissed with the fix that was chosen; nothing is done here."""

    AUTO_FOCUS = "#fixes"
    DEFAULT_CSS = """
    FixMenu #fixes { height: auto; max-height: 55vh; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f", "dismiss(None)", "leave", id="fixes.leave"),
    ]

    def __init__(self, fixes: Sequence[Fix], glyphs: Glyphs) -> None:
        super().__init__()
        self._fixes = {fix.key: fix for fix in fixes}
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """A list to choose from."""
        with Vertical(classes="dialog"):
            yield FixedLines(id="head")
            yield LineView(id="fixes")
            yield FixedLines(id="keys")

    def on_mount(self) -> None:
        """The lists do not change while they are shown."""
        width = text_width(self.app.size.width)
        rows = fix_rows(list(self._fixes.values()), width, self._glyphs)
        self.query_one("#fixes", LineView).show(rows)
        title: Line = (
            (" Fixes in the process", "strong"),
            ("  each asks once before it acts", "dim"),
        )
        self.query_one("#head", FixedLines).show_lines([title, ()])
        hints = key_line([("enter", "look at it"), ("esc", "leave")], width, self._glyphs)
        self.query_one("#keys", FixedLines).show_lines([(), hints])

    @on(RowChosen, "#fixes")
    def chosen(self, event: RowChosen) -> None:
        """Enter or a double click."""
        event.stop()
        if self.is_current:  # a second Enter comes when it is closed already
            self.dismiss(self._fixes.get(str(event.key)))


class FixDialog(RunDialog):
    """One fix: the value where there is one to choose, the question, the outcome, its undo."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "choose(-1)", "value before", id="dialog.value_before"),
        Binding("right", "choose(1)", "next value", id="dialog.next_value"),
    ]

    def __init__(self, fix: Fix) -> None:
        super().__init__()
        self._fix = fix

    def question(self, width: int, glyphs: Glyphs) -> list[Line]:
        """What happens and what is lost."""
        return fix_lines(self._fix, self._fix.request.pid, width, glyphs)

    def action_choose(self, step: int) -> None:
        """Another value; not once it is being done."""
        if not (self.is_busy or self.is_over):
            self._fix = self._fix.stepped(step)
            self.show()

    def more_hints(self) -> list[Hint]:
        """There are values."""
        return (
            [(keys_of(self, "dialog.value_before", "dialog.next_value"), "another value")]
            if self._fix.choices
            else []
        )

    def yes(self) -> str:
        """The question above says what."""
        return "undo it" if self._fix.key == "undo" else "do it"

    async def ask(self) -> RunOutcome:
        """At the next step of the run."""
        return await self.cockpit.session.do_in_run(self._fix.request, self.say)

    def begin_undo(self) -> None:
        """The opposite is a fix like any other: it asks as well."""
        undo = None if self._outcome is None else self._outcome.undo
        if undo is not None:
            self._fix = undo_fix(undo)
            self.start_over()
