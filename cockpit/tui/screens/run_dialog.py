"""What attach and the fixes have in common: the question, one confirmation, progress, outcome.

Nothing is done before ``enter`` or ``y``; while it is done, ``esc`` leaves and the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from typing_extensions import override

from cockpit.model.memory import RunOutcome
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, wrapped
from cockpit.tui.render.fix_lines import outcome_lines
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.key_line import Hint
from cockpit.tui.screens.dialog import ConfirmDialog, keys_of

_PROGRESS = 4


class RunDialog(ConfirmDialog):
    """Dismissed with whether something was done."""

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
        self._outcome: RunOutcome | None = None

    # -- what a dialog of this kind says

    def question(self, width: int, glyphs: Glyphs) -> list[Line]:
        """What happens, and what is lost by it."""
        raise NotImplementedError

    def yes(self) -> str:
        """What ``enter`` does, in two words."""
        raise NotImplementedError

    def more_hints(self) -> list[Hint]:
        """Keys of the question besides yes and no."""
        return []

    async def ask(self) -> RunOutcome:
        """Ask the engine to do it. Raises CockpitError with a sentence."""
        raise NotImplementedError

    @override
    async def perform(self) -> None:
        self._outcome = await self.ask()

    @property
    @override
    def is_over(self) -> bool:
        return self._outcome is not None or super().is_over

    # -- keys

    def action_undo(self) -> None:
        """Ask anew, for the opposite."""
        undo = None if self._outcome is None else self._outcome.undo
        if undo is not None:
            self.begin_undo()

    def begin_undo(self) -> None:
        """Overridden where outcomes can be undone."""

    def start_over(self) -> None:
        """Back to the question."""
        self._progress, self._outcome, self._error = [], None, None
        self.show()

    # -- what is seen

    @override
    def body(self, width: int, glyphs: Glyphs) -> list[Line]:
        if self._error is not None:
            return sentence_lines(self._error, width, glyphs)
        if self._outcome is not None:
            return outcome_lines(self._outcome, width, glyphs)
        lines = self.question(width, glyphs)
        if self._busy:
            said: Sequence[str] = self._progress[-_PROGRESS:] or ["asking the engine"]
            return [*lines, (), *(((f" {foreign(one)} …", "dim"),) for one in said)]
        return lines

    @override
    def hints(self, *, fits: bool, seen: bool) -> list[Hint]:
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
