"""Attach to a running process, from the question to the agent's first answer; and detach.

``plan`` looks and gives the sentence to confirm, ``run`` acts, ``wait`` looks again after a while
at what is still queued. Refusals and failures come back as an Outcome with one sentence.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

from cockpit.attach import inject_gdb, stacks
from cockpit.attach.client import AgentError, Client, NoAnswerError
from cockpit.attach.discover import AgentSocket, find
from cockpit.attach.inject_ptrace import inject, still_queued
from cockpit.attach.inject_remote_exec import remote_exec
from cockpit.attach.payload import agent_source, wrap
from cockpit.attach.preflight import Verdict, judge
from cockpit.attach.target import look
from cockpit.model.text import clean

State = Literal["attached", "queued", "refused", "failed", "gone", "detached"]

WAIT_S = 5.0
_POLL_FIRST_S = 0.002
_POLL_MAX_S = 0.05


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done."""

    pid: int
    state: State
    sentence: str
    code: str = ""
    agent: AgentSocket | None = None
    hello: dict[str, Any] | None = None
    stopped_ms: float | None = None
    """How long the main thread stood still; None: it was not stopped."""
    answer_ms: float | None = None
    """From the start of the attach to the agent's hello."""
    start_ticks: int | None = None
    mark: str = ""
    """What is left in the target or on disk while the agent's start is queued."""

    @property
    def exit_code(self) -> int:
        """As DESIGN section 6 has it; queued is not an error."""
        codes = {"attached": 0, "queued": 0, "detached": 0, "refused": 4, "gone": 5}
        return codes.get(self.state, 1)


def plan(pid: int, start_ticks: int | None = None) -> Plan:
    """Look only. An agent that answers makes the rest unnecessary."""
    agent = find(pid)
    if agent is not None and _answers(agent):
        return Plan(pid, None, agent)
    return Plan(pid, judge(pid, start_ticks))


def run(planned: Plan, wait_s: float = WAIT_S, source: str | None = None) -> Outcome:
    """Do it: to be called only after the plan's question was answered with yes."""
    if planned.agent is not None:
        return _hello(Outcome(planned.pid, "failed", ""), planned.agent, time.perf_counter())
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
    return _await(queued, began, wait_s)


def wait(outcome: Outcome, wait_s: float = WAIT_S) -> Outcome:
    """Look once more at what was queued; the same states."""
    return _await(outcome, time.perf_counter(), wait_s) if outcome.state == "queued" else outcome


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


def silence(pid: int) -> str:
    """Why an agent that is there does not answer."""
    target = look(pid)
    if target is None or target.state in "ZX":
        return f"pid {pid} has ended."
    if target.state in "Tt":
        return f"pid {pid} is stopped (SIGSTOP)."
    return (
        f"pid {pid} does not answer: something holds the GIL. Stacks below were read from outside."
    )


def attached_sentence(hello: dict[str, Any], pid: int) -> str:
    """``Attached to pid 4711 (rank 3, torch 2.13.0)``."""
    rank, torch = hello.get("rank"), hello.get("torch_version")
    parts = [f"rank {rank}"] if rank is not None else []
    parts.append(f"torch {torch}" if torch else "no torch loaded yet")
    return clean(f"Attached to pid {pid} ({', '.join(parts)})")


def _way_in(verdict: Verdict, source: str) -> Outcome:
    pid, target = verdict.pid, verdict.target
    if target is None or verdict.way is None:
        return Outcome(pid, "failed", f"There is no way into pid {pid}.")
    if verdict.way == "remote_exec":
        done = remote_exec(target, wrap(source, target.inner_pid, "remote_exec"))
        stopped, mark = None, done.script
        ok, code, sentence = done.ok, done.code, done.sentence
    elif verdict.way == "gdb":
        if verdict.gdb is None:
            return Outcome(pid, "failed", "gdb is not to be found any more.")
        by_gdb = inject_gdb.inject(verdict.gdb, target, wrap(source, target.inner_pid, "ptrace"))
        stopped, mark = None, by_gdb.reached(pid)
        ok, code, sentence = by_gdb.ok, by_gdb.code, by_gdb.sentence
    else:
        injected = inject(pid, target.start_ticks, wrap(source, target.inner_pid, "ptrace"))
        stopped, mark = injected.stopped_ms, f"{injected.page:x}"
        ok, code, sentence = injected.ok, injected.code, injected.sentence
    state: State = "queued" if ok else "gone" if code == "gone" else "refused"
    if not ok and code == "failed":
        state = "failed"
    return Outcome(pid, state, sentence, code, None, None, stopped, None, target.start_ticks, mark)


def _await(queued: Outcome, began: float, wait_s: float) -> Outcome:
    pause, deadline = _POLL_FIRST_S, began + wait_s
    while True:
        agent = find(queued.pid)
        if agent is not None:
            # Give the hello what is left: the socket is there before the agent's thread runs.
            answer = _hello(queued, agent, began)
            if answer.state == "attached" or answer.code == "not_trusted":
                return answer
        target = look(queued.pid)
        if target is None or target.start_ticks != queued.start_ticks or target.state in "ZX":
            return replace(queued, state="gone", code="gone", sentence=_ended(queued.pid))
        if time.perf_counter() >= deadline:
            return _not_yet(queued, wait_s)
        time.sleep(pause)
        pause = min(_POLL_MAX_S, pause * 1.5)


def _hello(queued: Outcome, agent: AgentSocket, began: float) -> Outcome:
    try:
        with Client.connect(queued.pid, agent.path) as client:
            hello = client.call("hello")
    except NoAnswerError as error:
        return replace(queued, state="failed", sentence=silence(queued.pid), code=error.code)
    except AgentError as error:
        return replace(queued, state="failed", sentence=str(error), code=error.code)
    return replace(
        queued,
        state="attached",
        sentence=attached_sentence(hello, queued.pid),
        code="",
        agent=agent,
        hello=hello,
        answer_ms=(time.perf_counter() - began) * 1e3,
        mark="",
    )


def _not_yet(queued: Outcome, wait_s: float) -> Outcome:
    if not _waits(queued):
        sentence = (
            f"The agent was loaded into pid {queued.pid} but opened no socket: "
            "its /tmp/cockpit-UID must be a directory of its user with mode 0700."
        )
        return replace(queued, state="failed", code="no_socket", sentence=sentence)
    inside = stacks.dump(queued.pid).inside
    where = f"is inside {inside} and " if inside else ""
    return replace(
        queued,
        sentence=f"The attach is queued: the main thread {where}has run no Python for "
        f"{wait_s:g} s. It takes effect when that call returns.",
    )


def _waits(queued: Outcome) -> bool:
    """The source has not begun to run: its mapping, or its script, is still there."""
    if queued.mark.startswith("/"):
        return os.path.lexists(queued.mark)
    return bool(queued.mark) and still_queued(queued.pid, int(queued.mark, 16))


def _answers(agent: AgentSocket) -> bool:
    try:
        Client.connect(agent.pid, agent.path).close()
    except AgentError:
        return False
    return True


def _ended(pid: int) -> str:
    return f"pid {pid} ended before the agent could start."
