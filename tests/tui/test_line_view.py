"""LineView: the cursor stays on its key, only changed lines are refreshed, nothing gets through."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.geometry import Region

from cockpit.tui import theme
from cockpit.tui.line import LateRows, Line, Row
from cockpit.tui.messages import RowChosen, RowHighlighted
from cockpit.tui.theme import ROLES
from cockpit.tui.widgets.line_view import FixedLines, LineView
from cockpit.tui.widgets.strips import to_strip

HEADER: Line = (("PID    COMMAND", "label"),)
EMPTY: Line = (("nothing here, because nothing runs", "dim"),)


def row(key: object, text: str | None = None) -> Row:
    return Row(key, ((f"{key}: ", "label"), (text or f"text {key}", "")))


def rows(*keys: object) -> list[Row]:
    return [row(key) for key in keys]


class Watched(LineView):
    """Keeps what was refreshed."""

    def __init__(self, *args, **kwargs) -> None:
        self.refreshed: list[Region] = []
        super().__init__(*args, **kwargs)

    def refresh(self, *regions, **kwargs):
        self.refreshed += regions or [Region(-1, -1, 0, 0)]
        return super().refresh(*regions, **kwargs)

    def lines_refreshed(self) -> list[int]:
        lines = [region.y for region in self.refreshed]
        assert all(region == Region(0, region.y, self.size.width, 1) for region in self.refreshed)
        self.refreshed.clear()
        return lines


class ListApp(App[None]):
    """A list of six lines: a header and five rows."""

    CSS = "Watched, FixedLines { height: 6; }"

    def __init__(self, view: LineView) -> None:
        super().__init__()
        theme.register(self)
        self.theme = theme.DARK
        self.view = view
        self.told: list[object] = []

    def compose(self):
        yield self.view

    def on_row_highlighted(self, message: RowHighlighted) -> None:
        self.told.append(message.key)

    def on_row_chosen(self, message: RowChosen) -> None:
        self.told.append(("chosen", message.key))


def text(view: LineView) -> list[str]:
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


@pytest.fixture
async def listed():
    """The app and its list with twenty rows, quiet."""
    view = Watched(rows(*range(20)), header=HEADER, empty=EMPTY)
    app = ListApp(view)
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        view.refreshed.clear()
        yield app, view, pilot


async def test_only_the_line_of_a_changed_row_is_refreshed(listed):
    _, view, _ = listed
    view.show([row(key, "new" if key == 3 else None) for key in range(20)])
    assert view.lines_refreshed() == [4]


async def test_nothing_is_refreshed_when_nothing_changed_or_what_changed_is_out_of_view(listed):
    _, view, _ = listed
    view.show(rows(*range(20)))
    view.show([row(key, "new" if key == 15 else None) for key in range(20)])
    assert view.lines_refreshed() == []


async def test_a_cursor_key_refreshes_two_lines(listed):
    _, view, pilot = listed
    await pilot.press("j")
    assert view.cursor == 1
    assert view.lines_refreshed() == [1, 2]


@pytest.mark.parametrize("key", ["up", "k", "pageup", "home", "g"])
async def test_a_key_that_cannot_move_the_cursor_repaints_its_row_each_time(listed, key):
    _, view, pilot = listed
    await pilot.press(key)
    assert view.lines_refreshed() == [1]
    await pilot.press(key)
    assert view.lines_refreshed() == [1]


@pytest.mark.parametrize("key", ["down", "j", "pagedown", "end", "G"])
async def test_a_key_at_the_end_of_the_list_repaints_too(listed, key):
    _, view, pilot = listed
    await pilot.press("G")
    assert view.cursor == 19
    view.refreshed.clear()
    await pilot.press(key)
    assert view.lines_refreshed() == [5]


async def test_a_key_in_an_empty_list_repaints_the_reason(listed):
    _, view, pilot = listed
    view.show([])
    assert view.cursor is None
    assert text(view)[1] == "nothing here, because nothing runs"
    view.refreshed.clear()
    await pilot.press("j")
    assert view.lines_refreshed() == [1]


async def test_the_view_scrolls_no_further_than_the_cursor_needs(listed):
    _, view, pilot = listed
    for key, top in (("pagedown", 0), ("j", 1), ("j", 2), ("k", 2), ("G", 15), ("g", 0)):
        await pilot.press(key)
        assert view.top == top, key
    assert text(view) == ["PID    COMMAND", *(f"{n}: text {n}" for n in range(5))]


async def test_the_cursor_stays_on_its_key_when_rows_move(listed):
    _, view, pilot = listed
    await pilot.press("j", "j")
    view.show(rows(*reversed(range(20))))
    assert (view.cursor, view.cursor_index) == (2, 17)
    assert "2: text 2" in text(view)


@pytest.mark.parametrize(
    ("left", "cursor"), [((0, 1, 3, 4), 3), ((0, 4), 4), ((0, 1), 1), ((7, 8), 8)]
)
async def test_when_its_row_vanishes_the_cursor_goes_to_the_next(listed, left, cursor):
    _, view, _ = listed
    view.show(rows(0, 1, 2, 3, 4))
    view.cursor = 2
    view.show(rows(*left))
    assert view.cursor == cursor


async def test_the_cursor_can_be_set_and_an_unknown_key_leaves_it(listed):
    app, view, pilot = listed
    view.cursor = 9
    assert (view.cursor_index, view.top) == (9, 5)
    view.cursor = "gone"
    assert view.cursor == 9
    await pilot.pause()
    assert app.told[-1] == 9


async def test_the_screen_is_told_of_the_cursor_and_of_what_is_chosen(listed):
    app, _, pilot = listed
    app.told.clear()
    await pilot.press("j", "enter")
    await pilot.pause()
    assert app.told == [1, ("chosen", 1)]


async def test_a_click_moves_the_cursor_and_a_double_click_chooses(listed):
    app, view, pilot = listed
    app.told.clear()
    await pilot.click(view, offset=(3, 3))
    assert view.cursor == 2
    await pilot.double_click(view, offset=(3, 4))
    await pilot.pause()
    assert app.told[-1] == ("chosen", 3)


async def test_a_click_on_the_header_or_below_the_rows_does_nothing(listed):
    app, view, pilot = listed
    view.show(rows(0, 1))
    app.told.clear()
    await pilot.double_click(view, offset=(3, 0))
    await pilot.double_click(view, offset=(3, 4))
    await pilot.pause()
    assert (view.cursor, app.told) == (0, [])


async def test_the_wheel_scrolls_and_takes_the_cursor_along(listed):
    _, view, _ = listed
    view._scroll(3)
    assert (view.top, view.cursor) == (3, 3)
    view._scroll(100)
    assert (view.top, view.cursor) == (15, 15)
    view._scroll(-100)
    assert (view.top, view.cursor) == (0, 4)


async def test_another_theme_gives_other_styles_at_once(listed):
    app, view, pilot = listed
    before = view.render_line(2)
    app.theme = theme.LIGHT
    await pilot.pause()
    after = view.render_line(2)
    assert after.text == before.text
    assert [s.style for s in after] != [s.style for s in before]


@pytest.mark.parametrize("css", ["", "border: round red;", "opacity: 50%;", "padding: 0 1;"])
async def test_a_list_is_drawn_with_and_without_a_border_or_fading(css):
    class Styled(ListApp):
        CSS = f"Watched {{ height: 7; {css} }}"

    app = Styled(Watched(rows(*range(20)), header=HEADER))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        update = app.screen._compositor.render_full_update()
        lines = ["".join(strip.text for strip in line) for line in update.strips]
        assert any("PID    COMMAND" in line for line in lines)
        assert sum("text" in line for line in lines) == app.view.body_height
        assert ("╭" in lines[0]) == ("border" in css)


async def test_the_cursor_looks_different_without_focus(listed):
    app, view, pilot = listed
    focused = view.render_line(1)
    app.set_focus(None)
    await pilot.pause()
    assert [s.style for s in view.render_line(1)] != [s.style for s in focused]


async def test_fixed_lines_have_no_cursor_and_take_no_focus():
    view = FixedLines([(("first", "warn"),), (("second", ""),)])
    app = ListApp(view)
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.press("tab", "j", "enter")
        assert (view.cursor, view.has_focus, app.told) == (None, False, [])
        assert text(view)[:2] == ["first", "second"]
        view.show_lines([(("other", ""),)])
        assert text(view)[:2] == ["other", ""]


STYLES = theme.role_styles({}, theme.Style.parse("white on black"))


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 40])
def test_a_strip_has_exactly_the_width_whatever_the_text(width):
    line: Line = (("ab日本語", ""), ("👍🏽é", "warn"), ("x" * 20, "dim"))
    strip = to_strip(line, width, STYLES)
    assert cell_len(strip.text) == strip.cell_length == width


def test_neighbours_of_one_style_are_one_segment():
    strip = to_strip((("a", ""), ("b", ""), ("c", "error"), ("", "warn"), ("d", "")), 8, STYLES)
    assert [segment.text for segment in strip] == ["ab", "c", "d    "]


def test_no_control_character_reaches_the_screen_even_from_a_renderer_that_forgot_to_clean():
    line: Line = (("a\x1b[2Jb\x9b31m\r\n\x00\x7f", ""), ("\u202e\u200b\u2066", "error"))
    text = to_strip(line, 40, STYLES).text
    assert text.isprintable()
    assert text.startswith("a^[[2Jb")


def test_every_role_can_be_drawn():
    strip = to_strip(tuple(("x", role) for role in ROLES), 40, STYLES)
    assert strip.text.rstrip() == "x" * len(ROLES)


def test_late_rows_make_only_what_is_looked_at() -> None:
    made: list[int] = []

    def line(at: int) -> Line:
        made.append(at)
        return ((str(at), ""),)

    rows = LateRows([("key", n) for n in range(500)], line)
    assert len(rows) == 500
    assert rows[7].key == ("key", 7)
    assert not made
    assert [row.line for row in rows[3:5]] == [(("3", ""),), (("4", ""),)]
    assert rows[3].line is rows[3].line
    assert made == [3, 4]
    assert [row.key for row in rows][-1] == ("key", 499)
    with pytest.raises(IndexError):
        rows[500]
