"""WireDiff: after every frame the terminal shows what the compositor has, for fewer bytes."""

from __future__ import annotations

import inspect
import os
import random
import sys

import pytest
from textual import _compositor
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Input, Static

from cockpit.tui import theme
from cockpit.tui.line import Line, Row
from cockpit.tui.widgets.line_view import FixedLines, LineView
from cockpit.tui.wire import WireDiff
from cockpit.tui.wire_picture import Picture
from tests.terminal.tmux import Terminal
from tests.terminal.tmux import terminal as tmux_terminal
from tests.tui.captured import (
    CapturingDriver,
    Cell,
    drive,
    driver_of,
    expected,
    resize,
    seen,
    terminal,
)


@pytest.fixture(autouse=True)
def _truecolour(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_the_private_names_of_textual_that_this_stands_on_are_there():
    assert list(inspect.signature(App._display).parameters) == ["self", "screen", "renderable"]
    assert "app._display(self, update)" in inspect.getsource(Screen._compositor_refresh)
    app = App()
    assert (app._batch_count, app._running, app._closed, app._driver) == (0, False, False, None)
    assert isinstance(app.no_color, bool)
    assert hasattr(app.console, "_color_system")
    for update in (LayoutUpdate, ChopsUpdate):
        assert issubclass(update, CompositorUpdate)
    assert list(inspect.signature(LayoutUpdate).parameters) == ["strips", "region"]
    assert list(inspect.signature(ChopsUpdate).parameters) == ["chops", "spans", "chop_ends"]
    assert list(inspect.signature(CompositorUpdate.render_segments).parameters) == [
        "self",
        "console",
    ]
    updates = {name for name, _ in inspect.getmembers(_compositor, inspect.isclass)}
    assert {name for name in updates if name.endswith("Update")} == {
        "ChopsUpdate",
        "CompositorUpdate",
        "InlineUpdate",
        "LayoutUpdate",
    }, "a new kind of update passes untouched: is that right?"


WORDS = [
    "train.py",
    "日本語",
    "--lr",
    "0.001",
    "é",
    "▂▅█",
    "⣿⡇",
    "–",
    "xxxxxxxxx",
    "中",
    "：",
    "  ",
]


class Modal(ModalScreen[None]):
    DEFAULT_CSS = """
    Modal { align: center middle; }
    Modal Static { width: 21; height: 5; background: $panel; }
    """

    def compose(self):
        yield Static("modal 日本 text\nline\n日本日本日本日本日本日本日")


class WireApp(WireDiff[None]):
    CSS = """
    Screen { layers: base top; }
    #floating { layer: top; width: 13; height: 3; offset: 7 3; background: $surface; }
    DataTable { height: 4; }
    """

    def __init__(self) -> None:
        super().__init__(driver_class=CapturingDriver)
        theme.register(self)
        self.theme = theme.DARK

    def compose(self):
        yield LineView(id="list")
        yield FixedLines(id="fixed")
        yield DataTable()
        yield Static("float 日本", id="floating")
        entry = Input("some text", select_on_focus=False)
        entry.cursor_blink = False
        yield entry


class Deeds:
    """Random things to do to the app; a seed makes them the same again."""

    def __init__(self, seed: int, pilot) -> None:
        self.random = random.Random(seed)
        self.pilot = pilot
        self.app: WireApp = pilot.app
        self.base = self.app.screen_stack[0]
        self.size = (60, 16)
        self.screen, self.stream = terminal(*self.size)
        self.rows = [Row(number, self.line()) for number in range(30)]
        table = self.base.query_one(DataTable)
        table.add_columns("a", "b")
        for _ in range(3):
            table.add_row("x", "y")

    def line(self) -> Line:
        count = self.random.randint(0, 9)
        return tuple(
            (self.random.choice(WORDS), self.random.choice(theme.ROLES)) for _ in range(count)
        )

    async def one(self) -> str:
        deed = self.random.choice([name for name in dir(self) if name.startswith("do_")])
        waiting = getattr(self, deed)()
        if waiting is not None:
            await waiting
        return deed

    def do_rows(self):
        for _ in range(3):
            self.rows[self.random.randrange(30)] = Row(self.random.random(), self.line())
        self.base.query_one("#list", LineView).show(self.rows)

    do_rows_again = do_rows_and_again = do_rows

    def do_fixed(self):
        lines = [self.line() for _ in range(self.random.randint(0, 3))]
        self.base.query_one("#fixed", FixedLines).show_lines(lines)

    def do_cell(self):
        self.base.query_one(DataTable).update_cell_at((1, 1), self.random.choice(WORDS))

    async def do_key(self):
        await self.pilot.press(self.random.choice(["j", "G", "g", "pagedown", "tab", "x", "left"]))

    def do_float(self):
        offset = (self.random.randint(0, 50), self.random.randint(0, 10))
        self.base.query_one("#floating").styles.offset = offset

    def do_float_text(self):
        self.base.query_one("#floating", Static).update(self.random.choice(WORDS) * 3)

    def do_modal(self):
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            self.app.push_screen(Modal())

    def do_theme(self):
        self.app.theme = self.random.choice([*(one.name for one in theme.THEMES), "nord"])

    def do_toast(self):
        self.app.notify(f"toast 日本 {self.random.random()}", timeout=0.1)

    def do_resize(self):
        self.size = (self.random.randint(20, 80), self.random.randint(8, 20))
        self.screen.resize(self.size[1], self.size[0])
        resize(self.app, *self.size)

    def do_resize_to_the_same(self):
        resize(self.app, *self.size)

    async def look(self) -> None:
        """Wait until it has settled, then hand the bytes to the terminal."""
        await self.pilot.pause(0.03)
        self.stream.feed(driver_of(self.app).take())


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_the_terminal_shows_the_compositors_picture(seed):
    async def steps(pilot) -> None:
        deeds = Deeds(seed, pilot)
        for number in range(90):
            deed = await deeds.one()
            await deeds.look()
            for _ in range(20):  # a toast may come or go just now
                if seen(deeds.screen) == expected(deeds.app):
                    break
                await deeds.look()
            assert seen(deeds.screen) == expected(deeds.app), f"step {number}: {deed}"
        assert deeds.app.wire_diff, "it gave up"

    drive(WireApp(), steps)


async def settled(pilot) -> str:
    await pilot.pause(0.03)
    return driver_of(pilot.app).take()


def test_one_changed_value_is_a_few_bytes_and_none_is_none():
    async def steps(pilot) -> None:
        view = pilot.app.query_one("#list", LineView)
        view.show([Row(n, ((f"row {n} 10 %", ""),)) for n in range(30)])
        await settled(pilot)
        view.show([Row(n, ((f"row {n} 1{n // 3 and 0} %", ""),)) for n in range(30)])
        assert await settled(pilot) == ""
        view.show([Row(n, ((f"row {n} 1{n == 0:d} %", ""),)) for n in range(30)])
        assert 0 < len(await settled(pilot)) < 60
        pilot.app.screen.refresh()
        assert await settled(pilot) == ""

    drive(WireApp(), steps)


def test_ctrl_l_and_a_resize_to_the_same_size_repair_a_screen_that_was_written_on():
    async def steps(pilot) -> None:
        app = pilot.app
        screen, stream = terminal(60, 16)
        stream.feed(await settled(pilot))
        for repair in (lambda: pilot.press("ctrl+l"), lambda: resize(app, 60, 16)):
            stream.feed("\x1b[5;5H\x1b[31mwall: the machine goes down\x1b[m")
            assert seen(screen) != expected(app)
            waiting = repair()
            if waiting is not None:
                await waiting
            stream.feed(await settled(pilot))
            assert seen(screen) == expected(app)

    drive(WireApp(), steps)


def test_switched_off_the_bytes_are_textuals_own():
    async def steps(pilot) -> None:
        app = pilot.app
        screen, stream = terminal(60, 16)
        stream.feed(await settled(pilot))
        app.wire_diff = False
        app.screen.refresh()
        frame = await settled(pilot)
        assert len(frame) > 500
        stream.feed(frame)
        assert seen(screen) == expected(app)

    drive(WireApp(), steps)


def test_after_an_error_in_here_textuals_own_bytes_go_on_and_it_is_logged_once(monkeypatch, caplog):
    async def steps(pilot) -> None:
        app = pilot.app
        screen, stream = terminal(60, 16)
        view = app.query_one("#list", LineView)
        view.show([Row(1, (("before", "error"),))])
        stream.feed(await settled(pilot))
        monkeypatch.setattr(Picture, "show_part", lambda *_: 1 / 0)
        for word in ("one", "two", "three"):
            view.show([Row(1, ((word, "strong"),))])
            stream.feed(await settled(pilot))
            assert seen(screen) == expected(app)
        assert not app.wire_diff
        assert len([r for r in caplog.records if r.name == "cockpit.tui.wire"]) == 1

    drive(WireApp(), steps)


def test_a_headless_app_is_left_alone():
    async def main() -> None:
        app = WireApp()
        app.driver_class = None
        async with app.run_test(size=(60, 16)) as pilot:
            await pilot.pause()
            assert app._picture is None

    import asyncio

    asyncio.run(main())


LIVE = """
import random, sys
from tests.tui.test_wire import *
from cockpit.tui.driver import QuickDriver
class Live(WireApp):
    def __init__(self):
        super().__init__()
        self.driver_class = QuickDriver
    def on_mount(self):
        self.deeds = random.Random(5)
        self.count = 0
        self.set_interval(0.02, self.act)
    def act(self):
        self.count += 1
        if self.count > 60:
            self.query_one("#fixed", FixedLines).show_lines([(("finished", "title"),)])
            return
        some = [tuple((self.deeds.choice(WORDS), self.deeds.choice(theme.ROLES)) for _ in range(7))
                for _ in range(20)]
        self.query_one("#list", LineView).show(Row(n, line) for n, line in enumerate(some))
        self.query_one("#floating").styles.offset = (self.deeds.randint(0, 50), 3)
    def on_key(self, event):
        if event.key == "f5":
            self.wire_diff = False
            self.screen.refresh()
Live().run()
"""


def cells_in(captured: str) -> list[list[Cell]]:
    screen, stream = terminal(60, 16)
    stream.feed(captured.rstrip("\n"))
    return seen(screen)


def whole(box: Terminal) -> str:
    """The screen with its styles, trailing blanks too."""
    return box._run("capture-pane", "-p", "-e", "-N")


@pytest.mark.terminal
def test_in_a_real_terminal_the_picture_is_the_one_that_textual_alone_would_leave(tmp_path):
    script = tmp_path / "live.py"
    script.write_text(LIVE)
    with tmux_terminal(60, 16) as box:
        box.start(f"{sys.executable} {os.fspath(script)}")
        box.wait_for("finished")
        box.wait_for(lambda screen: "日本" in screen)
        short = whole(box)
        box.type("F5")  # the whole screen by Textual's own bytes: blanks get other foregrounds
        box.wait_for(lambda _: whole(box) != short)
        assert cells_in(whole(box)) == cells_in(short)
