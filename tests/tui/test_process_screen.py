"""The page of one process: what it says when the process, or the engine, is gone."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.engine.protocol import AskDetails, Reply, Tick
from cockpit.model.process import ProcessDetails
from cockpit.tui.screens.kill import KillDialog
from cockpit.tui.screens.process import ProcessScreen
from tests.tui.screen_text import Stage, stage
from tests.tui.test_screens import utc

__all__ = ["utc"]


async def opened(play: Stage, key: str = "enter") -> ProcessScreen:
    """The page of the first row; its question is not answered yet."""
    await play.tick(3)
    await play.pilot.press(key)
    await play.pilot.pause()
    page = play.app.screen
    assert isinstance(page, ProcessScreen)
    return page


async def told(play: Stage, **fields) -> None:
    """The engine answers the newest question for details."""
    asked = [one for one in play.app._session._link.sent if isinstance(one, AskDetails)][-1]
    play.app._session._dispatch(Reply(id=asked.id, **fields))
    await play.pilot.pause()
    await play.pilot.pause()


def roles(page: ProcessScreen) -> set[str]:
    """Of all the text on it that is no blank."""
    rows = page.query_one("#page").rows
    return {role for row in rows for text, role in row.line if text.strip()}


async def test_what_an_ended_process_had_is_dimmed_with_its_age_and_ages_no_more():
    async with stage("stray", (100, 40)) as play:
        page = await opened(play)
        one = page._process
        await told(play, details=ProcessDetails(pid=one.pid, start_ticks=one.start_ticks))
        assert roles(page) - {"dim", "warn"}
        (started,) = [line for line in play.text.splitlines() if " started " in line]
        snapshot = play.app.view.snapshot
        rest = tuple(p for p in snapshot.processes if p.pid != one.pid)
        later = replace(snapshot, taken_at="2026-11-30T13:10:00.000Z", processes=rest)
        play.app._on_tick(Tick(snapshot=later))
        await play.pilot.pause()
        assert "It holds no GPU memory any more. These values are 1h09 old." in play.text
        assert started in play.text
        assert roles(page) <= {"dim", "warn"}


async def test_only_a_process_that_is_gone_is_called_gone():
    async with stage("stray", (100, 40)) as play:
        await opened(play, "e")
        await told(play, error="pid 1 does not exist any more.", exit_code=5)
        assert "process is gone" in play.text


async def test_a_dead_engine_is_no_dead_process_and_r_asks_the_next_one():
    async with stage("stray", (100, 40)) as play:
        page = await opened(play, "e")
        play.app._session._fail_all("The engine was ended by signal 9.")
        await play.pilot.pause()
        await play.pilot.pause()
        assert "The engine was ended by signal 9." in play.text
        assert "process is gone" not in play.text
        assert "reading the rest" not in play.text
        await play.pilot.press("r")
        one = page._process
        details = ProcessDetails(
            pid=one.pid, start_ticks=one.start_ticks, environment=(("NCCL_DEBUG", "INFO"),)
        )
        await told(play, details=details)
        assert "NCCL_DEBUG=INFO" in play.text


async def test_readonly_offers_no_kill_here_either():
    async with stage("stray", (100, 40), readonly=True) as play:
        page = await opened(play)
        assert "kill" not in play.text.splitlines()[-1]
        await play.pilot.press("x", "f9")
        await play.pilot.pause()
        assert play.app.screen is page
    async with stage("stray", (100, 40)) as play:
        await opened(play)
        assert "x kill" in play.text.splitlines()[-1]
        await play.pilot.press("x")
        assert isinstance(play.app.screen, KillDialog)
