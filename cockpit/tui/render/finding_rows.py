"""The list of findings: those that stand, what only the readings say, those that have cleared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from cockpit.model.event import Severity
from cockpit.model.finding_history import Known
from cockpit.model.finding_subject import gpus_of, pids_of
from cockpit.model.process import Process
from cockpit.model.text import age
from cockpit.model.time import seconds_since
from cockpit.tui.line import LateRow, Line, Row
from cockpit.tui.render.alerts import Alert
from cockpit.tui.render.cells import foreign, toned_down
from cockpit.tui.render.columns import REST, Column, Table, lay_out
from cockpit.tui.render.finding_words import RANKS, ROLES, SIGNS, bare_title
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_ranges import ranges
from cockpit.tui.render.times import clock

WIDE = 110
"""From this width on, the time of day and the family have columns of their own."""

NOTHING = "Nothing wrong was found."
WATCHED = (
    "Watched: heat, power and links of the GPUs; Xids, ECC errors and lost GPUs; memory that a "
    "stray or nobody holds; processes that share a GPU or wait for data, for each other or for "
    "the host; in attached runs also the memory of their allocators."
)
"""What an empty list has to say, so that it is not read as "nothing was looked at"."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One row: a finding, or an alert where ``known`` is None."""

    key: Hashable
    severity: Severity
    gpus: str
    pids: str
    words: str
    known: Known | None = None
    alert: Alert | None = None

    @property
    def is_cleared(self) -> bool:
        """It was true."""
        return self.known is not None and self.known.cleared_at is not None


def listed(
    known: Sequence[Known], readings: Sequence[Alert], processes: Sequence[Process]
) -> list[Listed]:
    """What stands, worst first (findings before readings of the same severity); then the rest."""
    found = [_of_finding(one, processes) for one in known]
    standing = [one for one in found if not one.is_cleared]
    seen: Counter[tuple[int | None, int | None]] = Counter()
    for one in readings:
        standing.append(_of_alert(seen[one.gpu, one.pid], one))
        seen[one.gpu, one.pid] += 1
    standing.sort(key=lambda one: RANKS[one.severity])
    return [*standing, *(one for one in found if one.is_cleared)]


def _of_finding(known: Known, processes: Sequence[Process]) -> Listed:
    finding = known.finding
    pids = pids_of(finding)
    return Listed(
        ("finding", known.number),
        finding.severity,
        ranges(gpus_of(finding, processes)) or "–",
        _pids_words(pids),
        bare_title(finding),
        known,
    )


def _pids_words(pids: Sequence[int]) -> str:
    """``5602 +2``: all of them stand on the finding's page."""
    if not pids:
        return "–"
    return str(pids[0]) + (f" +{len(pids) - 1}" if len(pids) > 1 else "")


def _of_alert(number: int, alert: Alert) -> Listed:
    """``number`` tells several about one thing from one another: a place in the list would move."""
    gpus = "–" if alert.gpu is None else str(alert.gpu)
    key = ("alert", alert.gpu, alert.pid, number)
    pids = "–" if alert.pid is None else str(alert.pid)
    words = alert.sentence.removeprefix(f"GPU {gpus}: ")
    return Listed(key, alert.severity, gpus, pids, words, alert=alert)


@dataclass(frozen=True, slots=True)
class _Seen:
    one: Listed
    now_s: float | None
    utc_offset_s: float
    glyphs: Glyphs


def finding_rows(
    rows: Sequence[Listed],
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    utc_offset_s: float = 0.0,
) -> tuple[Line, list[LateRow | Row]]:
    """The titles, and a line a row; keys are those of :class:`Listed`."""
    table = lay_out(_columns(width, rows), width)
    made: list[LateRow | Row] = []
    for one in rows:
        seen = _Seen(one, now_s, utc_offset_s, glyphs)
        made.append(LateRow(one.key, lambda seen=seen: _line(table, seen)))  # type: ignore[misc]
    return glyphs.finish(table.header()), made


def _line(table: Table[_Seen], seen: _Seen) -> Line:
    line = table.row(seen)
    if seen.one.is_cleared:
        line = toned_down(line, keep=frozenset())
    return seen.glyphs.finish(line)


def _columns(width: int, rows: Sequence[Listed]) -> list[Column[_Seen]]:
    gpus = min(11, max((len(one.gpus) for one in rows), default=3))
    pids = min(12, max((len(one.pids) for one in rows), default=3))
    columns = [
        Column("", 2, _mark),
        Column("AGE", 6, _age, priority=4),
        Column("GPU", max(3, gpus), _gpus, priority=1, gap=2),
        Column("PID", max(5, pids), _pid, priority=3, gap=2),
        Column("WHAT", 20, _what, "left", gap=2, grow=REST),
    ]
    if width >= WIDE:
        columns[1:1] = [Column("SINCE", 8, _since, gap=2)]
        columns.insert(-1, Column("KIND", 12, _kind, "left", gap=2))
    return columns


def _mark(seen: _Seen, _: int) -> Line:
    if seen.one.is_cleared:
        return ((seen.glyphs.yes, "good"),)
    return ((SIGNS[seen.one.severity], ROLES[seen.one.severity]),)


def _since(seen: _Seen, _: int) -> Line:
    known = seen.one.known
    return ((clock(known.since, seen.utc_offset_s) if known else "–", "dim"),)


def _age(seen: _Seen, _: int) -> Line:
    known = seen.one.known
    if known is None or known.cleared_at is not None:
        return (("–", "dim"),)
    return ((age_words(known, seen.now_s), "dim"),)


def age_words(known: Known, now_s: float | None) -> str:
    """``5m``; ``≥5m`` where it stood already when the cockpit began to look."""
    return ("≥" if known.from_start else "") + age(seconds_since(known.since, now_s))


def _gpus(seen: _Seen, _: int) -> Line:
    return ((seen.one.gpus, ""),)


def _pid(seen: _Seen, _: int) -> Line:
    return ((seen.one.pids, ""),)


def _what(seen: _Seen, _: int) -> Line:
    one = seen.one
    if one.known is not None and one.known.cleared_at is not None:
        at = clock(one.known.cleared_at, seen.utc_offset_s)
        return ((f"cleared {at}: {one.words}", ""),)
    return ((one.words, ROLES[one.severity]),)


def _kind(seen: _Seen, _: int) -> Line:
    known = seen.one.known
    return ((foreign(known.finding.flow) if known else "reading", "dim"),)
