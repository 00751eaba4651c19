"""The findings from the first screen to their evidence, with keys and with the mouse."""

from __future__ import annotations

import re

import pytest

from cockpit.tui.render.alerts import Alert
from cockpit.tui.render.finding_rows import listed
from cockpit.tui.screens.finding import FindingScreen
from cockpit.tui.screens.findings import FindingsScreen
from cockpit.tui.screens.gpu import GpuScreen
from cockpit.tui.screens.overview import OverviewScreen
from cockpit.tui.screens.process import ProcessScreen
from tests.tui.screen_text import Stage, stage
from tests.tui.some_findings import HOSTILE, a_finding, heat, rank_behind, three
from tests.tui.test_screens import SIZES, assert_golden, utc  # noqa: F401

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")


async def begin(play: Stage, *findings, ticks: int = 2) -> None:
    """One tick of quiet, so that the findings have a beginning; then these."""
    play.findings = ()
    await play.tick()
    play.findings = findings
    await play.tick(ticks)


@sizes
async def test_the_overview_with_findings(size):
    async with stage("stray", size) as play:
        await begin(play, *three())
        assert_golden(f"findings-overview-{size[0]}x{size[1]}", play.text)


@sizes
async def test_the_list_of_findings(size):
    async with stage("stray", size) as play:
        await begin(play, *three(), heat(0))
        play.findings = three()
        await play.tick()
        await play.pilot.press("i")
        await play.tick()
        assert_golden(f"findings-list-{size[0]}x{size[1]}", play.text)


@sizes
async def test_the_page_of_a_finding(size):
    async with stage("stray", size) as play:
        await begin(play, a_finding(), heat(1))
        await play.pilot.press("i", "enter")
        await play.tick()
        assert isinstance(play.app.screen, FindingScreen)
        assert_golden(f"findings-page-{size[0]}x{size[1]}", play.text)


async def test_all_of_it_in_ascii_without_colour():
    async with stage("stray", ascii=True, color=False) as play:
        await begin(play, *three())
        texts = [play.text]
        for key in ("i", "enter"):
            await play.pilot.press(key)
            await play.tick()
            texts.append(play.text)
        assert all(text.isascii() for text in texts)
        assert_golden("findings-ascii", "\n".join(texts))


async def test_nothing_found_is_a_sentence_that_says_what_is_watched():
    async with stage("big") as play:
        await begin(play)
        await play.pilot.press("i")
        await play.tick()
        assert "Nothing wrong was found." in play.text
        assert "Watched: heat" in play.text
        await play.pilot.press("enter", "down")
        await play.pilot.press("escape")
        assert isinstance(play.app.screen, OverviewScreen)


async def test_the_alert_line_says_the_worst_and_which_key_to_press():
    async with stage("stray") as play:
        await begin(play, *three())
        line = next(one for one in play.text.splitlines() if "i: what to do" in one)
        assert line.startswith(" ! GPU 0: Rank 0 never called")
        assert line.endswith(" more")


async def test_the_kill_key_is_offered_only_where_ending_the_process_is_the_first_fix():
    async with stage("stray", (100, 30)) as play:
        await begin(play, a_finding())
        assert "w: go there" in play.text
        await play.pilot.press("w")
        await play.tick()
        assert "x: kill it" in play.text
        play.findings = (rank_behind(),)
        await play.tick()
        assert play.app.screen._under_cursor().pid == 5602
        await play.pilot.press("w")
        await play.tick()
        assert play.app.screen._under_cursor().pid == 4711
        assert "x: kill it" not in play.text
        assert "i: what to do" in play.text


async def test_processes_that_a_finding_names_are_marked():
    async with stage("stray", (100, 30)) as play:
        await begin(play)
        assert not row_of(play, 4711).startswith(" !")
        play.findings = (rank_behind(),)
        await play.tick()
        assert row_of(play, 4711).startswith(" !")
        assert "rank behind: " in row_of(play, 4711)
        assert "! rank behind" in play.text


def row_of(play: Stage, pid: int) -> str:
    return next(one for one in play.text.splitlines() if f" {pid} ml" in one)


async def test_a_finding_that_clears_while_it_is_read_stays_and_says_when():
    async with stage("stray", (120, 40)) as play:
        await begin(play, a_finding())
        await play.pilot.press("i", "enter")
        await play.tick()
        before = play.text
        assert "Cleared" not in before
        play.findings = ()
        await play.tick(3)
        assert "Cleared at 12:00:05, seen since 12:00:02" in play.text
        for part in ("kill -TERM 5602 5617", "still holds the device", "70.0 GiB held by 3"):
            assert part in play.text
        await play.pilot.press("escape")
        await play.tick()
        assert "cleared 12:00:05: 70.0 GiB held by 3 strays" in play.text
        play.findings = (a_finding(),)
        await play.tick()
        assert "cleared" not in play.text


async def test_a_finding_that_is_forgotten_stays_readable():
    async with stage("stray", (120, 40)) as play:
        await begin(play, a_finding())
        await play.pilot.press("i", "enter")
        play.app._findings = type(play.app._findings)()  # as a replay that is moved back
        play.findings = ()
        await play.tick()
        assert "It is not found at this moment" in play.text
        assert "kill -TERM 5602 5617" in play.text
        await play.pilot.press("right", "left")
        assert isinstance(play.app.screen, FindingScreen)


async def test_left_and_right_go_to_the_neighbours_from_their_first_line():
    async with stage("stray") as play:
        await begin(play, *three())
        await play.pilot.press("i", "enter", "G", "right")
        await play.tick()
        assert play.text.startswith(" Finding 2 of 3  warning")
        assert "70.0 GiB held by 3 strays" in play.text.splitlines()[1]
        await play.pilot.press("left", "left")
        await play.tick()
        assert "Finding 3 of 3" in play.text


async def test_forty_findings_are_counted_and_reached():
    async with stage("stray") as play:
        many = [heat(n % 4, cause=f"cause_{n}", title=f"slow number {n}") for n in range(40)]
        await begin(play, *many)
        assert "more" in play.text
        await play.pilot.press("i")
        await play.tick()
        assert "40 warnings" in play.text or "45 warnings" in play.text
        assert "slow number 39" not in play.text
        for _ in range(39):
            await play.pilot.press("j")
        await play.tick()
        assert "slow number 39" in play.text
        await play.pilot.press("enter")
        await play.tick()
        assert play.text.startswith(" Finding 40 of 40")


async def test_a_finding_of_a_gpu_that_is_not_here_is_listed_and_w_opens_the_list():
    async with stage("stray") as play:
        await begin(play, heat(9, severity="error"))
        assert "GPU 9: slowed by heat" in play.text
        await play.pilot.press("w")
        await play.tick()
        assert isinstance(play.app.screen, FindingsScreen)
        assert "GPU 9 (not shown here)" in play.text


async def test_hostile_text_of_a_log_is_shown_and_not_obeyed():
    async with stage("stray", (120, 40)) as play:
        evidence = (rank_behind().evidence[0].__class__(text=HOSTILE, line=1, source=HOSTILE),)
        await begin(play, rank_behind(title=HOSTILE, explanation=HOSTILE, evidence=evidence))
        for key in ("i", "enter"):
            await play.pilot.press(key)
            await play.tick()
            assert "\x1b" not in play.text
            assert "\u202e" not in play.text
            assert "^[[31mred^[]0;owned" in play.text


async def test_what_only_a_reading_says_is_in_the_list_and_opens_its_process_or_gpu():
    async with stage("stray", (100, 30)) as play:
        await begin(play)
        await play.pilot.press("i")
        await play.tick()
        assert "61.0 GiB held by a stray" in play.text
        assert "no finding explains it yet" in play.text
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert isinstance(play.app.screen, ProcessScreen)
    async with stage("throttle", (100, 30)) as play:
        await begin(play, ticks=8)
        await play.pilot.press("i", "enter")
        await play.pilot.pause()
        assert isinstance(play.app.screen, GpuScreen)


async def test_the_mouse_opens_the_list_a_finding_and_scrolls_it():
    async with stage("stray") as play:
        await begin(play, *three())
        await play.pilot.click("#alerts")
        await play.tick()
        assert isinstance(play.app.screen, FindingsScreen)
        await play.pilot.click("#page", offset=(20, 2), times=2)
        await play.tick()
        assert play.text.startswith(" Finding 2 of 3")
        page = play.app.screen.query_one("#page")
        page._scroll(3)
        await play.pilot.pause()
        assert page.top == 3


async def test_i_on_a_finding_goes_back_to_the_list_instead_of_opening_another():
    async with stage("stray") as play:
        await begin(play, *three())
        await play.pilot.press("i", "enter", "i")
        await play.pilot.pause()
        assert isinstance(play.app.screen, FindingsScreen)
        await play.pilot.press("i", "escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, OverviewScreen)


async def test_the_help_of_these_pages_lists_their_keys():
    async with stage("stray", (120, 40)) as play:
        await begin(play, *three())
        await play.pilot.press("question_mark")
        await play.tick()
        assert "What is wrong, the evidence, what to do" in play.text
        await play.pilot.press("escape", "i", "enter", "question_mark")
        await play.tick()
        assert "Next finding" in play.text


async def test_a_tick_without_news_repaints_nothing_but_the_ages():
    async with stage("stray", (120, 40)) as play:
        await begin(play, *three(), ticks=70)  # older than a minute: ages rest
        await play.pilot.press("i")
        await play.tick()
        before = play.text
        painted = []
        for name in ("#page", "#preview", "#title", "#footer"):
            widget = play.app.screen.query_one(name)
            refresh = widget.refresh
            widget.refresh = lambda *r, name=name, refresh=refresh, **k: (
                painted.append(name),
                refresh(*r, **k),
            )
        await play.tick(3)
        assert play.text == before
        assert painted == []


async def test_the_pages_are_drawn_only_while_they_are_in_front(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "cockpit.tui.screens.findings.finding_rows",
        lambda *a, **k: calls.append(a) or ((), []),
    )
    async with stage("stray") as play:
        await begin(play, *three(), ticks=5)
        assert calls == []
        await play.pilot.press("i")
        await play.tick()
        drawn = len(calls)
        assert drawn
        await play.pilot.press("escape")
        await play.tick(3)
        assert len(calls) == drawn


async def test_the_pages_of_a_gpu_and_of_a_process_say_what_is_found_about_them():
    async with stage("stray", (100, 30)) as play:
        await begin(play, *three())
        await play.pilot.press("1")
        await play.tick()
        assert play.text.splitlines()[1] == " ! slowed by heat"
        await play.pilot.press("escape", "w", "enter")
        await play.tick()
        assert isinstance(play.app.screen, ProcessScreen)
        assert "! Rank 0 never called the collective" in play.text.splitlines()[1]


async def test_a_preview_below_the_list_says_that_it_is_cut():
    async with stage("stray") as play:
        await begin(play, *three(), heat(0), heat(2))
        await play.pilot.press("i")
        await play.tick()
        assert re.search(r"and \d+ more lines: enter", play.text.splitlines()[-2])


def test_an_alert_keeps_its_key_when_an_earlier_one_clears():
    three = [Alert("warning", f"GPU {n} slow", n) for n in range(3)]
    twice = [Alert("warning", "GPU 2 hot", 2)]
    before = [row.key for row in listed((), [*three, *twice], ())]
    assert len(set(before)) == 4
    assert [row.key for row in listed((), [*three[1:], *twice], ())] == before[1:]
