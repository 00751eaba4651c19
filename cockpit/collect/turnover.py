"""What came and went between two readings of the process table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cockpit import procfs
from cockpit.model.process import Process
from cockpit.procfs import Gap


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The rows of one tick, and what came and went since the one before."""

    processes: tuple[Process, ...] = ()
    started: tuple[Process, ...] = ()
    ended: tuple[Process, ...] = ()


class Turnover:
    """Compares each list with the last. A process that only left the list has not ended.

    That happens to all processes of a GPU that is lost or whose driver restarts: they are kept
    aside, and neither end nor start again as long as they live. Nor has started what the first
    list of a GPU names: a GPU whose first answer is late is seen after the others.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[int, Process] | None = None
        self._aside: dict[int, Process] = {}
        self._heard: set[int] = set()

    def compare(self, rows: Sequence[Process], answering: Iterable[int] = ()) -> ProcessReading:
        """``answering``: GPUs that gave their list; those that ``rows`` name did so anyway."""
        before, heard = self._listed or {}, set(self._heard)
        self._heard.update(answering, (use.gpu for row in rows for use in row.devices))
        self._listed = {row.pid: self._best(row, before) for row in rows}
        ended = self._ended(before)
        known = {**before, **self._aside}
        started = [
            row
            for row in self._listed.values()
            if not _is_same(row, known.get(row.pid))
            and any(use.gpu in heard for use in row.devices)
        ]
        self._aside = {pid: row for pid, row in self._aside.items() if pid not in self._listed}
        return ProcessReading(tuple(rows), tuple(started), tuple(ended))

    @staticmethod
    def _best(row: Process, before: dict[int, Process]) -> Process:
        """The last row that had a name, for a process that is gone and still listed."""
        last = before.get(row.pid)
        return last if last is not None and not row.visible else row

    def _ended(self, before: dict[int, Process]) -> list[Process]:
        """Rows that are no longer listed and whose process is really gone."""
        assert self._listed is not None
        ended: list[Process] = []
        for pid, row in {**self._aside, **before}.items():
            if _is_same(row, self._listed.get(pid)):
                continue
            if self._lives(row):
                self._aside[pid] = row
            else:
                ended.append(row)
                self._aside.pop(pid, None)
        return ended

    def _lives(self, row: Process) -> bool:
        stat = procfs.stat(self._root, row.pid)
        if isinstance(stat, Gap) or row.start_ticks is None:
            return False
        return stat.start_ticks == row.start_ticks and stat.state not in "ZX"


def _is_same(row: Process, other: Process | None) -> bool:
    return other is not None and row.pid == other.pid and row.start_ticks == other.start_ticks
