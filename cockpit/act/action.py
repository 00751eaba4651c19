"""What every guided fix is: something with a preview, that runs, and perhaps is taken back.

Who runs one (the engine) asks for the confirmation first and keeps the journal; an Action does
neither. It checks again, just before it acts, that what it acts on is still what it showed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cockpit.model.remedy import Outcome, Preview


@dataclass(frozen=True)
class Console:
    """Where a running fix speaks, and how it is told to stop."""

    say: Callable[[str], None]
    """Takes a sentence of progress or a line of output; clean is not needed, the taker does it."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set: stop as soon as that is safe, and say in the Outcome what was done."""


class Action(Protocol):
    """One fix with its own values."""

    def preview(self) -> Preview:
        """What exactly would run. Changes nothing; does not raise."""

    def run(self, console: Console) -> Outcome:
        """Do it, then look whether it helped. Raises CockpitError with a sentence."""
