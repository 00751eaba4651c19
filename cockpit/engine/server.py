"""The engine's loop: a tick on time, requests in between, actions on threads of their own.

Knows the protocol and the Machine; nothing of NVML, /proc or signals.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from cockpit import __version__
from cockpit.engine.findings import Findings
from cockpit.engine.machine import Machine
from cockpit.engine.protocol import (
    AnswerFlow,
    AskAttach,
    AskCheckup,
    AskDetails,
    AskKillPlan,
    AskRun,
    CancelFlow,
    DoInRun,
    EngineOptions,
    Hello,
    Message,
    Play,
    Progress,
    Reply,
    RunAttach,
    RunKill,
    StartFlow,
    Tick,
    ToEngine,
    Watch,
    decode_to_engine,
    encode,
)
from cockpit.engine.tick_delta import TickShortener
from cockpit.engine.wire import LineReader, LineWriter
from cockpit.errors import CockpitError
from cockpit.model.memory import Census, Segments
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean

if TYPE_CHECKING:
    from cockpit.engine.flows import Flows

log = logging.getLogger(__name__)

SHORTEST_INTERVAL_S = 0.1
LONGEST_INTERVAL_S = 60.0
FRESH_WITHIN_S = 3.0
"""A tick takes milliseconds; a driver that hangs makes its GPUs stale, not the tick late."""
ACTION_PATIENCE_S = 20.0
"""How long a kill that was begun goes on after the face is gone (grace time and proof)."""


class _Asked(msgspec.Struct):
    """All that is read of a request that makes no sense otherwise."""

    id: int


class Recorder(Protocol):
    """Takes every snapshot."""

    def write(self, snapshot: Snapshot) -> None:
        """Appends one."""


class Server:
    """Serves one machine to one face."""

    def __init__(
        self,
        machine: Machine,
        options: EngineOptions,
        reader: LineReader,
        writer: LineWriter,
        recorder: Recorder | None = None,
        findings: Findings | None = None,
    ) -> None:
        self._machine = machine
        self._findings = findings
        self._options = options
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._interval_s = clamp_interval(options.interval_s)
        self._shortener = TickShortener()
        self._tree = False
        self._late = 0
        self._began = self._next = time.monotonic()
        self._connected = True
        self._wake = threading.Event()
        self._actions: list[threading.Thread] = []
        self._ticked = threading.Condition()
        self._ticks = 0
        self._newest: Snapshot | None = None

    @cached_property
    def _flows(self) -> Flows:
        # Late: nobody is led through anything in the first seconds.
        from cockpit.engine.flows import Flows

        return Flows(
            self._machine,
            self._fresh,
            watched_s=self._watched_s,
            readonly=self._options.readonly,
        )

    def run(self) -> None:
        """Until the face closes its end."""
        self._send(
            Hello(
                version=__version__,
                source=self._machine.source,
                title=self._machine.title,
                readonly=self._options.readonly,
            )
        )
        self._machine.start()
        while self._connected:
            self._tick()
            self._serve_until_next_tick()
        if "_flows" in self.__dict__:
            self._flows.cancel_all()
        for action in self._actions:
            action.join(ACTION_PATIENCE_S)
        if "_flows" in self.__dict__:
            self._flows.wait()

    # -- ticks

    def _tick(self) -> None:
        snapshot = self._machine.snapshot(self._interval_s)
        if self._late:
            status = msgspec.structs.replace(snapshot.sampler, late_ticks=self._late)
            snapshot = msgspec.structs.replace(snapshot, sampler=status)
        if self._findings is not None:
            snapshot = self._findings.add(snapshot)
        if self._recorder is not None:
            self._recorder.write(snapshot)
        with self._ticked:
            self._newest, self._ticks = snapshot, self._ticks + 1
            self._ticked.notify_all()
        relatives = self._machine.relatives(snapshot) if self._tree else ()
        tick = Tick(snapshot=snapshot, relatives=relatives, playback=self._machine.playback())
        self._send(self._shortener.shorten(tick))
        self._schedule()

    def _fresh(self) -> Snapshot:
        """A snapshot whose reading began after this call; from any thread but the loop's own."""
        with self._ticked:
            # The next tick may be under way already: the one after it is surely fresh.
            wanted = self._ticks + 2
            end = time.monotonic() + FRESH_WITHIN_S
            while self._ticks < wanted and (left := end - time.monotonic()) > 0:
                self._tick_now()
                self._ticked.wait(min(left, 0.2))
            if self._newest is None:
                raise CockpitError("The engine has no reading yet.")
            return self._newest

    def _watched_s(self) -> float:
        """For how long this engine has seen the machine."""
        return time.monotonic() - self._began

    def _schedule(self) -> None:
        """The next tick on the beat; beats that passed meanwhile are skipped and counted.

        A tick between two beats (after an action) moves none of them.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next += self._interval_s
        while self._next <= now:
            self._next += self._interval_s
            self._late += 1

    def _serve_until_next_tick(self) -> None:
        while self._connected:
            left = self._next - time.monotonic()
            if left <= 0 or self._wake.is_set():
                self._wake.clear()
                return
            # An action that ends wants its effect seen at once; 50 ms is at once.
            self._actions = [thread for thread in self._actions if thread.is_alive()]
            if self._actions:
                left = min(left, 0.05)
            if select.select([self._reader.fd], [], [], left)[0]:
                self._receive()

    def _receive(self) -> None:
        for line in self._reader.read():
            try:
                self._serve(decode_to_engine(line))
            except msgspec.DecodeError as error:
                self._refuse(line, str(error))
        if self._reader.ended:
            self._connected = False

    # -- requests

    def _refuse(self, line: bytes, why: str) -> None:
        """A request that cannot be read is answered all the same, if it says which it is."""
        log.warning("not a request: %s", why)
        with contextlib.suppress(msgspec.DecodeError):
            asked = msgspec.json.decode(line, type=_Asked)
            self._send(Reply(id=asked.id, error=f"The engine cannot read this: {why}", exit_code=2))

    def _serve(self, request: ToEngine) -> None:
        if isinstance(request, Watch):
            self._watch(request)
        elif isinstance(request, CancelFlow):
            self._flows.cancel(request.flow)
        elif isinstance(request, Play):
            self._machine.play(request.paused, request.speed, request.seek_s)
            self._tick_now()
        elif isinstance(request, AskDetails):
            pid, ticks = request.pid, request.start_ticks
            self._answer(
                request.id, lambda id_: Reply(id=id_, details=self._machine.details(pid, ticks))
            )
        elif isinstance(request, AskKillPlan):
            wanted = request.request
            self._answer(
                request.id, lambda id_: Reply(id=id_, plan=self._machine.plan_kill(wanted))
            )
        else:
            if isinstance(request, AnswerFlow):
                self._flows.expect(request.flow)
            self._answer(request.id, lambda id_: self._act(id_, request))

    def _watch(self, request: Watch) -> None:
        if request.interval_s is not None:
            self._interval_s = clamp_interval(request.interval_s)
            self._next = min(self._next, time.monotonic() + self._interval_s)
        if request.tree and not self._tree:
            self._tick_now()
        self._tree = request.tree

    def _act(
        self,
        id_: int,
        request: RunKill
        | AskAttach
        | RunAttach
        | AskRun
        | DoInRun
        | AskCheckup
        | StartFlow
        | AnswerFlow,
    ) -> Reply:
        """What a machine does, or asks of a run; on a thread of its own."""
        machine = self._machine

        def say(sentence: str) -> None:
            self._send(Progress(id=id_, sentence=sentence))

        if isinstance(request, StartFlow):
            return Reply(id=id_, flow=self._flows.start(request.request, say))
        if isinstance(request, AnswerFlow):
            return Reply(id=id_, flow=self._flows.answer(request.flow, request.answer, say))
        if isinstance(request, RunKill):
            return Reply(id=id_, results=machine.run_kill(request.plan, request.typed, say))
        if isinstance(request, AskAttach):
            return Reply(id=id_, attach=machine.attach_plan(request.pid, request.start_ticks))
        if isinstance(request, RunAttach):
            return Reply(id=id_, outcome=machine.run_attach(request.pid, request.start_ticks, say))
        if isinstance(request, DoInRun):
            return Reply(id=id_, outcome=machine.do_in_run(request.request, say))
        if isinstance(request, AskCheckup):
            return Reply(id=id_, checkup=machine.checkup(request.request, say))
        answer = machine.ask_run(request.pid, request.question, request.deep)
        if isinstance(answer, Census):
            return Reply(id=id_, census=answer)
        if isinstance(answer, Segments):
            return Reply(id=id_, segments=answer)
        return Reply(id=id_, stacks=answer)

    def _answer(self, id_: int, work: Callable[[int], Reply]) -> None:
        """Run ``work`` on a thread, so that neither a tick nor another request waits for it."""

        def answer() -> None:
            try:
                reply = work(id_)
                self._send(reply)
            except CockpitError as error:
                self._send(Reply(id=id_, error=clean(str(error)), exit_code=error.exit_code))
            except Exception as error:  # the face must get an answer
                log.exception("request %s failed", id_)
                words = clean(f"The engine failed at this: {error!r}")
                self._send(Reply(id=id_, error=words, exit_code=1))
            else:
                if reply.results is not None or reply.outcome is not None:
                    self._tick_now()

        thread = threading.Thread(target=answer, name=f"request-{id_}", daemon=True)
        self._actions.append(thread)
        thread.start()

    def _tick_now(self) -> None:
        self._wake.set()

    def _send(self, message: Message) -> None:
        if not self._writer.write(encode(message)):
            self._connected = False


def clamp_interval(interval_s: float) -> float:
    """Within what makes sense: 0.1 s to 60 s."""
    return min(max(interval_s, SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)
