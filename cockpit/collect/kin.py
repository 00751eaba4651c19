"""Who belongs to whom: parents, children, members of a session or group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cockpit import procfs
from cockpit.model.process import Relative
from cockpit.procfs import Gap, Stat

DEPTH = 64
"""No tree of processes is deeper; a pid reused in the middle of a walk could make a circle."""


class _Known(NamedTuple):
    start_ticks: int
    relative: Relative


class Kin:
    """Looks up relatives; argv and user are read once for a (pid, start ticks, parent)."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._known: dict[int, _Known] = {}

    def relative(self, pid: int) -> Relative | None:
        """One process as the tree shows it; None: not in this /proc."""
        stat = procfs.stat(self._root, pid)
        if isinstance(stat, Gap):
            self._known.pop(pid, None)
            return None
        known = self._known.get(pid)
        if known and known.start_ticks == stat.start_ticks and known.relative.ppid == stat.ppid:
            return known.relative
        relative = relative_of(self._root, pid, stat)
        self._known[pid] = _Known(stat.start_ticks, relative)
        return relative

    def ancestors(self, ppid: int | None) -> tuple[Relative, ...]:
        """From the parent up to pid 1, nearest first."""
        found: list[Relative] = []
        while ppid and len(found) < DEPTH and (relative := self.relative(ppid)):
            found.append(relative)
            ppid = relative.ppid
        return tuple(found)

    def missing_links(self, rows: Iterable[tuple[int, int | None]]) -> tuple[Relative, ...]:
        """All ancestors of the (pid, ppid) rows that are not rows themselves."""
        pairs = dict(rows)
        found: dict[int, Relative] = {}
        for start in pairs.values():
            ppid = start
            while ppid and ppid not in pairs and ppid not in found:
                relative = self.relative(ppid)
                if relative is None or len(found) > 4096:
                    break
                found[ppid] = relative
                ppid = relative.ppid
        self._forget(found)
        return tuple(found.values())

    def _forget(self, keep: dict[int, Relative]) -> None:
        if len(self._known) > 2 * len(keep) + 256:
            self._known = {pid: self._known[pid] for pid in keep}


def relative_of(root: str, pid: int, stat: Stat) -> Relative:
    """Reads argv and user of one process."""
    command = procfs.command(root, pid)
    status = procfs.status(root, pid)
    return Relative(
        pid=pid,
        ppid=stat.ppid,
        name=stat.name,
        command=() if isinstance(command, Gap) else command,
        user=None if isinstance(status, Gap) else procfs.user_name(status.uid),
    )


def survivors(stats: Iterable[tuple[int, Stat]], leader: int, dead: Stat | None) -> tuple[int, ...]:
    """Living processes of the session or group that the dead process led, or of its group.

    ``dead``: its stat when it is a zombie; None: the pid is gone, and only those whose session or
    group carries its number can be told.
    """
    group = dead.group if dead else leader
    session = leader  # a session that it did not lead is the user's shell and all its jobs
    return tuple(
        pid
        for pid, stat in stats
        if pid != leader
        and stat.state not in "ZX"
        and (stat.group == group or stat.session == session)
    )
