"""Attach to a running process, from the question to the agent's first answer; and detach.

``plan`` looks and gives the sentence to confirm, ``run`` acts, ``wait`` looks again after a while
at what is still queued. Refusals and failures come back as an Outcome with one sentence.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from cockpit.attach import inject_gdb, reason
from cockpit.attach.client import AgentError, Client
from cockpit.attach.discover import AgentSocket, find
from cockpit.attach.first_answer import (
    ANSWER_WAIT_S,
    Say,
    Wait,
    ended_sentence,
    hush,
    refused_by,
)
from cockpit.attach.inject_ptrace import inject
from cockpit.attach.inject_remote_exec import remote_exec
from cockpit.attach.outcome import Outcome, State
from cockpit.attach.payload import agent_source, wrap
from cockpit.attach.preflight import Verdict, judge
from cockpit.attach.target import Target, look

WAIT_S = 5.0
"""For the agent's source to run and open its socket."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done."""

    pid: int
    verdict: Verdict | None
    agent: AgentSocket | None = None
    """It has one already: nothing needs to be confirmed."""

    @property
    def refusal(self) -> str | None:
        """One sentence, or None when it may be done."""
        refused = self.verdict.refusal if self.verdict else None
        return refused.sentence if refused else None

    @property
    def confirm(self) -> str:
        """The question to ask; empty when there is nothing to ask."""
        return self.verdict.confirm if self.verdict else ""


def plan(pid: int, start_ticks: int | None = None) -> Plan:
    """Look only. An agent that answers makes the rest unnecessary."""
    agent = find(pid)
    if agent is not None and _answers(agent):
        return Plan(pid, None, agent)
    return Plan(pid, judge(pid, start_ticks))


def run(
    planned: Plan,
    wait_s: float = WAIT_S,
    source: str | None = None,
    say: Say = hush,
    answer_s: float = ANSWER_WAIT_S,
) -> Outcome:
    """Do it: to be called only after the plan's question was answered with yes.

    ``wait_s`` is for the socket to come, ``answer_s`` for its first answer, with progress by
    ``say`` meanwhile; the process's end ends both.
    """
    if planned.agent is not None:
        return _of_agent(planned, planned.agent, say, answer_s)
    began = time.perf_counter()
    # Time has passed over the question: everything is asked once more.
    ticks = planned.verdict.start_ticks if planned.verdict else None
    verdict = judge(planned.pid, ticks)
    if verdict.refusal is not None:
        gone = verdict.refusal.code in ("gone", "replaced", "ended")
        state: State = "gone" if gone else "refused"
        return Outcome(planned.pid, state, verdict.refusal.sentence, verdict.refusal.code)
    queued = _way_in(verdict, source if source is not None else agent_source())
    if queued.state != "queued":
        return queued
    return Wait(queued, began, say, answer_s).until(began + wait_s, wait_s)


def wait(outcome: Outcome, wait_s: float = WAIT_S) -> Outcome:
    """Look once more at what was queued; the same states."""
    if outcome.state != "queued":
        return outcome
    began = time.perf_counter()
    return Wait(outcome, began, hush, ANSWER_WAIT_S).until(began + wait_s, wait_s)


def detach(pid: int) -> Outcome:
    """Ask the agent to leave. Fine when there is none."""
    agent = find(pid)
    if agent is None:
        if look(pid) is None:
            return Outcome(pid, "gone", f"There is no process {pid}.", "gone")
        return Outcome(pid, "detached", f"pid {pid} has no agent: nothing to detach.")
    try:
        with Client.connect(pid, agent.path) as client:
            client.call("detach")
    except AgentError as error:
        return Outcome(pid, "failed", str(error), error.code)
    end = time.monotonic() + 1
    while os.path.lexists(agent.path) and time.monotonic() < end:
        time.sleep(0.005)
    return Outcome(pid, "detached", f"Detached from pid {pid}.")


def _of_agent(planned: Plan, agent: AgentSocket, say: Say, answer_s: float) -> Outcome:
    """It has one already: only its answer is waited for."""
    found = look(planned.pid)
    ticks = found.start_ticks if found else None
    asked = Wait(
        Outcome(planned.pid, "failed", "", start_ticks=ticks), time.perf_counter(), say, answer_s
    )
    return asked.answer_of(agent) or asked.gone() or refused_by(asked.queued)


def _way_in(verdict: Verdict, source: str) -> Outcome:
    pid, target = verdict.pid, verdict.target
    if target is None or verdict.way is None:
        return Outcome(pid, "failed", f"There is no way into pid {pid}.")
    if verdict.way == "gdb" and verdict.gdb is None:
        return Outcome(pid, "failed", "gdb is not to be found any more.")
    path = reason.new_path(target)
    wrapped = wrap(source, target.inner_pid, verdict.way, path)
    stopped = None
    if verdict.way == "remote_exec":
        done = remote_exec(target, wrapped)
        ok, code, sentence, mark = done.ok, done.code, done.sentence, done.script
    elif verdict.gdb is not None:
        by_gdb = inject_gdb.inject(verdict.gdb, target, wrapped)
        ok, code, sentence, mark = by_gdb.ok, by_gdb.code, by_gdb.sentence, by_gdb.reached(pid)
    else:
        injected = inject(pid, target.start_ticks, wrapped)
        ok, code, sentence = injected.ok, injected.code, injected.sentence
        stopped, mark = injected.stopped_ms, f"{injected.page:x}"
    if not ok and code != "gone" and _has_ended(target):  # it is refused much when it is gone
        code, sentence = "gone", ended_sentence(pid)
    states: dict[str, State] = {"gone": "gone", "failed": "failed"}
    state = "queued" if ok else states.get(code, "refused")
    return Outcome(
        pid,
        state,
        sentence,
        code,
        stopped_ms=stopped,
        start_ticks=target.start_ticks,
        mark=mark,
        reason_path=path,
    )


def _has_ended(target: Target) -> bool:
    now = look(target.pid)
    return now is None or now.start_ticks != target.start_ticks or now.state in "ZX"


def _answers(agent: AgentSocket) -> bool:
    try:
        Client.connect(agent.pid, agent.path).close()
    except AgentError:
        return False
    return True
