"""A flow as lines: never too wide, nothing that runs cropped, marks without colour."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.model.flow import Done, Ended, Found
from cockpit.model.process import Process
from cockpit.model.remedy import Preview
from cockpit.tui.line import plain
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.flow_lines import (
    busy_line,
    compared_lines,
    ended_lines,
    found_lines,
    owner_lines,
    story_versions,
    whole_story,
)
from cockpit.tui.render.flow_page import busy_lines, flow_page
from cockpit.tui.render.flow_preview import (
    command_of,
    folded,
    option_rows,
    plain_text,
    preview_lines,
    risk_word,
)
from cockpit.tui.render.glyphs import Glyphs
from tests.tui import flow_states as flows

UNICODE, ASCII = Glyphs.unicode(), Glyphs.ascii()
AGAIN = flows.choosing(flows.RERUN, flows.SUDO, done=(flows.PATCHED, flows.RAN))


def texts(lines):
    return [plain(line) for line in lines]


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_no_line_is_wider_than_the_page(width):
    for glyphs in (UNICODE, ASCII):
        lines = [line for version in story_versions(AGAIN, width, glyphs) for line in version]
        lines += whole_story(AGAIN, width, glyphs)
        lines += [row.line for row in option_rows(AGAIN.prompt, width, glyphs)]
        lines += busy_lines(flows.PATCH, ["漢字" * 200, "x" * 500], width, glyphs)
        lines.append(busy_line("漢字" * 60, 3.0, True, width, glyphs))
        for option in flows.OPTIONS:
            lines += preview_lines(option, width, glyphs, headline=True)
        assert max(line_width(line) for line in lines) <= width
        if glyphs is ASCII:
            assert all(text.isascii() for text in texts(lines))


def test_each_version_of_the_story_is_no_longer_than_the_one_before():
    lengths = [len(version) for version in story_versions(AGAIN, 80, UNICODE)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 1


def test_what_is_not_the_cause_is_summed_up_when_room_is_short():
    lines = texts(found_lines(flows.FOUND, 80, UNICODE, short=True))
    assert lines[-1] == " ✓ 4 checks ok"
    assert not any("Strays?" in line for line in lines)
    assert any(line.startswith(" ✗ What failed?") for line in lines)


def test_the_marks_differ_without_colour():
    found = [Found(mark=m, what="q?", sentence="s") for m in ("ok", "bad", "note", "unknown")]
    for glyphs in (UNICODE, ASCII):
        assert len({line[:3] for line in texts(found_lines(found, 80, glyphs))}) == 4


def test_a_diagnosis_that_a_check_says_already_is_not_said_twice():
    said = replace(AGAIN, cause="The peak is too high")
    new = replace(AGAIN, cause="The batch is too large.")
    first = [texts(next(iter(story_versions(one, 80, UNICODE)))) for one in (said, new)]
    assert first[0][0].startswith(" ✗ What failed?")
    assert first[1][0] == " The batch is too large"


def test_a_command_is_folded_with_every_blank_of_it():
    command = "run  'a   b' " + "x" * 100 + " --last"
    parts = folded(command, 40)
    assert all(len(part) <= 40 for part in parts)
    assert "".join([parts[0], *(part[4:] for part in parts[1:])]) == command


def test_what_is_lost_stands_before_a_long_diff_and_after_a_short_one():
    def order(preview: Preview) -> bool:
        lines = texts(preview_lines(preview, 80, UNICODE))
        lost = next(n for n, line in enumerate(lines) if "You lose" in line)
        return lost < next(n for n, line in enumerate(lines) if "train.py" in line)

    assert not order(flows.PATCH)
    assert order(replace(flows.PATCH, lines=(*flows.DIFF_LINES, *["+x"] * 9)))


def test_a_refusal_stands_in_place_of_what_would_be_lost():
    lines = texts(preview_lines(flows.REFUSED, 80, UNICODE))
    assert any("✗ pid 4711 still runs" in line for line in lines)
    assert not any("You lose" in line or "Undo" in line for line in lines)
    assert any("CUDA_VISIBLE_DEVICES=4" in line for line in lines)


def test_a_diff_has_its_colours_and_its_tabs_are_blanks():
    lines = preview_lines(replace(flows.PATCH, lines=("-\told", "+\tnew", "@@ x")), 80, UNICODE)
    roles = {plain(line).strip(): line[-1][1] for line in lines}
    assert roles["-   old"] == "removed"
    assert roles["+   new"] == "good"
    assert roles["@@ x"] == "accent"


def test_a_tab_in_a_command_is_seen_as_one():
    lines = texts(preview_lines(replace(flows.SUDO, lines=("echo a\tb",)), 80, UNICODE))
    assert any("echo a^Ib" in line for line in lines)


@pytest.mark.parametrize(
    ("preview", "word"),
    [
        (flows.RERUN, "asks once"),
        (flows.PATCH, "asks, typed"),
        (flows.SUDO, "needs sudo"),
        (flows.REFUSED, "cannot run"),
        (replace(flows.RERUN, risk="safe"), "safe"),
    ],
)
def test_each_class_has_its_word(preview, word):
    assert risk_word(preview) == word


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        (flows.RERUN.lines, "torchrun --nproc-per-node 4 train.py --bs 16 --accum 2"),
        (
            (
                "# in docker",
                "cockpit run --name n -- python a.py -- --x",
            ),
            "python a.py -- --x",
        ),
        (("sudo nvidia-smi -pm 1",), "sudo nvidia-smi -pm 1"),
        (("git checkout -- train.py",), "git checkout -- train.py"),
        ((), ""),
    ],
)
def test_what_is_edited_is_the_command_of_the_run(lines, command):
    assert command_of(replace(flows.RERUN, lines=lines)) == command


def test_what_is_copied_keeps_its_tabs_and_loses_what_a_terminal_obeys():
    assert plain_text(["\tif x:\x1b[201~", "rm‮"]) == "\tif x:^[[201~\nrm·\n"


def test_before_and_after_stand_side_by_side():
    assert texts(compared_lines(flows.FREED.compared, 80)) == [
        "                      before    after",
        "   memory of GPU 6  38.9 GiB  0.5 GiB",
        "   processes on it         1        0",
    ]


@pytest.mark.parametrize(
    ("verified", "tried", "begins"),
    [(True, True, " ✓ Verified"), (False, True, " • Not verified"), (False, False, " • all well")],
)
def test_the_end_says_whether_it_helped_where_anything_was_tried(verified, tried, begins):
    ended = Ended(verified=verified, sentence="all well")
    assert texts(ended_lines(ended, tried, 80, UNICODE))[0].startswith(begins)


@pytest.mark.parametrize(
    ("fields", "sign"),
    [
        ({"ok": True, "verified": True}, "✓"),
        ({"ok": True, "verified": False}, "✗"),
        ({"ok": False, "verified": None}, "✗"),
        ({"ok": True, "verified": None}, "•"),
    ],
)
def test_a_fix_is_marked_by_whether_it_helped(fields, sign):
    done = Done(title="t", lines=(), sentence="s", undone=True, **fields)
    state = flows.choosing(found=(), done=(done,))
    assert texts(next(iter(story_versions(state, 80, UNICODE)))) == [f" {sign} t (taken back): s"]


def test_the_story_makes_way_for_what_is_confirmed_but_not_for_progress():
    state = flows.confirming(flows.RERUN)
    page = flow_page(state, "confirm", None, 80, UNICODE)
    assert len(page.story(40, page.panes[0])) > len(page.story(20, page.panes[0])) > 0
    said = [f"step {n}" for n in range(200)]
    busy = busy_lines(flows.RERUN, said, 80, UNICODE)
    running = flow_page(state, "busy", None, 80, UNICODE, busy)
    quiet = flow_page(state, "busy", None, 80, UNICODE, busy[:1])
    assert running.story(30, running.panes[0]) == quiet.story(30, quiet.panes[0])


def test_an_answer_too_long_for_its_row_stands_whole_below():
    long = "a rather long answer " * 8
    page = flow_page(flows.asking("short", long), "ask", None, 60, UNICODE)
    assert page.panes[0] == []
    assert " ".join(plain(line).strip() for line in page.panes[1]).strip() == long.strip()


@pytest.mark.parametrize(
    ("own_uid", "words"),
    [
        (1000, " pid 7 belongs to ml2: only they, or root, can change it."),
        (1001, ""),  # it is ours
        (0, ""),  # root may
    ],
)
def test_a_process_of_somebody_else_says_whose_it_is(own_uid, words):
    process = Process(pid=7, user="ml2", uid=1001)
    lines = owner_lines(process, own_uid, 80, Glyphs.unicode())
    assert "".join(text for line in lines for text, _ in line) == words


def test_the_rest_of_a_folded_diff_line_does_not_look_like_a_line_of_its_own():
    long = replace(flows.PATCH, lines=("-" + "x " * 60, " " + "y " * 60))
    shown = [plain(line)[3:] for line in body_of(long, 80)]
    assert all(line[0] in "- └" for line in shown)
    assert [line[0] for line in shown] == ["-", "└", " ", "└"]


def body_of(preview, width):
    lines = preview_lines(preview, width, UNICODE)
    return [line for line in lines if "x x" in plain(line) or "y y" in plain(line)]


def test_without_colour_a_removed_line_is_not_underlined():
    from cockpit.tui import theme

    styles = next(one for one in theme.THEMES if one.name == theme.NO_COLOUR).variables
    assert "underline" not in styles["line-removed-style"]  # it would hide `_`


def test_the_class_of_a_choice_stands_near_its_title_on_a_wide_terminal():
    rows = option_rows(flows.choosing().prompt, 200, UNICODE)
    assert all(len(plain(row.line).rstrip()) < 100 for row in rows)


def test_a_title_that_its_row_cuts_stands_whole_above_the_preview():
    long = replace(flows.KILL, title="end 7002, which computes nothing and " + "waits " * 12)
    page = flow_page(flows.choosing(long, flows.SUDO), "choose", None, 80, UNICODE)
    assert "…" in plain(page.rows[0].line)
    shown = " ".join(" ".join(texts(page.preview(0, None))).split())
    assert long.title.strip() in shown
    assert flows.SUDO.title not in " ".join(texts(page.preview(1, None)))


def test_the_sign_of_an_error_carries_no_underlined_blanks():
    line = found_lines([Found(mark="bad", what="Why?", sentence="So.")], 80, UNICODE)[0]
    assert [text for text, role in line if role == "error"] == ["✗"]


def test_in_ascii_a_cut_word_differs_from_a_sentence_and_dots_from_a_home_directory():
    assert ASCII.text("train.py --config llama…") == "train.py --config llama~"
    assert ASCII.text('start it with "cockpit run -- …"') == 'start it with "cockpit run -- ."'
