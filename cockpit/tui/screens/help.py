"""The keys of the page that was in front, from its own bindings; what the signs mean."""

from __future__ import annotations

from collections.abc import Mapping

from textual.binding import ActiveBinding, Binding

from cockpit.tui.render.help_lines import KeyGroup, help_lines
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View

_GROUPS = (("app.", "Everywhere"), ("list.", "In a list"), ("", "On this page"))
"""Prefix of a binding's id → the group that it stands in; the first that fits. The last one stands
first: what this page can do is what was asked."""


class HelpScreen(SubPage):
    """Made for one page's bindings."""

    OPENED_BY = "help"
    HINTS = ("page.back",)

    def __init__(self, bindings: Mapping[str, ActiveBinding]) -> None:
        super().__init__()
        self._explained = [one.binding for one in bindings.values() if one.enabled]

    def show(self, view: View) -> None:
        """Keys, the filter's words, the signs."""
        lines = help_lines(self._groups(), self.app.size.width, view.glyphs)
        self.show_lines(view, ((" Help", "title"),), lines)

    def _groups(self) -> list[KeyGroup]:
        keys: dict[str, tuple[Binding, list[str]]] = {}
        for binding in self._explained:
            if binding.id and binding.description and not binding.id.startswith("app.gpu_"):
                keys.setdefault(binding.id, (binding, []))[1].append(
                    self.app.get_key_display(binding)
                )
        groups: dict[str, list[tuple[str, str]]] = {}
        for id_, (binding, names) in keys.items():
            title = next(title for prefix, title in _GROUPS if id_.startswith(prefix))
            words = binding.tooltip or binding.description
            # "esc esc": two keys of one binding may share a display.
            groups.setdefault(title, []).append((" ".join(dict.fromkeys(names)), words))
        if any((one.id or "").startswith("flow.option_") for one in self._explained):
            groups.setdefault("On this page", []).append(("1–9", "Choose that one"))
        else:
            groups.setdefault("Everywhere", []).append(("0–9", "The GPU of that number"))
        order = [title for _, title in reversed(_GROUPS)]
        return [(title, tuple(groups[title])) for title in order if title in groups]
