"""The face's conversation with its engine: what acts is let finish, what is lost is told."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.engine.protocol import EngineOptions, Reply, Tick
from cockpit.errors import CockpitError, LinkError
from cockpit.model.action import KillRequest, Target
from cockpit.model.flow import FlowAnswer
from cockpit.model.memory import RunRequest
from cockpit.tui import session as session_module
from cockpit.tui.session import Listener, Session
from tests.tui import flow_states as flows
from tests.tui.flow_states import opened
from tests.tui.screen_text import SilentLink, Stage, stage
from tests.tui.test_memory_screen import opened as memory_opened
from tests.tui.test_screens import answer_plan, runs, utc

__all__ = ["utc"]


async def kill_begun(play: Stage) -> None:
    """A kill that was confirmed and is not answered yet."""
    await play.tick(2)
    await play.pilot.press("x")
    answer_plan(play)
    await play.pilot.pause()
    await play.pilot.pause()
    await play.pilot.press("enter")
    assert len(runs(play)) == 1


@pytest.mark.parametrize("keys", [["ctrl+c"], ["escape", "q"]], ids=["quit", "left and quit"])
async def test_an_engine_in_the_middle_of_a_kill_is_let_finish(keys):
    async with stage("stray", (100, 30)) as play:
        link = play.app._session._link
        await kill_begun(play)
        await play.pilot.press(*keys)
    assert link.closed_with is False


async def test_an_engine_in_the_middle_of_a_fix_is_let_finish():
    async with stage("busy") as play:
        link = play.app._session._link
        await memory_opened(play, 4711, 3)
        await play.pilot.press("d", "enter", "escape", "ctrl+c")
    assert link.closed_with is False


async def test_an_engine_in_the_middle_of_a_flow_is_let_finish():
    async with stage("stray") as play:
        link = play.app._session._link
        await opened(play, flows.confirming(flows.RERUN))
        await play.pilot.press("enter", "q")
    assert link.closed_with is False


async def test_an_engine_that_only_reads_may_be_killed():
    async with stage("stray") as play:
        link = play.app._session._link
        await play.tick(2)
        await play.pilot.press("x", "q")  # a plan is asked for
    assert link.closed_with is True


async def test_an_engine_whose_kill_has_ended_may_be_killed():
    async with stage("stray", (100, 30)) as play:
        link = play.app._session._link
        await kill_begun(play)
        await play.pilot.press("escape")
        play.app._session._dispatch(Reply(id=runs(play)[-1].id, results=()))
    assert link.closed_with is True


# -- without an app


class DeafLink(SilentLink):
    """An engine that lives, and stands where a restart puts another one."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.options = EngineOptions()


class Heard:
    """What a listener was told."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.troubles: list[str] = []

    def listener(self) -> Listener:
        return Listener(lambda _: None, self.ticks.append, self.troubles.append, lambda _: None)


@pytest.fixture
async def talk(monkeypatch):
    """A session whose next engines are deaf ones too, and what it told."""
    monkeypatch.setattr(session_module, "Link", DeafLink)
    heard = Heard()
    session = Session(DeafLink(), heard.listener())  # type: ignore[arg-type]
    session.open()
    yield session, heard
    session.close()


async def begun(question) -> asyncio.Task:
    task = asyncio.ensure_future(question)
    await asyncio.sleep(0)
    return task


KILL = KillRequest(targets=(Target(pid=1),))


async def test_what_is_asked_between_two_engines_fails_when_the_next_one_starts(talk):
    session, heard = talk
    session._lost(LinkError("The engine sent something that is no message: x."))
    late = await begun(session.kill_plan(KILL))
    assert not late.done()
    assert "started again" in heard.troubles[-1]
    session._timer.cancel()
    session._restart()
    with pytest.raises(CockpitError, match="may or may not be done"):
        await late


async def test_no_two_questions_have_one_number_whatever_engine_they_are_for(talk):
    session, _ = talk
    first = await begun(session.kill_plan(KILL))
    old = session._link.sent[-1].id
    session._lost(LinkError("gone"))
    session._timer.cancel()
    session._restart()
    second = await begun(session.kill_plan(KILL))
    assert session._link.sent[-1].id != old
    session._dispatch(Reply(id=old))  # of the last engine: nobody waits for it
    await asyncio.sleep(0)
    assert not second.done()
    assert first.exception() is not None
    second.cancel()


async def test_a_new_engine_does_not_end_the_old_one_in_the_middle_of_an_action(talk):
    session, _ = talk
    old = session._link
    doing = [
        await begun(session.attach(1, 1, print)),
        await begun(session.do_in_run(RunRequest(pid=1, op="gc"), print)),
        await begun(session.answer_flow("f1", FlowAnswer(confirmed=True), print)),
    ]
    session._lost(LinkError("The engine sent something that is no message: x."))
    session._timer.cancel()
    session._restart()
    assert old.closed_with is False
    assert session._acting == set()
    await asyncio.gather(*doing, return_exceptions=True)
