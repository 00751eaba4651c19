"""The guided flows that are open in this engine, by their id."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from cockpit.engine.flow_facts import Facts
from cockpit.engine.flow_session import FlowSession, Tools
from cockpit.engine.machine import Machine, Say
from cockpit.errors import UsageError
from cockpit.model.flow import Ended, FlowAnswer, FlowRequest, FlowState
from cockpit.model.snapshot import Snapshot

MOST_OPEN = 8


class Flows:
    """Start, answer, cancel."""

    def __init__(
        self, machine: Machine, fresh: Callable[[], Snapshot], *, readonly: bool = False
    ) -> None:
        self._machine = machine
        self._fresh = fresh
        self._readonly = readonly
        self._open: dict[str, FlowSession] = {}

    def start(self, request: FlowRequest, say: Say) -> FlowState:
        """A new one; the oldest that is open is forgotten when there are too many."""
        tools = Tools(
            machine=self._machine,
            fresh=self._fresh,
            facts=Facts(self._machine),
            readonly=self._readonly,
        )
        session = FlowSession(secrets.token_hex(6), request, tools)
        while len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        self._open[session.id] = session
        return self._kept(session.begin(say))

    def answer(self, flow: str, answer: FlowAnswer, say: Say) -> FlowState:
        """Raises UsageError for a flow that is not open."""
        return self._kept(self._session(flow).answer(answer, say))

    def cancel(self, flow: str) -> None:
        """A flow that is not open has nothing to cancel."""
        if flow in self._open:
            self._open[flow].cancel()

    def _session(self, flow: str) -> FlowSession:
        if flow not in self._open:
            raise UsageError("This flow is over; start it again.")
        return self._open[flow]

    def _kept(self, state: FlowState) -> FlowState:
        if isinstance(state.prompt, Ended):
            self._open.pop(state.id, None)
        return state
