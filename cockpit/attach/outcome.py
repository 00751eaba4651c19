"""What came of an attach or a detach: the state, one sentence, and what is needed to look again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cockpit.attach.discover import AgentSocket

State = Literal["attached", "queued", "refused", "failed", "gone", "detached"]


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
    start_ticks: int | None = None
    mark: str = ""
    """What is left in the target or on disk while the agent's start is queued."""
    reason_path: str = ""
    """Where the target says why its agent does not start (``reason``)."""

    @property
    def exit_code(self) -> int:
        """As DESIGN section 6 has it; queued is not an error."""
        codes = {"attached": 0, "queued": 0, "detached": 0, "refused": 4, "gone": 5}
        return codes.get(self.state, 1)
