"""From what is queued in a process to the agent's first answer; what to say when it does not come.

Three things are told apart: the source has not run yet (the main thread is inside a C call), it has
run without a socket, and there is a socket whose agent gives no answer yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cockpit.attach import reason, stacks
from cockpit.attach.client import AgentError, Client, EndedError, NoAnswerError
from cockpit.attach.discover import AgentSocket, find
from cockpit.attach.inject_ptrace import still_queued
from cockpit.attach.outcome import Outcome
from cockpit.attach.target import arguments, look
from cockpit.model.text import clean

Say = Callable[[str], None]

ANSWER_WAIT_S = 15.0
"""For the first answer once the socket is there: CPython starves other threads while the main
thread lets go of the GIL and takes it back every few ms (1 to 6 s seen with 200 stat calls/s)."""
_SLICE_S = 1.0
_POLL_FIRST_S = 0.002
_POLL_MAX_S = 0.05


def hush(_sentence: str) -> None:
    """Progress that nobody listens to."""


def attached_sentence(hello: dict[str, Any], pid: int) -> str:
    """``Attached to pid 4711 (rank 3, torch 2.13.0)``."""
    rank, torch = hello.get("rank"), hello.get("torch_version")
    parts = [f"rank {rank}"] if rank is not None else []
    parts.append(f"torch {torch}" if torch else "no torch loaded yet")
    return clean(f"Attached to pid {pid} ({', '.join(parts)})")


class Wait:
    """From what is queued to the agent's first answer; ``began`` is of perf_counter."""

    def __init__(self, queued: Outcome, began: float, say: Say, answer_s: float) -> None:
        self.queued = queued
        self._began = began
        self._say = say
        self._answer_s = answer_s

    def until(self, deadline: float, wait_s: float) -> Outcome:
        """Until the socket is there and answers, the process ends, or the time is over."""
        pause, refused = _POLL_FIRST_S, False
        while True:
            agent = find(self.queued.pid)
            if agent is not None:
                answer = self.answer_of(agent)
                if answer is not None:
                    return answer
                # Perhaps of a killed process that had its pid: the agent replaces it.
                refused = True
            ended = self.gone() or self._not_started()
            if ended is not None:
                return ended
            if time.perf_counter() >= deadline:
                return _not_yet(self.queued, wait_s, refused)
            time.sleep(pause)
            pause = min(_POLL_MAX_S, pause * 1.5)

    def answer_of(self, agent: AgentSocket) -> Outcome | None:
        """The first answer, or why there is none; None: nobody listens at that socket."""
        pid, deadline = self.queued.pid, time.monotonic() + self._answer_s
        try:
            with Client.connect(pid, agent.path) as client:
                while True:
                    try:
                        return self._attached(agent, client.call("hello", _SLICE_S))
                    except NoAnswerError:
                        ended = self.gone() or self._stopped(agent)
                        if ended is not None or time.monotonic() >= deadline:
                            return ended or self._silent(agent)
                        self._say(_waiting(pid, time.perf_counter() - self._began))
        except EndedError:
            return None
        except NoAnswerError:  # not even a place in the queue of connections
            return self.gone() or self._silent(agent)
        except AgentError as error:
            return replace(self.queued, state="failed", sentence=str(error), code=error.code)

    def gone(self) -> Outcome | None:
        """None while that very process is alive."""
        pid, ticks = self.queued.pid, self.queued.start_ticks
        target = look(pid)
        if target is not None and target.state not in "ZX" and ticks in (None, target.start_ticks):
            return None
        sentence = ended_sentence(pid) if self.queued.mark else f"pid {pid} has ended."
        return replace(self.queued, state="gone", code="gone", sentence=sentence)

    def _stopped(self, agent: AgentSocket) -> Outcome | None:
        target = look(self.queued.pid)
        if target is None or target.state not in "Tt":
            return None
        sentence = f"pid {target.pid} is stopped (SIGSTOP). Continue it: kill -CONT {target.pid}"
        return self._no_answer(agent, sentence)

    def _silent(self, agent: AgentSocket) -> Outcome:
        sentence = (
            f"The agent of pid {self.queued.pid} has its socket but has not answered for "
            f"{self._answer_s:g} s: the program keeps the GIL. It answers once that is let go."
        )
        return self._no_answer(agent, sentence)

    def _no_answer(self, agent: AgentSocket, sentence: str) -> Outcome:
        return replace(
            self.queued, state="failed", code="no_answer", sentence=sentence, agent=agent
        )

    def _not_started(self) -> Outcome | None:
        """Its own words, where it left any."""
        target = look(self.queued.pid)
        why = reason.take(target, self.queued.reason_path) if target is not None else None
        if why is None:
            return None
        sentence = f"The agent was loaded into pid {self.queued.pid} but did not start ({why})."
        return replace(self.queued, state="failed", code="no_socket", sentence=sentence)

    def _attached(self, agent: AgentSocket, hello: dict[str, Any]) -> Outcome:
        return replace(
            self.queued,
            state="attached",
            sentence=attached_sentence(hello, self.queued.pid),
            code="",
            agent=agent,
            hello=hello,
            mark="",
        )


def _waiting(pid: int, for_s: float) -> str:
    return f"pid {pid} has the agent's socket; its first answer is waited for ({for_s:.0f} s)"


def _not_yet(queued: Outcome, wait_s: float, refused: bool) -> Outcome:
    if not _waits(queued):
        return refused_by(queued) if refused else _no_socket(queued)
    inside = stacks.dump(queued.pid).inside
    where = f"is inside {inside} and " if inside else ""
    return replace(
        queued,
        sentence=f"The attach is queued: the main thread {where}has run no Python for "
        f"{wait_s:g} s. It takes effect {_when(queued.pid)}.",
    )


def _when(pid: int) -> str:
    if any("ipykernel" in word for word in arguments(pid)):
        return "as soon as any cell of the notebook is run (1 will do)"
    return "when that call returns"


def refused_by(queued: Outcome) -> Outcome:
    """The socket is there and its process is alive, but the agent's thread is not."""
    sentence = f"The agent's socket of pid {queued.pid} is there but nobody listens at it any more."
    return replace(queued, state="failed", code="refused", sentence=sentence)


def _no_socket(queued: Outcome) -> Outcome:
    sentence = (
        f"The agent was loaded into pid {queued.pid} but opened no socket and gave no reason. "
        'Use "cockpit run -- …".'
    )
    return replace(queued, state="failed", code="no_socket", sentence=sentence)


def _waits(queued: Outcome) -> bool:
    """The source has not begun to run: its mapping, or its script, is still there."""
    if queued.mark.startswith("/"):
        return os.path.lexists(queued.mark)
    return bool(queued.mark) and still_queued(queued.pid, int(queued.mark, 16))


def ended_sentence(pid: int) -> str:
    """Of a process that was alive when the attach began."""
    return f"pid {pid} ended before the agent could start."
