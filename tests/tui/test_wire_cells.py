"""Cells and pictures by themselves: the bytes for a change, wide characters, pens."""

from __future__ import annotations

import pytest
from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from cockpit.tui.wire_cells import _NARROW, TAIL, CellReader, Pens
from cockpit.tui.wire_picture import CLEAR, Picture


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


def test_a_wide_character_at_the_edge_of_a_part_comes_back_whole():
    one = picture(6, 1)
    wide = strip(("日日日", ""))
    one.show_line(0, [wide])
    one.show_part(0, [(1, 1, 3, strip(("xx", "")))])
    one.take()
    one.show_part(0, [(0, 1, 3, wide)])  # what covered columns 1 and 2 is gone
    assert one.lines[0][0] == ("日" + TAIL) * 3
    assert one.take() == "\x1b[1H日日"


def test_the_characters_counted_as_narrow_are_what_rich_counts():
    assert {get_character_cell_size(character) for character in _NARROW} == {1}
