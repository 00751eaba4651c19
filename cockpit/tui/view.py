"""What a screen is given to draw: one frozen View. Screens hold no telemetry of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cockpit.model.finding_history import Known
from cockpit.model.history import History
from cockpit.model.playback import Playback, Source
from cockpit.model.process import Relative
from cockpit.model.run_history import RunHistory
from cockpit.model.snapshot import Snapshot
from cockpit.tui.render.glyphs import Glyphs


@dataclass(frozen=True)
class View:
    """Everything visible at one moment."""

    snapshot: Snapshot
    history: History
    run_history: RunHistory
    """For the memory page: it grows while other pages are in front."""
    relatives: tuple[Relative, ...]
    playback: Playback | None
    source: Source
    title: str
    """Of the demo or the recording."""
    glyphs: Glyphs
    interval_s: float
    paused: bool
    readonly: bool
    recording: bool
    trouble: str | None = None
    """Why no fresh readings come, when they do not."""
    findings: tuple[Known, ...] = ()
    """Those of the snapshot with their times, then the last ones that have cleared."""


def utc_offset_s() -> float:
    """Of this terminal's time zone, now."""
    return float(time.localtime().tm_gmtoff)
