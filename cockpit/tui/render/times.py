"""Moments and ages as the screens write them. The clock itself is never read here."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache


@lru_cache(maxsize=4096)
def moment(iso: str | None) -> float | None:
    """Seconds since the epoch of an ISO 8601 moment; None for anything that is none."""
    if iso is None:
        return None
    try:
        # Python 3.10 does not read the "Z".
        at = datetime.fromisoformat(iso.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def seconds_since(iso: str | None, now_s: float | None) -> float | None:
    """How long ago it was; never negative."""
    at = moment(iso)
    return None if at is None or now_s is None else max(0.0, now_s - at)


def age(seconds: float | None) -> str:
    """``45s``, ``12m``, ``3h12``, ``2d04``: no seconds after the first minute.

    A column in which every row changes each second costs more bytes than all the rest of it.
    """
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}" if days < 1000 else f"{days}d"


def clock(iso: str | None, utc_offset_s: float = 0.0) -> str:
    """``14:02:11`` on a clock that is ``utc_offset_s`` ahead of UTC."""
    at = moment(iso)
    if at is None:
        return "–"
    return datetime.fromtimestamp(at + utc_offset_s, timezone.utc).strftime("%H:%M:%S")
