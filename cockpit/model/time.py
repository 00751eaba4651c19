"""Moments as the JSON has them."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache


def iso(seconds: float) -> str:
    """``2026-11-30T16:00:00.000Z`` from seconds since the epoch."""
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


@lru_cache(maxsize=4096)
def moment(text: str | None) -> float | None:
    """The opposite of :func:`iso`; None for anything that is no moment."""
    if text is None:
        return None
    try:
        # Python 3.10 does not read the "Z".
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def seconds_since(text: str | None, now_s: float | None) -> float | None:
    """How long ago it was; never negative."""
    at = moment(text)
    return None if at is None or now_s is None else max(0.0, now_s - at)
