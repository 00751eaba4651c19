"""One guided flow as the face follows it. It outlives its page: what runs goes on without it.

Knows the session and FlowStates; draws nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any

from cockpit.errors import CockpitError
from cockpit.model.flow import (
    Ask,
    Choose,
    Confirm,
    Ended,
    FlowAnswer,
    FlowRequest,
    FlowState,
    InTerminal,
)
from cockpit.model.remedy import Preview
from cockpit.tui.session import Session

_MOST_SAID = 400
"""Lines of progress that are kept."""


def was_verified(state: FlowState | None) -> bool:
    """A fix ran, was seen to help and was not taken back: what ``cockpit fix`` exits with 0 for."""
    if state is None:
        return False
    if isinstance(state.prompt, Ended):
        return state.prompt.verified
    return any(one.verified and not one.undone for one in state.done)


class FlowTalk:
    """Start, then answer after answer; ``changed`` is called whenever there is something new."""

    def __init__(
        self,
        session: Session,
        request: FlowRequest,
        run: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        changed: Callable[[], None],
    ) -> None:
        self.state: FlowState | None = None
        """None until the engine has looked around."""
        self.error: str | None = None
        """Why the last answer did not get anywhere; the prompt is still open."""
        self.said: deque[str] = deque(maxlen=_MOST_SAID)
        self.running: Preview | None = None
        """What was confirmed and runs; None while it is only looked around."""
        self.doing: str | None = None
        """Its title, or that of what is taken back."""
        self.cancelled = False
        self.questions = 0
        """How many were answered."""
        self._session = session
        self._request = request
        self._run = run
        self._changed = changed
        self._since: float | None = None

    @property
    def pid(self) -> int | None:
        """The process that it was opened about."""
        return self._request.pid

    @property
    def busy(self) -> bool:
        """An answer is on its way; nothing else can be said meanwhile."""
        return self._since is not None

    @property
    def elapsed_s(self) -> float:
        """Since the answer was given; 0 when none is on its way."""
        return 0.0 if self._since is None else monotonic() - self._since

    @property
    def step(self) -> int:
        """Questions answered and fixes run, and the one that is open."""
        return 1 + self.questions + (len(self.state.done) if self.state is not None else 0)

    def start(self) -> None:
        """Let the engine look around; after a failure, once more."""
        if not self.busy:
            self._begin()
            ask = partial(self._session.start_flow, self._request, self._say)
            self._run(partial(self._move, ask))

    def answer(self, answer: FlowAnswer) -> None:
        """Say this to the open prompt; ignored while something is on its way."""
        state = self.state
        if state is None or self.busy or isinstance(state.prompt, Ended):
            return
        self._begin(_runs(state, answer), _taken_back(state, answer))
        asked = isinstance(state.prompt, Ask) and answer.option is not None
        ask = partial(self._session.answer_flow, state.id, answer, self._say)
        self._run(partial(self._move, ask, asked))

    def leave(self) -> None:
        """Tell the engine that nobody answers any more: at once, as nobody waits for its reply."""
        if self.state is not None and not self.busy and not isinstance(self.state.prompt, Ended):
            self._session.leave_flow(self.state.id)

    def cancel(self) -> None:
        """Ask what runs to stop; its end comes as the answer."""
        if self.busy and self.state is not None and not self.cancelled:
            self.cancelled = True
            self._session.cancel_flow(self.state.id)
            self._changed()

    def _begin(self, running: Preview | None = None, undone: str | None = None) -> None:
        self.said.clear()
        self.error, self.running, self.cancelled = None, running, False
        self.doing = running.title if running is not None else undone
        self._since = monotonic()
        self._changed()

    async def _move(
        self, ask: Callable[[], Coroutine[Any, Any, FlowState]], asked: bool = False
    ) -> None:
        # Asked in here: an app that ends before its worker begins leaves no coroutine behind.
        try:
            self.state = await ask()
            self.questions += asked
        except CockpitError as error:
            self.error = str(error)
        finally:
            self._since = None
        self._changed()

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)
        self._changed()


def _taken_back(state: FlowState, answer: FlowAnswer) -> str | None:
    if answer.undo is None or not isinstance(state.prompt, Choose):
        return None
    return f"undo: {state.prompt.undoable[answer.undo]}"


def _runs(state: FlowState, answer: FlowAnswer) -> Preview | None:
    said_yes = answer.confirmed or answer.typed is not None or answer.exit_status is not None
    if said_yes and isinstance(state.prompt, Confirm | InTerminal):
        return state.prompt.preview
    return None
