"""Between Textual and the terminal: only cells that changed are sent, as curses does it.

``WireDiff`` is an ``App``. Textual has no picture of the screen and sends whatever
was marked dirty, 2 to 150 times the bytes; this keeps the picture (``wire_picture``). It replaces
the update on its way through ``App._display``, the one door for every frame, so Textual keeps the
sync marks, the cursor's last move and the writer thread. Private names of Textual that this
depends on are listed in tests/tui/test_wire.py, which fails when one of them goes.

The pen stays as it is between frames; ``QuickDriver`` puts it down when the terminal is given back.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from rich.color import ColorSystem
from rich.console import Console
from textual import events
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App, ReturnType, ScreenStackError
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.strip import Strip
from typing_extensions import override

from cockpit.tui.wire_cells import CellReader, Pens
from cockpit.tui.wire_picture import Picture

_log = logging.getLogger(__name__)

_MAX_PENS = 20_000
"""Looks before all is forgotten: a day of work makes hundreds, fades over many themes thousands."""


class _Finished(CompositorUpdate):
    """An update that is bytes already."""

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence

    @override
    def render_segments(self, console: Console) -> str:
        return self.sequence


class _AfterReset(CompositorUpdate):
    """Textual's own update, after the pen that was held is put down: it assumes none is."""

    def __init__(self, update: CompositorUpdate) -> None:
        self.update = update

    @override
    def render_segments(self, console: Console) -> str:
        return "\x1b[m" + self.update.render_segments(console)


class WireDiff(App[ReturnType]):
    """An ``App`` that sends only changed cells: ``class Cockpit(WireDiff[None])``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+l", "repaint", "Repaint", show=False, id="app.repaint"),
    ]

    wire_diff: bool = True
    """False sends Textual's own bytes. It goes off by itself after an error in here."""
    _picture: Picture | None = None
    _reader: CellReader | None = None
    _holds_pen: bool = False

    def forget(self) -> None:
        """Nobody knows what the terminal shows: the next whole screen is sent whole."""
        self._picture = None

    def action_repaint(self) -> None:
        """Draw everything again: nothing else repairs what another program wrote on the screen."""
        self.forget()
        try:
            self.screen.refresh()
        except ScreenStackError:
            return  # before the first screen there is nothing to draw

    def on_resize(self, _event: events.Resize) -> None:
        """Every resize, also to the old size, which Textual ignores: terminals reflow, and
        multiplexers send one after they drew over the screen. Coming back from a suspension does
        the same."""
        if self._picture is not None:  # at the start nothing is drawn yet: the first screen comes
            self.action_repaint()

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        super()._display(screen, self._shortened(renderable))

    def _shortened(self, update: Any) -> Any:
        """The update as the bytes for changed cells; itself where this does not apply; None when
        nothing changed."""
        if not isinstance(update, CompositorUpdate) or not self._is_written():
            return update
        sequence = self._bytes_for(update)
        if sequence is None:
            held, self._holds_pen = self._holds_pen, False
            return _AfterReset(update) if held else update
        self._holds_pen |= bool(sequence)
        return _Finished(sequence) if sequence else None

    def _is_written(self) -> bool:
        """Whether Textual will write this frame, and to a whole screen."""
        driver = self._driver
        return (
            not self._batch_count
            and self._running
            and not self._closed
            and driver is not None
            and not driver.is_headless
            and not driver.is_inline
        )

    def _bytes_for(self, update: CompositorUpdate) -> str | None:
        """None: not known how; Textual's own bytes must go."""
        if not self.wire_diff:
            return None
        try:
            if isinstance(update, LayoutUpdate):
                return _show_layout(self._picture_for(update), update)
            if isinstance(update, ChopsUpdate) and self._picture is not None:
                return _show_chops(self._picture, update)
        except Exception:  # noqa: BLE001 - an error here must not cost the user the session
            self._give_up()
        return None

    def _give_up(self) -> None:
        _log.exception("drawing only what changed failed; Textual's own output from here on")
        self.wire_diff = False
        self.call_later(self.action_repaint)

    def _picture_for(self, update: LayoutUpdate) -> Picture:
        region = update.region
        size = (region.right, region.bottom)
        reader = self._current_reader()
        if self._picture is None or self._picture.size != size:
            self._picture = Picture(*size, reader)
        return self._picture

    def _current_reader(self) -> CellReader:
        system = self.console._color_system or ColorSystem.TRUECOLOR
        reader = self._reader
        if reader is None or reader.pens.system != system or len(reader.pens) > _MAX_PENS:
            self.forget()
            reader = self._reader = CellReader(Pens(system, colour=not self.no_color))
        return reader


def _show_layout(picture: Picture, update: LayoutUpdate) -> str:
    for y, line in enumerate(update.strips, update.region.y):
        picture.show_line(y, line)
    return picture.take()


def _show_chops(picture: Picture, update: ChopsUpdate) -> str:
    """Spans of one line are applied together, each chop cropped strictly to its span (Textual's
    own rendering has no left crop)."""
    width, height = picture.size
    parts: dict[int, list[tuple[int, int, int, Strip]]] = {}
    for y, x1, x2 in update.spans:
        if y >= height:
            continue
        for x, strip in update.chops[y].items():
            if strip is None:
                continue
            start, end = max(x, x1), min(x + strip.cell_length, x2, width)
            if start < end:
                parts.setdefault(y, []).append((x, start, end, strip))
    for y, line in parts.items():
        picture.show_part(y, line)
    return picture.take()
