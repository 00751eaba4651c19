"""The time of day as the screens write it. The clock itself is never read here."""

from __future__ import annotations

from datetime import datetime, timezone

from cockpit.model.time import moment


def clock(iso: str | None, utc_offset_s: float = 0.0) -> str:
    """``14:02:11`` on a clock that is ``utc_offset_s`` ahead of UTC."""
    at = moment(iso)
    if at is None:
        return "–"
    return datetime.fromtimestamp(at + utc_offset_s, timezone.utc).strftime("%H:%M:%S")
