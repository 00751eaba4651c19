"""The face's conversation with its engine: ticks in, questions out, and a new engine after a crash.

Knows asyncio and the Link; nothing of textual. NVML has been seen to take its process down with
it (GPU lost): then the engine is started again, and the screen says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from msgspec.structs import replace

from cockpit.engine.link import Link
from cockpit.engine.protocol import (
    AnswerFlow,
    AskAttach,
    AskDetails,
    AskKillPlan,
    AskRun,
    CancelFlow,
    DoInRun,
    Hello,
    Message,
    Play,
    Progress,
    Reply,
    RunAttach,
    RunKill,
    StartFlow,
    Tick,
    Watch,
)
from cockpit.errors import CockpitError, LinkError, TargetGoneError, UsageError
from cockpit.model.action import KillPlan, KillRequest, KillResult
from cockpit.model.flow import FlowAnswer, FlowRequest, FlowState
from cockpit.model.memory import (
    AttachPlan,
    Census,
    Question,
    RunOutcome,
    RunRequest,
    Segments,
    Stacks,
)
from cockpit.model.process import ProcessDetails

Answer = TypeVar("Answer")

RESTART_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Before each new engine; the last one again and again. A tick begins the row anew."""


@dataclass(frozen=True)
class Listener:
    """Whom the session tells what."""

    hello: Callable[[Hello], None]
    tick: Callable[[Tick], None]
    trouble: Callable[[str], None]
    """A sentence: the engine is gone and comes again."""
    refused: Callable[[CockpitError], None]
    """The engine cannot serve these options (no such recording): nothing to wait for."""


class Session:
    """One engine after another. Everything runs on the event loop's thread."""

    def __init__(self, link: Link, listener: Listener) -> None:
        self._link = link
        self._listener = listener
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._progress: dict[int, Callable[[str], None]] = {}
        self._acting: set[int] = set()
        """Requests that may change something and have no reply yet. Who asked may be gone: a closed
        dialog and an app that ends cancel what waits, not what the engine does."""
        self._ids = count(1)  # of all engines: a late reply of the last one answers nothing else
        self._watch = Watch()
        self._restarts = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to listen; needs a running loop."""
        asyncio.get_running_loop().add_reader(self._link.fileno(), self._read)

    def close(self) -> None:
        """Let the engine go; does not wait for one that the kernel holds."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            asyncio.get_running_loop().remove_reader(self._link.fileno())
        self._let_go()

    def _let_go(self) -> None:
        # What acts is let finish, so that the journal has its end.
        self._link.close(may_kill=not self._acting)
        self._acting.clear()

    # -- questions

    def watch(self, *, interval_s: float | None, tree: bool) -> None:
        """Tell the engine what is looked at; told again to an engine that follows."""
        self._watch = Watch(interval_s=interval_s, tree=tree)
        self._send(self._watch)

    def play(
        self,
        *,
        paused: bool | None = None,
        speed: float | None = None,
        seek_s: float | None = None,
    ) -> None:
        """Steer a replay."""
        self._send(Play(paused=paused, speed=speed, seek_s=seek_s))

    async def details(self, pid: int, start_ticks: int | None) -> ProcessDetails:
        """Raises CockpitError with a sentence; TargetGoneError where there is no such process."""
        id_ = next(self._ids)
        reply = await self._ask(AskDetails(id=id_, pid=pid, start_ticks=start_ticks), id_)
        return _given(reply.details)

    async def kill_plan(self, request: KillRequest) -> KillPlan:
        """Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        reply = await self._ask(AskKillPlan(id=id_, request=request), id_)
        return _given(reply.plan)

    async def run_kill(
        self, plan: str, typed: str | None, say: Callable[[str], None]
    ) -> tuple[KillResult, ...]:
        """Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        reply = await self._act(RunKill(id=id_, plan=plan, typed=typed), id_, say)
        return reply.results or ()

    async def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:
        """Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        reply = await self._ask(AskAttach(id=id_, pid=pid, start_ticks=start_ticks), id_)
        return _given(reply.attach)

    async def attach(
        self, pid: int, start_ticks: int | None, say: Callable[[str], None]
    ) -> RunOutcome:
        """After the confirmation. Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        message = RunAttach(id=id_, pid=pid, start_ticks=start_ticks)
        return _given((await self._act(message, id_, say)).outcome)

    async def do_in_run(self, request: RunRequest, say: Callable[[str], None]) -> RunOutcome:
        """After the confirmation. Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        reply = await self._act(DoInRun(id=id_, request=request), id_, say)
        return _given(reply.outcome)

    async def census(self, pid: int, *, deep: bool = False) -> Census:
        """Raises CockpitError with a sentence."""
        return _given((await self._ask_run(pid, "census", deep)).census)

    async def segments(self, pid: int) -> Segments:
        """Raises CockpitError with a sentence."""
        return _given((await self._ask_run(pid, "segments", False)).segments)

    async def stacks(self, pid: int) -> Stacks:
        """Raises CockpitError with a sentence."""
        return _given((await self._ask_run(pid, "stacks", False)).stacks)

    async def start_flow(self, request: FlowRequest, say: Callable[[str], None]) -> FlowState:
        """Begin a guided flow; changes nothing. Raises CockpitError with a sentence."""
        id_ = next(self._ids)
        reply = await self._act(StartFlow(id=id_, request=request), id_, say)
        return _given(reply.flow)

    async def answer_flow(
        self, flow: str, answer: FlowAnswer, say: Callable[[str], None]
    ) -> FlowState:
        """Answer its open question; the reply comes when what was confirmed has run.

        Raises CockpitError with a sentence.
        """
        id_ = next(self._ids)
        reply = await self._act(AnswerFlow(id=id_, flow=flow, answer=answer), id_, say)
        return _given(reply.flow)

    def leave_flow(self, flow: str) -> None:
        """Nobody answers it any more; its reply is not waited for."""
        self._send(AnswerFlow(id=next(self._ids), flow=flow, answer=FlowAnswer(leave=True)))

    def cancel_flow(self, flow: str) -> None:
        """Stop what runs as soon as that is safe."""
        self._send(CancelFlow(flow=flow))

    async def _ask_run(self, pid: int, question: Question, deep: bool) -> Reply:
        id_ = next(self._ids)
        return await self._ask(AskRun(id=id_, pid=pid, question=question, deep=deep), id_)

    async def _act(self, message: Message, id_: int, say: Callable[[str], None]) -> Reply:
        self._progress[id_] = say
        self._acting.add(id_)
        try:
            return await self._ask(message, id_)
        finally:
            self._progress.pop(id_, None)

    async def _ask(self, message: Message, id_: int) -> Reply:
        future = asyncio.get_running_loop().create_future()
        self._waiting[id_] = future
        try:
            self._link.send(message)
            reply: Reply = await future
        finally:
            self._waiting.pop(id_, None)
        if reply.error is not None:
            gone = reply.exit_code == TargetGoneError.exit_code
            raise (TargetGoneError if gone else CockpitError)(reply.error)
        return reply

    def _send(self, message: Message) -> None:
        # An engine that is gone is noticed and replaced where its lines are read.
        with contextlib.suppress(LinkError):
            self._link.send(message)

    # -- answers

    def _read(self) -> None:
        try:
            messages = self._link.drain()
        except CockpitError as error:
            self._lost(error)
            return
        for message in messages:
            self._dispatch(message)

    def _dispatch(self, message: object) -> None:
        if isinstance(message, Tick):
            self._restarts = 0
            self._listener.tick(message)
        elif isinstance(message, Reply):
            self._acting.discard(message.id)
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)
        elif isinstance(message, Progress):
            if (say := self._progress.get(message.id)) is not None:
                say(message.sentence)
        elif isinstance(message, Hello):
            self._listener.hello(message)

    # -- a new engine

    def _lost(self, error: CockpitError) -> None:
        asyncio.get_running_loop().remove_reader(self._link.fileno())
        self._fail_all(str(error))
        if isinstance(error, UsageError):
            self._listener.refused(error)
        elif not self._closed:
            self._restart_later(str(error))

    def _fail_all(self, why: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LinkError(f"{why} What was asked may or may not be done."))

    def _restart_later(self, why: str) -> None:
        pause = RESTART_PAUSES_S[min(self._restarts, len(RESTART_PAUSES_S) - 1)]
        self._restarts += 1
        self._listener.trouble(f"{why} It is started again in {pause:g} s.")
        self._timer = asyncio.get_running_loop().call_later(pause, self._restart)

    def _restart(self) -> None:
        # One that lives, but was not understood, has been asked meanwhile: nobody hears it now.
        self._fail_all("The engine was started again.")
        self._let_go()
        # Its recording has a file of its own already, which a new engine must not overwrite.
        options = replace(self._link.options, record=None)
        try:
            self._link = Link(options, self._link.log_path)
        except LinkError as error:
            self._restart_later(str(error))
            return
        self.open()
        self._send(self._watch)


def _given(answer: Answer | None) -> Answer:
    """The part of a reply that was asked for. Raises LinkError when it is missing."""
    if answer is None:
        raise LinkError("The engine answered without what was asked.")
    return answer
