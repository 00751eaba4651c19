"""How the GPUs reach each other: NVLink, PCIe, P2P."""

from __future__ import annotations

from cockpit.tui.render.topology_lines import topology_lines
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View


class TopologyScreen(SubPage):
    """The matrix of ``nvidia-smi topo -m``, and which pairs have no peer access."""

    OPENED_BY = "topology"
    HINTS = ("page.back",)

    def show(self, view: View) -> None:
        """The matrix, its legend, the pairs in trouble."""
        snapshot = view.snapshot
        lines = topology_lines(snapshot.topology, snapshot.gpus, self.app.size.width, view.glyphs)
        self.show_lines(view, ((" Links between the GPUs", "title"),), lines)
