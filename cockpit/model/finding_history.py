"""Since when each finding stands, and the last ones that have cleared. Filled by the face.

A Finding carries no time: it is what the engine thinks at one moment. The same one in the next
snapshot has the same family, cause and GPU, and names the same process or another one of the group
that it named before; its numbers may have moved.
"""

from __future__ import annotations

from typing import NamedTuple

from cockpit.model.finding import Finding
from cockpit.model.finding_subject import pids_of
from cockpit.model.snapshot import Snapshot
from cockpit.model.time import moment, seconds_since

CLEARED_KEPT = 20
FIRST_LOOK_S = 60.0
"""Rules want to see a trouble for a while before they speak: what is found within this time was
probably there before the cockpit came."""


class Known(NamedTuple):
    """A finding with its times (ISO 8601, of the snapshots)."""

    number: int
    """Its identity: the same while it stands, and when it comes back."""
    finding: Finding
    """As it was said last."""
    since: str
    from_start: bool
    """Found within :data:`FIRST_LOOK_S` of the first look: it may be much older than ``since``."""
    cleared_at: str | None = None
    """Of the first snapshot without it; None while it stands."""


class FindingHistory:
    """What stands, and the last :data:`CLEARED_KEPT` that do not any more."""

    def __init__(self) -> None:
        self._standing: list[Known] = []
        self._cleared: list[Known] = []
        """The newest last."""
        self._newest_at = ""
        self._began_at = ""
        self._count = 0

    def append(self, snapshot: Snapshot) -> None:
        """Take in one snapshot; the same one twice counts once, an older one starts anew."""
        at = snapshot.taken_at
        if at == self._newest_at:
            return
        if at < self._newest_at:  # a replay was moved back
            self._standing, self._cleared, self._newest_at = [], [], ""
        if not self._newest_at:
            self._began_at = at
        self._newest_at = at
        before, self._standing = self._standing, []
        for finding in snapshot.findings:
            old = _taken(before, finding)
            if old is not None:
                self._standing.append(old._replace(finding=finding))
            else:
                self._standing.append(self._new(finding, at))
        gone = [one._replace(cleared_at=at) for one in before]
        self._cleared = [*self._cleared, *gone][-CLEARED_KEPT:]

    def _new(self, finding: Finding, at: str) -> Known:
        again = _taken(self._cleared, finding)
        if again is not None:  # it was seen to begin
            return Known(again.number, finding, at, False)
        self._count += 1
        looked_s = seconds_since(self._began_at, moment(at))
        return Known(self._count, finding, at, looked_s is None or looked_s < FIRST_LOOK_S)

    def known(self) -> tuple[Known, ...]:
        """Those that stand, in the engine's order; then the cleared ones, the newest first."""
        return (*self._standing, *reversed(self._cleared))


def _taken(among: list[Known], finding: Finding) -> Known | None:
    """The same finding, taken out of the list; one of the same process before one of its group."""
    alike = [number for number, one in enumerate(among) if _is_alike(one.finding, finding)]
    if not alike:
        return None
    same = [number for number in alike if among[number].finding.pid == finding.pid]
    return among.pop((same or alike)[0])


def _is_alike(one: Finding, other: Finding) -> bool:
    if (one.flow, one.cause, one.gpu) != (other.flow, other.cause, other.gpu):
        return False
    return one.pid == other.pid or not set(pids_of(one)).isdisjoint(pids_of(other))
