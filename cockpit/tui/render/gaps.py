"""Why a value is missing, in the room that there is for it."""

from __future__ import annotations

import re

from cockpit.model import gap_words as known
from cockpit.tui.render.cells import foreign

_TAIL = re.compile(r"(:| (by|while|under|in|from) ).*")


def gap_words(reason: str | None, width: int = 1000) -> str:
    """Where it is longer than ``width`` it loses its second half: ``not supported``."""
    words = foreign(known.gap_words(reason))
    return words if len(words) <= width else _TAIL.sub("", words)
