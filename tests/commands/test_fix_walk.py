"""The walk through a flow against an engine that says what the test wants."""

from __future__ import annotations

import pytest

from cockpit.commands.fix import _Walk
from cockpit.engine.protocol import AnswerFlow, FromEngine, Message, Reply, StartFlow
from cockpit.model.flow import Ask, Ended, FlowRequest, FlowState

ASKING = FlowState(
    id="f", flow="oom", title="t", prompt=Ask(question="Which run?", texts=("a", "b"))
)
LEFT = FlowState(id="f", flow="oom", title="t", prompt=Ended(verified=False, sentence="Left."))


class RefusingLink:
    """What ``answer`` needs of a Link; every answer but that of leaving is refused."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._replies: list[FromEngine] = []

    def next_id(self) -> int:
        return len(self.sent) + 1

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, StartFlow):
            self._replies.append(Reply(id=message.id, flow=ASKING))
        elif isinstance(message, AnswerFlow) and message.answer.leave:
            self._replies.append(Reply(id=message.id, flow=LEFT))
        elif isinstance(message, AnswerFlow):
            self._replies.append(Reply(id=message.id, error="not this one", exit_code=4))

    def receive(self, _timeout_s: float) -> FromEngine | None:
        return self._replies.pop(0) if self._replies else None


class Typed:
    """A terminal: one answer, then ctrl+c."""

    def __init__(self) -> None:
        self._lines = ["1\n"]

    def readline(self) -> str:
        if not self._lines:
            raise KeyboardInterrupt
        return self._lines.pop()


def test_ctrl_c_after_a_refused_answer_leaves_the_flow(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Typed())
    monkeypatch.setattr("cockpit.commands.fix.STOP_PATIENCE_S", 0.1)
    link = RefusingLink()
    walk = _Walk(link, dry_run=False, readonly=False)
    with pytest.raises(KeyboardInterrupt):
        walk.to_the_end(FlowRequest(flow="oom"))
    walk.stop()
    assert [type(one) for one in link.sent] == [StartFlow, AnswerFlow, AnswerFlow]
    said = capfd.readouterr()
    assert "not this one" in said.err
    assert "Stopping" not in said.err
    assert said.out.endswith("Left.\n")
