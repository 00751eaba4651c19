"""The ids of all keys that can be remapped."""

from __future__ import annotations

from functools import lru_cache

from textual.binding import Binding
from textual.dom import DOMNode


@lru_cache(maxsize=1)
def ids() -> frozenset[str]:
    """Of every page, dialog and list; imports them all, so only a config with keys asks."""
    from cockpit.tui.app import CockpitApp
    from cockpit.tui.screens.gpu import GpuScreen
    from cockpit.tui.screens.kill import KillDialog
    from cockpit.tui.screens.memory import MemoryScreen
    from cockpit.tui.screens.overview import OverviewScreen
    from cockpit.tui.screens.process import ProcessScreen
    from cockpit.tui.screens.troubleshoot import TroubleshootScreen
    from cockpit.tui.widgets.filter_input import FilterInput
    from cockpit.tui.widgets.line_view import LineView

    nodes: tuple[type[DOMNode], ...] = (
        CockpitApp,
        OverviewScreen,
        GpuScreen,
        ProcessScreen,
        MemoryScreen,
        TroubleshootScreen,
        KillDialog,
        LineView,
        FilterInput,
    )
    found = set()
    for node in nodes:
        for parent in node.__mro__:
            for binding in vars(parent).get("BINDINGS", ()):
                if isinstance(binding, Binding) and binding.id:
                    found.add(binding.id)
    return frozenset(found)
