"""Something that happened at a moment."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["info", "warning", "error"]
EventKind = Literal[
    "xid",
    "throttle",
    "ecc",
    "lost",
    "recovered",
    "process_started",
    "process_ended",
    "oom",
    "action",
]


class Event(Struct, frozen=True, kw_only=True):
    """One event, told in a sentence."""

    at: str
    """UTC, ISO 8601 with milliseconds."""
    gpu: int | None
    kind: EventKind
    sentence: str
    severity: Severity
    xid: int | None = None
