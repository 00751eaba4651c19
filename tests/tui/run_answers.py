"""The engine's part of a conversation about runs, played by the simulated machine of a Stage."""

from __future__ import annotations

from cockpit.engine.protocol import AskAttach, AskRun, DoInRun, Message, Reply, RunAttach
from cockpit.errors import CockpitError
from tests.tui.screen_text import Stage


async def answer(play: Stage, turns: int = 4) -> list[Message]:
    """Answer everything that waits; what was asked, in its order."""
    session = play.app._session
    asked: list[Message] = []
    for _ in range(turns):
        await play.pilot.pause()
        for message in list(session._link.sent):
            future = session._waiting.get(getattr(message, "id", -1))
            if future is not None and not future.done():
                asked.append(message)
                future.set_result(_reply(play, message))
    await play.pilot.pause()
    return asked


def _reply(play: Stage, message: Message) -> Reply:
    try:
        return Reply(id=message.id, **_fields(play, message))
    except CockpitError as error:
        return Reply(id=message.id, error=str(error))


def _fields(play: Stage, message: Message) -> dict:
    machine = play.machine
    if isinstance(message, AskAttach):
        return {"attach": machine.attach_plan(message.pid, message.start_ticks)}
    if isinstance(message, RunAttach):
        return {"outcome": machine.run_attach(message.pid, message.start_ticks, lambda _: None)}
    if isinstance(message, DoInRun):
        return {"outcome": machine.do_in_run(message.request, lambda _: None)}
    if isinstance(message, AskRun):
        return {message.question: machine.ask_run(message.pid, message.question, message.deep)}
    return {}
