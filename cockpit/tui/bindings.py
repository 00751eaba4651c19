"""The ids of all keys that can be remapped."""

from __future__ import annotations

from functools import lru_cache

from textual.binding import Binding
from textual.dom import DOMNode


def nodes() -> tuple[type[DOMNode], ...]:
    """Every page, dialog and list with keys; imports them all."""
    from cockpit.tui.app import CockpitApp
    from cockpit.tui.screens.finding import FindingScreen
    from cockpit.tui.screens.findings import FindingsScreen
    from cockpit.tui.screens.fixes import FixDialog, FixMenu
    from cockpit.tui.screens.gpu import GpuScreen
    from cockpit.tui.screens.kill import KillDialog
    from cockpit.tui.screens.memory import MemoryScreen
    from cockpit.tui.screens.overview import OverviewScreen
    from cockpit.tui.screens.process import ProcessScreen
    from cockpit.tui.screens.troubleshoot import TroubleshootScreen
    from cockpit.tui.widgets.filter_input import FilterInput
    from cockpit.tui.widgets.line_view import LineView

    return (
        CockpitApp,
        OverviewScreen,
        GpuScreen,
        ProcessScreen,
        MemoryScreen,
        TroubleshootScreen,
        FindingsScreen,
        FindingScreen,
        FixMenu,
        FixDialog,
        KillDialog,
        LineView,
        FilterInput,
    )


@lru_cache(maxsize=1)
def ids() -> frozenset[str]:
    """All that can be remapped; only a config with keys asks."""
    found = set()
    for node in nodes():
        for parent in node.__mro__:
            for binding in vars(parent).get("BINDINGS", ()):
                if isinstance(binding, Binding) and binding.id:
                    found.add(binding.id)
    return frozenset(found)
