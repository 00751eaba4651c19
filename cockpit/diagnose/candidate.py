"""What the family modules have in common: signs (rows of a table) and the candidates they make."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cockpit.diagnose.log_reader import Log

HARDWARE, ASSERT, SPECIFIC, EXCEPTION, ECHO, STATE, NOTICE = 90, 80, 70, 60, 40, 30, 10
"""Weights, the strongest evidence first: the kernel log's word, an assert's text, a message with
one meaning, an exception that has several, what follows from another rank's end, a state of the
machine, a harmless line. Among equals the first in the log wins."""

_MOST_MATCHES = 20_000
INTEGERS = frozenset({"pid", "gpu", "rank", "code", "seq", "culprit_rank"})

Facts = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A cause that the log allows."""

    cause: str
    weight: int
    at: int
    """Index of the line that says so."""
    confidence: float
    facts: Facts = field(default_factory=dict)
    also: tuple[tuple[str, str], ...] = ()
    not_: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    """Indices of more lines that it rests on."""
    why: str = ""
    """What this log's numbers say, before the cause's general explanation."""
    title: str = ""
    """Where the cause's own would claim more than the log says."""


@dataclass(frozen=True)
class Sign:
    """A row: text that names a cause. Named groups of the patterns become facts."""

    cause: str
    pattern: str
    weight: int = SPECIFIC
    confidence: float = 0.9
    needs: tuple[str, ...] = ()
    """All of these are somewhere in the log."""
    unless: tuple[str, ...] = ()
    """None of these is."""
    more: tuple[str, ...] = ()
    """Their named groups are facts where they match."""
    facts: Callable[[Log], Facts] | None = None
    also: tuple[tuple[str, str], ...] = ()
    not_: tuple[str, ...] = ()
    why: str = ""
    title: str = ""


LOADER_ENDED = (
    r"ConnectionResetError: \[Errno 104\]|DataLoader worker \(pid[^\n]{1,60}\) exited unexpectedly"
)
LOADER = r"DataLoader worker|torch/(?:multiprocessing|utils/data)/|multiprocessing/resource_sharer"
SEVERAL_RANKS = (
    r"NCCL|Gloo|torchrun|c10d|torch/distributed|torch\.distributed|ProcessGroup|\brank ?\d|TCPStore"
    r"|EngineDead|ChildFailed"
)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Signs ignore case; a blank stands for white space, ``" ?"`` for white space or none."""
    return re.compile(pattern.replace(" ?", r"\s*").replace(" ", r"\s+"), re.IGNORECASE)


def search(log: Log, pattern: str) -> re.Match[str] | None:
    """The first place in the log."""
    return compiled(pattern).search(log.text)


def candidates(log: Log, signs: tuple[Sign, ...]) -> Iterator[Candidate]:
    """One a row that matches."""
    for sign in signs:
        match = _match(log, sign)
        if match is None:
            continue
        if any(search(log, text) for text in sign.unless):
            continue
        needed = [search(log, text) for text in sign.needs]
        if not all(needed):
            continue
        extra = [found for text in sign.more if (found := search(log, text))]
        facts: Facts = {}
        for found in (match, *(one for one in needed if one), *extra):
            facts.update(groups(found))
        if sign.facts is not None:
            facts.update(sign.facts(log))
        breaks = len(match[0]) - len(match[0].lstrip("\n"))
        index = log.index_at(match.start() + breaks)
        line = log.lines[index]
        if line.rank is not None:
            facts.setdefault("rank", line.rank)
        places = [log.index_at(one.start()) for one in (*needed, *extra) if one]
        places = [one for one in places if not log.lines[one].text.lstrip().startswith('File "')]
        yield Candidate(
            sign.cause,
            sign.weight,
            index,
            sign.confidence,
            facts,
            sign.also,
            sign.not_,
            tuple(places),
            sign.why,
            sign.title,
        )


def _match(log: Log, sign: Sign) -> re.Match[str] | None:
    """The first place; of an error the first after which the rank did not go on, if there is one:
    a program may handle the same error many times before the one that ends it."""
    first = search(log, sign.pattern)
    if first is None or sign.weight < ECHO or not log.went_on_after(log.index_at(first.start())):
        return first
    later = itertools.islice(compiled(sign.pattern).finditer(log.text), _MOST_MATCHES)
    return next((m for m in later if not log.went_on_after(log.index_at(m.start()))), first)


def groups(match: re.Match[str]) -> Facts:
    """Named groups, numbers as numbers."""
    return {
        name: int(text) if name in INTEGERS and text.isdigit() else text
        for name, text in match.groupdict().items()
        if text is not None
    }
