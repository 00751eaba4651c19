"""The guided flows that are open in this engine, by their id."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable

from cockpit.engine.flow_facts import Facts
from cockpit.engine.flow_session import FlowSession
from cockpit.engine.flow_tools import Tools
from cockpit.engine.machine import Machine, Say
from cockpit.errors import UsageError
from cockpit.model.flow import Ended, FlowAnswer, FlowRequest, FlowState
from cockpit.model.snapshot import Snapshot

MOST_OPEN = 8
LAST_PATIENCE_S = 300.0
"""An installation that replaces files is let finish (act/child.py), looked at and recorded."""


class Flows:
    """Start, answer, cancel."""

    def __init__(
        self,
        machine: Machine,
        fresh: Callable[[], Snapshot],
        *,
        watched_s: Callable[[], float] = lambda: math.inf,
        readonly: bool = False,
    ) -> None:
        """``watched_s``: for how long the engine has seen the machine."""
        self._machine = machine
        self._fresh = fresh
        self._watched_s = watched_s
        self._readonly = readonly
        self._open: dict[str, FlowSession] = {}

    def start(self, request: FlowRequest, say: Say) -> FlowState:
        """A new one; the oldest that is open is forgotten when there are too many."""
        tools = Tools(
            machine=self._machine,
            fresh=self._fresh,
            watched_s=self._watched_s,
            facts=Facts(self._machine),
            readonly=self._readonly,
        )
        session = FlowSession(secrets.token_hex(6), request, tools)
        self._make_room()
        self._open[session.id] = session
        try:
            return self._kept(session.begin(say))
        except BaseException:
            self._open.pop(session.id, None)
            raise

    def answer(self, flow: str, answer: FlowAnswer, say: Say) -> FlowState:
        """Raises UsageError for a flow that is not open."""
        return self._kept(self._session(flow).answer(answer, say))

    def expect(self, flow: str) -> None:
        """In the order of the requests, before :meth:`answer` is called on a thread of its own."""
        session = self._open.get(flow)
        if session is not None:
            session.expect()

    def cancel(self, flow: str) -> None:
        """A flow that is not open has nothing to cancel."""
        session = self._open.get(flow)
        if session is not None:
            session.cancel()

    def cancel_all(self) -> None:
        """The face is gone. Runs that a fix has started go on, unwatched; reruns that were made
        only to look are ended, and an installation stops where it can be taken back."""
        for session in tuple(self._open.values()):
            session.cancel()

    def wait(self) -> None:
        """After :meth:`cancel_all`, until what could not be stopped at once has its result."""
        end = time.monotonic() + LAST_PATIENCE_S
        while any(one.runs_a_fix for one in tuple(self._open.values())) and time.monotonic() < end:
            time.sleep(0.05)

    def _make_room(self) -> None:
        """One in which a fix runs is not forgotten: it could not be stopped any more."""
        idle = [id_ for id_, one in tuple(self._open.items()) if not one.is_busy]
        for id_ in idle[: max(0, len(self._open) - MOST_OPEN + 1)]:
            self._open.pop(id_, None)

    def _session(self, flow: str) -> FlowSession:
        session = self._open.get(flow)
        if session is None:
            raise UsageError("This flow is over; start it again.")
        return session

    def _kept(self, state: FlowState) -> FlowState:
        if isinstance(state.prompt, Ended):
            self._open.pop(state.id, None)
        return state
