"""The line in which a filter is typed."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from cockpit.tui.messages import FilterClosed, FilterTyped

HINT = "words, user:me gpu:0-3 vram>10 sm>50 is:stray is:idle, ! before a word excludes it"


class FilterInput(Input):
    """Posts FilterTyped for each change, FilterClosed on enter and esc."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Show all", id="filter.give_up"),
    ]

    def __init__(self) -> None:
        super().__init__(placeholder=HINT, id="filter", select_on_focus=False)
        self.cursor_blink = False  # a blink costs 0.4 % of a core and bytes for nothing

    def on_focus(self) -> None:
        """It is seen as long as it takes the keys: it lies over the key line."""
        self.add_class("open")

    def on_blur(self) -> None:
        """Tab or a click went elsewhere; the filter stays."""
        self.remove_class("open")

    @on(Input.Changed)
    def pass_on(self, event: Input.Changed) -> None:
        """Every keystroke filters."""
        event.stop()
        self.post_message(FilterTyped(event.value))

    @on(Input.Submitted)
    def keep(self, event: Input.Submitted) -> None:
        """Enter: back to the table, filtered."""
        event.stop()
        self.post_message(FilterClosed(keep=True))

    def action_give_up(self) -> None:
        """Esc: back to the whole table."""
        self.value = ""
        self.post_message(FilterClosed(keep=False))
