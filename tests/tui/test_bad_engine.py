"""What the pages say while the engine is dead, silent or was never heard."""

from __future__ import annotations

import pytest

from tests.tui.screen_text import stage
from tests.tui.test_screens import utc

__all__ = ["utc"]


@pytest.mark.parametrize("words", ["KeyError: '[/x]'", "see [link=http://x]y", "a[red]b"])
async def test_the_last_words_of_an_engine_are_shown_as_they_are(words):
    async with stage("busy") as play:
        play.app._on_trouble(f"Its last words: {words}")
        await play.pilot.pause(0.2)
        assert words in play.text


async def test_the_last_words_of_an_engine_reach_the_terminal_cleaned():
    async with stage("busy") as play:
        play.app._on_trouble("Its last words: \x1b]0;owned\x07 x")
        await play.pilot.pause(0.2)
        assert "Its last words" in play.text
        assert "\x1b" not in play.text
        assert "\x07" not in play.text


SUBPAGES = ["1", "m", "enter", "i", "l", "n"]
TROUBLE = "The engine was ended by signal 9. It is started again in 0.5 s."


@pytest.mark.parametrize("key", SUBPAGES)
async def test_every_page_says_that_no_fresh_values_come(key):
    async with stage("busy") as play:
        await play.tick(3)
        await play.pilot.press(key)
        await play.pilot.pause()
        keys = play.text.splitlines()[-1]
        play.app._on_trouble(TROUBLE)
        await play.pilot.pause()
        *_, why, below = play.text.splitlines()
        assert why == f" ! {TROUBLE}"
        assert below == keys
        assert play.app.screen.has_class("stale")
        await play.tick()
        assert TROUBLE not in play.text
        assert not play.app.screen.has_class("stale")


@pytest.mark.parametrize("key", SUBPAGES)
async def test_every_page_says_that_its_picture_is_held(key):
    async with stage("busy") as play:
        await play.tick(3)
        await play.pilot.press(key, "p")
        await play.pilot.pause()
        assert " PAUSED: p goes on" in play.text.splitlines()
        await play.pilot.press("p")
        await play.pilot.pause()
        assert "PAUSED" not in play.text


@pytest.mark.parametrize("theme", ["cockpit-dark", "cockpit-light", "textual-dark", "terminal"])
async def test_old_values_are_dimmed_and_the_words_that_say_so_are_not(theme):
    async with stage("busy", (120, 30), theme=theme) as play:
        await play.tick(5)
        page = play.app.screen

        def look(name: str) -> list:
            strip = page.query_one(f"#{name}").render_line(1 if name == "gpus" else 0)
            return [(one.text, one.style) for one in strip]

        gpus, title = look("gpus"), look("title")
        assert page.has_class("stale") is False
        play.app._on_trouble(TROUBLE)
        await play.pilot.pause()
        assert page.has_class("stale") is True
        old = look("gpus")
        assert "".join(text for text, _ in old) == "".join(text for text, _ in gpus)
        assert old[0][1] != gpus[0][1]
        assert look("title")[0][1] == title[0][1]
        await play.tick()
        assert look("gpus")[0][1] == gpus[0][1]


async def test_an_engine_that_never_said_anything_is_told_and_no_page_is_blank():
    async with stage("busy") as play:
        play.app._heard_at -= 60
        play.app._watch_silence()
        await play.pilot.pause()
        assert "! The engine has not answered for 60 s: nothing has been read yet." in play.text
        for key in ("question_mark", "i", "l", "n"):
            await play.pilot.press(key)
            await play.pilot.pause()
            assert len(play.app.screen_stack) == 2
        assert "Nothing has been read yet." in play.text
        await play.tick()
        assert "has not answered" not in play.text


async def test_an_engine_that_dies_before_its_first_words_leaves_them_standing():
    async with stage("busy", (120, 30)) as play:
        play.app._on_trouble(TROUBLE)
        play.app.clear_notifications()
        await play.pilot.pause(0.1)
        assert f" ! {TROUBLE}" in play.text
