"""WireDiff: after every frame the terminal shows what the compositor has, for fewer bytes."""

from __future__ import annotations

import inspect
import os
import random
import sys

import pytest
from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual import _compositor
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widgets import DataTable, Input, Static

from cockpit.tui import theme
from cockpit.tui.line import Line, Row
from cockpit.tui.widgets.line_view import FixedLines, LineView
from cockpit.tui.wire import WireDiff
from cockpit.tui.wire_cells import _NARROW, TAIL, CellReader, Pens
from cockpit.tui.wire_picture import CLEAR, Picture
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


# Cells by themselves


def strip(*parts: tuple[str, str]) -> Strip:
    return Strip([Segment(text, Style.parse(style)) for text, style in parts])


def picture(width: int = 20, height: int = 3, **pens) -> Picture:
    one = Picture(width, height, CellReader(Pens(ColorSystem.TRUECOLOR, **pens)))
    assert one.take() == CLEAR
    return one


def test_a_changed_field_costs_a_move_and_its_characters():
    one = picture()
    one.show_line(0, [strip(("GPU 0  97 %  600 W", ""))])
    one.take()
    one.show_line(0, [strip(("GPU 0  98 %  600 W", ""))])
    assert one.take() == "\x1b[1;9H8"


def test_an_unchanged_line_costs_nothing():
    one = picture()
    one.show_line(1, [strip(("abc", "bold red"))])
    assert one.take()
    one.show_line(1, [strip(("ab", "bold red"), ("c", "bold red"))])
    assert one.take() == ""


def test_a_short_gap_is_sent_again_and_a_long_one_is_jumped_over():
    one = picture()
    one.show_line(0, [strip(("a....b......c", ""))])
    one.take()
    one.show_line(0, [strip(("A....B......C", ""))])
    assert one.take() == "\x1b[1HA....B\x1b[6CC"


def test_the_pen_is_kept_from_frame_to_frame():
    one = picture()
    one.show_line(0, [strip(("a", "red"))])
    assert one.take() == "\x1b[1H\x1b[31ma"
    one.show_line(1, [strip(("b", "red"))])
    assert one.take() == "\x1b[2Hb"


def test_a_blank_does_not_change_the_pen_for_a_foreground_nobody_sees():
    one = picture()
    one.show_line(0, [strip(("a b", "red"))])
    assert one.take() == "\x1b[1H\x1b[31ma b"
    one.show_line(1, [strip(("a", "red"), (" ", "green"), ("b", "red"))])
    assert one.take() == "\x1b[2Ha b"
    one.show_line(2, [strip(("a", "red"), (" ", "underline green"), ("b", "red"))])
    assert "\x1b[4;32m " in one.take()


@pytest.mark.parametrize(
    ("old", "new", "sgr"),
    [
        ("red", "blue", "\x1b[34m"),
        ("bold red", "red", "\x1b[22m"),
        ("bold dim", "bold", "\x1b[0;1m"),
        ("bold red on blue", "", "\x1b[m"),
        ("red", "link https://x.example/", "\x1b[m\x1b]8;;https://x.example/\x1b\\"),
        ("#010203", "#010203 on #040506", "\x1b[48;2;4;5;6m"),
    ],
)
def test_a_change_of_pen_is_the_shorter_of_reset_and_difference(old, new, sgr):
    pens = Pens(ColorSystem.TRUECOLOR)
    assert pens.change(pens.of(Style.parse(old)), pens.of(Style.parse(new))) == sgr


def test_bold_and_dim_end_by_one_code_so_the_one_that_stays_is_set_again():
    pens = Pens(ColorSystem.TRUECOLOR)
    look = "on #111111 #222222"
    old, new = (pens.of(Style.parse(f"{a} {look}")) for a in ("bold dim", "bold"))
    assert pens.change(old, new) == "\x1b[22;1m"


def test_meta_does_not_make_another_pen_and_without_colour_none_is_sent():
    pens = Pens(ColorSystem.TRUECOLOR, colour=False)
    assert pens.of(Style.parse("red on blue")) == pens.plain
    assert pens.of(Style(meta={"a": 1})) == pens.plain
    assert pens.change(pens.plain, pens.of(Style.parse("bold red"))) == "\x1b[1m"


def test_wide_characters_have_a_tail_and_clusters_one_code():
    reader = CellReader(Pens(ColorSystem.TRUECOLOR))
    characters, pens = reader.cells(strip(("a日e\u0301👍🏽", "red")))
    assert (len(characters), len(pens)) == (6, 6)
    assert characters[:3] == "a日" + TAIL
    assert [reader.cluster(characters[3]), reader.cluster(characters[4])] == ["e\u0301", "👍🏽"]


def test_after_a_cluster_the_column_is_set_again():
    one = picture()
    one.show_line(0, [strip(("👍🏽b", ""))])
    assert one.take() == "\x1b[1H👍🏽\x1b[3Gb"


def test_nothing_that_moves_the_cursor_gets_through():
    one = picture()
    one.show_line(0, [strip(("a\x1b[2J\x9b\r\nb\x00\u202ec", ""))])
    assert one.take() == "\x1b[1Ha[2Jbc"


def test_what_is_left_of_a_wide_character_becomes_a_blank():
    one = picture(6, 1)
    one.show_line(0, [strip(("日日日", ""))])
    one.take()
    one.show_part(0, [(1, 1, 3, strip(("xx", "")))])
    assert one.lines[0][0] == " xx 日" + TAIL
    assert one.take() == "\x1b[1H xx "


def test_the_characters_counted_as_narrow_are_what_rich_counts():
    assert {get_character_cell_size(character) for character in _NARROW} == {1}


# Under Textual


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
