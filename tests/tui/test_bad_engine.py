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
