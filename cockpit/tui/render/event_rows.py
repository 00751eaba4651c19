"""Events: the newest in one line, and all of them on a page."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.event import Event, Severity
from cockpit.model.text import age
from cockpit.model.time import seconds_since
from cockpit.tui.line import Line, Role, Row
from cockpit.tui.render.cells import crop, fit_line, foreign, merged, pad, width_of, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.times import clock

_ROLES: dict[Severity, Role] = {"info": "", "warning": "warn", "error": "error"}
_SIGNS: dict[Severity, str] = {"info": " ", "warning": "!", "error": "!"}

KIND_WORDS: dict[str, str] = {
    "xid": "Xid",
    "throttle": "throttle",
    "ecc": "ECC",
    "lost": "lost",
    "recovered": "back",
    "process_started": "start",
    "process_ended": "end",
    "oom": "OOM",
    "action": "action",
}
"""Kind of an event in at most eight cells."""


def event_strip(
    events: Sequence[Event], width: int, glyphs: Glyphs, utc_offset_s: float = 0.0
) -> Line:
    """The newest events with their time of day, newest first, as many as fit whole.

    The time of day and not the age: an age would change the line at every tick.
    """
    if not events:
        return glyphs.finish(fit_line(((" no events yet", "dim"),), width))
    line: Line = _short(events[-1], width - 1, utc_offset_s)
    used = sum(width_of(text) for text, _ in line)
    for event in reversed(events[:-1]):
        part = _short(event, 10_000, utc_offset_s)
        needed = 3 + sum(width_of(text) for text, _ in part)
        if used + needed + 1 > width:
            break
        line = (*line, (" · ", "dim"), *part)
        used += needed
    return glyphs.finish(fit_line(merged(((" ", ""), *line)), width))


def newest_events(
    events: Sequence[Event], width: int, glyphs: Glyphs, count: int, utc_offset_s: float = 0.0
) -> list[Line]:
    """The last ``count`` events, one a line, the newest last as in a log."""
    lines = [(("  ", ""), *_short(one, width - 2, utc_offset_s)) for one in events[-count:]]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _short(event: Event, width: int, utc_offset_s: float) -> Line:
    at = clock(event.at, utc_offset_s)
    sign = "! " if event.severity == "error" else ""
    words = crop(sign + foreign(event.sentence).rstrip("."), max(0, width - len(at) - 1))
    role: Role = "dim" if event.severity == "info" else _ROLES[event.severity]
    return ((f"{at} ", "dim"), (words, role))


def event_header(width: int, glyphs: Glyphs) -> Line:
    """Titles of the page."""
    return glyphs.finish(
        fit_line(((f"   {'TIME':8}    AGE  GPU  {'KIND':8}  WHAT", "label"),), width)
    )


def event_rows(
    events: Sequence[Event],
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    utc_offset_s: float = 0.0,
) -> list[Row]:
    """Newest first; long sentences are wrapped under themselves. Keys: ``("event", n, line)``."""
    rows: list[Row] = []
    for number in range(len(events) - 1, -1, -1):
        lines = _event_lines(events[number], width, now_s, utc_offset_s)
        rows += [
            Row(("event", events[number].at, number, part), glyphs.finish(line))
            for part, line in enumerate(lines)
        ]
    return rows


_LEFT = 35


def _event_lines(event: Event, width: int, now_s: float | None, utc_offset_s: float) -> list[Line]:
    left = _left(event, now_s, utc_offset_s)
    role = _ROLES[event.severity]
    texts = wrapped(foreign(event.sentence), max(8, width - _LEFT))
    first: Line = (*left, (texts[0], role))
    rest: list[Line] = [((" " * _LEFT, ""), (text, role)) for text in texts[1:]]
    return [fit_line(line, width) for line in (first, *rest)]


def _left(event: Event, now_s: float | None, utc_offset_s: float) -> Line:
    gpu = "–" if event.gpu is None else str(event.gpu)
    words = KIND_WORDS.get(event.kind, foreign(event.kind))
    since = age(seconds_since(event.at, now_s))
    return (
        (f" {_SIGNS[event.severity]} ", _ROLES[event.severity]),
        (f"{clock(event.at, utc_offset_s)}  {since:>5}  {gpu:>3}  ", "dim"),
        (f"{pad(words, 8)}  ", _ROLES[event.severity]),
    )
