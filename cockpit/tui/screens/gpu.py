"""One GPU: its last minutes as plots, all its fields, its memory by owner."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from cockpit.model.gpu import Gpu
from cockpit.model.history import Metric
from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import Line
from cockpit.tui.render.finding_mentions import mentions
from cockpit.tui.render.gpu_page import gpu_page, gpu_title
from cockpit.tui.render.ledger_lines import ledger_lines
from cockpit.tui.render.plot import plots
from cockpit.tui.render.remarks import snapshot_remarks
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View

PLOTTED: tuple[Metric, ...] = ("util", "vram", "power", "temp")
PLOT_EVERY_S = 2.0
"""A plot shifts as a whole, which costs bytes: it moves every other second at the most."""
PLOT_HEIGHT = 9


class GpuScreen(SubPage):
    """Left and right go to the neighbours."""

    HINTS = ("page.back", "gpu.previous", "gpu.next")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous GPU", id="gpu.previous"),
        Binding("right", "step(1)", "next GPU", id="gpu.next"),
    ]

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index
        self._plots: list[Line] = []
        self._plotted: tuple[int, int, int] | None = None

    def choose(self, index: int) -> None:
        """Show another GPU."""
        self._index = index
        self.redraw()

    def action_step(self, step: int) -> None:
        """The next or previous one, round the end."""
        view = self.cockpit.view
        if view is not None and view.snapshot.gpus:
            indices = [gpu.index for gpu in view.snapshot.gpus]
            here = indices.index(self._index) if self._index in indices else 0
            self.choose(indices[(here + step) % len(indices)])

    def flow_subject(self) -> FlowSubject:
        """This card."""
        return FlowSubject(gpu=self._index)

    def show(self, view: View) -> None:
        """Title, plots, fields, memory."""
        gpu = next((one for one in view.snapshot.gpus if one.index == self._index), None)
        width = self.app.size.width
        if gpu is None:
            self.show_lines(view, ((f" GPU {self._index} is not there any more", "warn"),), [])
            return
        remarks = snapshot_remarks(view.snapshot).get(self._index, ())
        title = gpu_title(gpu, width, view.glyphs, remarks)
        plotted = self._plot_lines(view, gpu, width)
        fields = gpu_page(gpu, width, view.glyphs)
        told = mentions(view.snapshot, width, view.glyphs, gpu=self._index)
        self.show_lines(view, title, [*told, *plotted, *fields, (), *self._ledger(view, width)])

    def _plot_lines(self, view: View, gpu: Gpu, width: int) -> list[Line]:
        beat = int(view.history.count * view.interval_s / PLOT_EVERY_S)
        state = (self._index, width, beat)
        if state != self._plotted:
            self._plotted = state
            self._plots = plots(view.history, gpu, PLOTTED, width, PLOT_HEIGHT, view.glyphs)
        return self._plots

    def _ledger(self, view: View, width: int) -> list[Line]:
        ledger = next((one for one in view.snapshot.ledger if one.gpu == self._index), None)
        if ledger is None:
            return [((" the memory of this GPU could not be read", "dim"),)]
        return ledger_lines(ledger, view.snapshot.processes, width, view.glyphs)
