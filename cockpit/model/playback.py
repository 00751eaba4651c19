"""Where a machine's snapshots come from, and where a replay stands in its recording."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Source = Literal["live", "demo", "replay"]


class Playback(Struct, frozen=True, kw_only=True):
    """Where a replay stands."""

    position_s: float
    duration_s: float
    paused: bool
    speed: float
