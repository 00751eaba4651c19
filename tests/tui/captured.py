"""A driver that keeps what the app writes, and a look at it with pyte's eyes."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

import pyte
from rich.cells import split_graphemes
from rich.color import ColorSystem
from rich.style import Style
from textual import events
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.pilot import Pilot

Cell = tuple[str, str, str, bool, bool, bool]
"""(text, foreground, background, bold, underlined, reversed)"""


class CapturingDriver(HeadlessDriver):
    """Looks like a terminal to the app; the bytes go to ``taken``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.written: list[str] = []

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written.append(data)

    def take(self) -> str:
        taken = "".join(self.written)
        self.written.clear()
        return taken


def drive(
    app: App[Any],
    steps: Callable[[Pilot[Any]], Awaitable[None]],
    size: tuple[int, int] = (60, 16),
) -> None:
    """Run the app on a capturing driver while ``steps`` act."""

    async def auto_pilot(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        await steps(pilot)
        app.exit()

    asyncio.run(app.run_async(headless=False, size=size, auto_pilot=auto_pilot))


def driver_of(app: App[Any]) -> CapturingDriver:
    assert isinstance(app._driver, CapturingDriver)
    return app._driver


def resize(app: App[Any], width: int, height: int) -> None:
    """What the real driver does on SIGWINCH."""
    driver_of(app)._size = (width, height)
    app.post_message(events.Resize(Size(width, height), Size(width, height)))


def terminal(width: int, height: int) -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(width, height)
    screen.set_mode(20)  # line feed returns, as the tty's ONLCR has it
    return screen, pyte.Stream(screen)


def seen(screen: pyte.Screen) -> list[list[Cell]]:
    """What the terminal shows."""
    return [
        [_blank_rule(_pyte_cell(screen.buffer[y][x])) for x in range(screen.columns)]
        for y in range(screen.lines)
    ]


def _pyte_cell(char: pyte.screens.Char) -> Cell:
    return (char.data, char.fg, char.bg, char.bold, char.underscore, char.reverse)


def expected(app: App[Any]) -> list[list[Cell]]:
    """What the compositor would paint from scratch, cell by cell."""
    compositor = app.screen._compositor
    waiting = set(compositor._dirty_regions)
    update = compositor.render_full_update()
    compositor._dirty_regions |= waiting  # looking must not swallow what is still to be painted
    return [[cell for strip in line for cell in _strip_cells(strip)] for line in update.strips]


def _strip_cells(strip: Any) -> list[Cell]:
    cells: list[Cell] = []
    for text, style, _ in strip:
        for start, end, width in split_graphemes(text)[0]:
            style = style or Style()
            look = (_name(style.color), _name(style.bgcolor))
            flags = (bool(style.bold), bool(style.underline), bool(style.reverse))
            if width:
                cells.append(_blank_rule((text[start:end], *look, *flags)))
            if width == 2:
                cells.append(_blank_rule(("", *look, *flags)))
    return cells


def _name(colour: Any) -> str:
    if colour is None or colour.is_default:
        return "default"
    colour = colour.downgrade(ColorSystem.TRUECOLOR)
    if colour.triplet is not None:
        return str(colour.triplet.hex[1:])
    names = ["black", "red", "green", "brown", "blue", "magenta", "cyan", "white"]
    return names[colour.number] if colour.number < 8 else f"bright{names[colour.number - 8]}"


def _blank_rule(cell: Cell) -> Cell:
    """A blank looks the same whatever its foreground and weight, unless underlined or reversed."""
    text, _, background, _, underlined, reverse = cell
    if text == " " and not underlined and not reverse:
        return (" ", "default", background, False, False, False)
    return (unicodedata.normalize("NFC", text), *cell[1:])  # as pyte keeps it
