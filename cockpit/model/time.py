"""Moments as the JSON has them."""

from __future__ import annotations

from datetime import datetime, timezone


def iso(seconds: float) -> str:
    """``2026-11-30T16:00:00.000Z`` from seconds since the epoch."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def seconds(text: str) -> float:
    """The opposite of :func:`iso`. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
