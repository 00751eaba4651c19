"""The flight recorders of a kept run: files → dumps → what they say together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cockpit.attach.run_flight import DumpFile, dump_files, read_dump
from cockpit.attach.run_record import RunRecord
from cockpit.diagnose import flight_recorder
from cockpit.diagnose.flight_compare import compare
from cockpit.diagnose.flight_recorder import Dump
from cockpit.model.flight import FlightRow
from cockpit.model.text import clean

TOGETHER_S = 600.0
"""Ranks write at one time-out, within seconds; what is older is of another start of the ranks."""
MOST_RANKS = 64
_MOST_TOLD = 3


def flight_of(record: RunRecord | None) -> tuple[FlightRow, ...]:
    """None where there is no record or no dump. Never raises: a dump that cannot be read is a row.

    A dump of 2000 collectives takes 0.3 s.
    """
    return _compared(dump_files(record)) if record is not None else ()


@lru_cache(maxsize=2)
def _compared(files: tuple[DumpFile, ...]) -> tuple[FlightRow, ...]:
    """A flow looks again after each fix: the same files are not read again."""
    newest = max((one.written_at for one in files), default=0.0)
    dumps: list[Dump] = []
    unread: dict[int, str] = {}
    for one in files[MOST_RANKS:]:
        unread[one.rank] = f"only {MOST_RANKS} are compared"
    for one in files[:MOST_RANKS]:
        if newest - one.written_at > TOGETHER_S:
            unread[one.rank] = "it is older than the others' by more than 10 minutes"
            continue
        try:
            dumps.append(flight_recorder.read(read_dump(one.path), one.rank))
        except ValueError as error:
            unread[one.rank] = str(error)
    return (*compare(dumps, but=unread), *_unread(unread.items()))


def _unread(unread: Iterable[tuple[int, str]]) -> Iterable[FlightRow]:
    told = list(unread)
    for rank, why in told[:_MOST_TOLD]:
        what = f"The dump of rank {rank} is left out: {clean(why)}."
        yield FlightRow(kind="unread", sentence=what)
    if len(told) > _MOST_TOLD:
        more = f"So are those of {len(told) - _MOST_TOLD} more ranks."
        yield FlightRow(kind="unread", sentence=more)
