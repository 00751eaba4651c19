"""The dumps of several ranks side by side: who has not called what the others wait in.

All ranks of a group make the same collectives in the same order, numbered from 1. So the first
number that is not done everywhere tells: a rank that has not come to it, or called another thing.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cockpit.diagnose.flight_recorder import Call, Dump, GroupCalls, GroupKey, is_wrapper
from cockpit.model.flight import FlightRow
from cockpit.model.text import clean, plural, shortened

MOST_ROWS = 6
_SAME_SIZES = frozenset(
    ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
)
"""All ranks give as many elements of one type; in a scatter or an uneven all_gather they do not."""
_UNNAMED = ("", "undefined", "default_pg")


@dataclass(frozen=True)
class _Group:
    """One group, and the ranks whose dump tells about it."""

    key: GroupKey
    calls: Mapping[int, GroupCalls]
    last: Mapping[int, Call | None]
    """Rank → its last call in any group."""

    @property
    def words(self) -> str:
        description = next((one.description for one in self.calls.values()), "")
        name = shortened(clean(self.key.name), 40) or "?"
        more = "" if description in _UNNAMED else f" ({shortened(clean(description), 40)})"
        return f"group {name}{more}"

    def waiting(self) -> dict[int, int]:
        """Rank → the first number that it has called and that is not done."""
        found = {}
        for rank, one in self.calls.items():
            if one.completed < one.enqueued:
                found[rank] = min((n for n in one.calls if n > one.completed), default=one.enqueued)
        return found

    def held(self) -> set[int]:
        """The ranks that wait for another one: not those that alone are not done yet."""
        return {
            rank
            for rank, number in self.waiting().items()
            if len(self.calls) == 1
            or any(one.completed < number for other, one in self.calls.items() if other != rank)
        }


def compare(dumps: Sequence[Dump], but: Collection[int] = ()) -> tuple[FlightRow, ...]:
    """What they say together, the clearest first; none for no dumps.

    ``but``: ranks whose dump is there and cannot be used; they are not told as missing.
    """
    groups = [one for one in _groups(dumps) if one.waiting()]
    busy = {rank for group in groups for rank in group.held()}
    rows = [row for group in groups for row in _judged(group, busy)]
    accusing = [row for row in rows if row.ranks]
    wrong = accusing or [row for row in rows if row.kind in ("behind", "mismatch", "not_begun")]
    rows = wrong or rows
    if dumps and not rows:
        what = f"{_ranks(one.rank for one in dumps)} waited in no collective when this was written"
        rows = [FlightRow(kind="same", sentence=f"{what}.")]
    return (*rows[:MOST_ROWS], *_missing(groups, {*but, *(one.rank for one in dumps)}))


def _groups(dumps: Sequence[Dump]) -> Iterator[_Group]:
    by_key: dict[GroupKey, dict[int, GroupCalls]] = defaultdict(dict)
    for dump in dumps:
        for key, calls in dump.groups.items():
            by_key[key][dump.rank] = calls
    last = {dump.rank: _last_call(dump) for dump in dumps}
    for key, found in by_key.items():
        silent = {one.rank: GroupCalls() for one in dumps if _never_called(one, key, found)}
        yield _Group(key, dict(sorted((found | silent).items())), last)


def _never_called(dump: Dump, key: GroupKey, found: Collection[int]) -> bool:
    """It is of the group, nothing is missing in its dump, and there is no call of this group."""
    if dump.rank in found or not dump.is_whole:
        return False
    return dump.rank in key.ranks or (not key.ranks and key.name == "0")


def _last_call(dump: Dump) -> Call | None:
    calls = [
        one for group in dump.groups.values() for parts in group.calls.values() for one in parts
    ]
    return max(calls, key=lambda one: one.order, default=None)


def _judged(group: _Group, busy: Collection[int]) -> Iterator[FlightRow]:
    """The first number at which something is wrong; else where all are."""
    waiting = group.waiting()
    if len(group.calls) == 1:
        yield _alone(group, waiting)
        return
    done = min(one.completed for one in group.calls.values())
    numbers = {n for one in group.calls.values() for n in one.calls if n > done}
    for number in sorted(numbers | set(waiting.values())):
        row = _mismatch(group, number) or _behind(group, number, waiting, busy)
        if row is not None:
            yield row
            return
    yield _not_begun(group, waiting) or _same(group, waiting)


# -- another call at the same number


def _mismatch(group: _Group, number: int) -> FlightRow | None:
    kinds: dict[object, list[int]] = defaultdict(list)
    for rank, one in group.calls.items():
        if number in one.calls:
            kinds[_kind(one.calls[number])].append(rank)
    if len(kinds) < 2:
        return None
    parts = sorted(kinds.values(), key=lambda ranks: -len(ranks))
    odd = parts[1] if len(parts) == 2 and len(parts[0]) > len(parts[1]) else []
    said = ", ".join(
        f"{_ranks(ranks)} called {_call_words(group, ranks[0], number)}{_at(group, ranks, number)}"
        for ranks in parts[:4]
    )
    return FlightRow(
        kind="mismatch",
        sentence=f"Under number {number} of {group.words} {said}.",
        ranks=tuple(odd),
        place=_place(group, odd[0], number) if odd else None,
    )


def _kind(parts: Sequence[Call]) -> object:
    """Equal for calls that fit together. Shapes may differ, the number of elements may not."""
    own = [one for one in parts if not is_wrapper(one)]
    names = tuple(one.name for one in own)
    if not own or not _SAME_SIZES.issuperset(names):
        return names
    sizes = sum(math.prod(size) for one in own for size in one.sizes)
    return names, sizes, tuple(sorted({name for one in own for name in one.dtypes}))


# -- not called


def _behind(
    group: _Group, number: int, waiting: Mapping[int, int], busy: Collection[int]
) -> FlightRow | None:
    here = [rank for rank, first in waiting.items() if first == number]
    away = [rank for rank, one in group.calls.items() if one.enqueued < number]
    if not here or not away:
        return None
    call = _call_words(group, here[0], number, with_number=True)
    said = (
        f"{_ranks(away)} {_has(away)} not called {call} of {group.words}; {_ranks(here)} "
        f"{'wait' if len(here) > 1 else 'waits'} in it{_called_at(group, here, number)}"
    )
    guilty = [rank for rank in away if rank not in busy]
    if len(away) == 1 and guilty:
        said += _last_words(group.last[away[0]])
    elif not guilty:
        said += f"; {_ranks(away)} {_waits(away)} in another collective"
    last = group.last[guilty[0]] if guilty else None
    return FlightRow(
        kind="behind",
        sentence=f"{said}.",
        ranks=tuple(guilty),
        place=last.place if last is not None else None,
    )


def _last_words(last: Call | None) -> str:
    if last is None:
        return "; it has called none at all"
    at = f" at {_short(last.place)}" if last.place else ""
    return f"; its last one was {shortened(clean(last.name), 60)} number {last.number}{at}"


# -- all are there


def _not_begun(group: _Group, waiting: Mapping[int, int]) -> FlightRow | None:
    """Only where torch measures times does it see that a call has started."""
    number = min(waiting.values())
    begun = [rank for rank, one in group.calls.items() if one.started >= number]
    idle = [rank for rank in group.calls if rank not in begun]
    if not begun or not idle:
        return None
    call = _call_words(group, idle[0], number, with_number=True)
    said = (
        f"{_ranks(idle)} {_has(idle)} called {call} of {group.words} as the others, but "
        f"{'its GPU has' if len(idle) == 1 else 'their GPUs have'} not begun it: "
        "something before it is not done there"
    )
    place = _place(group, idle[0], number)
    return FlightRow(kind="not_begun", sentence=f"{said}.", ranks=tuple(idle), place=place)


def _same(group: _Group, waiting: Mapping[int, int]) -> FlightRow:
    number = min(waiting.values())
    here = [rank for rank, one in group.calls.items() if one.enqueued >= number]
    call = _call_words(group, min(waiting, key=lambda one: waiting[one]), number, with_number=True)
    at = _called_at(group, here, number)
    said = f"All {plural(len(group.calls), 'rank')} have called {call} of {group.words}{at}"
    return FlightRow(kind="same", sentence=f"{said}, and it does not end: none of them is missing.")


def _alone(group: _Group, waiting: Mapping[int, int]) -> FlightRow:
    rank, number = next(iter(waiting.items()))
    call = _call_words(group, rank, number, with_number=True)
    said = f"rank {rank} waits in {call} of {group.words}{_called_at(group, [rank], number)}"
    return FlightRow(kind="alone", sentence=f"{said}; no other rank's dump tells of this group.")


def _missing(groups: Iterable[_Group], there: Collection[int]) -> Iterator[FlightRow]:
    away = {rank for group in groups for rank in group.key.ranks}.difference(there)
    if away:
        yield FlightRow(
            kind="missing",
            sentence=f"{_ranks(away)} left no dump here: ended before, on another machine, or not "
            "able to write one.",
        )


# -- words


def _call_words(group: _Group, rank: int, number: int, *, with_number: bool = False) -> str:
    """``all_reduce number 41 (float32 [2048, 2048])``."""
    parts = [one for one in group.calls[rank].calls.get(number, []) if not is_wrapper(one)]
    name = shortened(clean(parts[0].name), 60) if parts else "a collective"
    numbered = f" number {number}" if with_number else ""
    sizes = [size for one in parts for size in one.sizes]
    if not sizes or name == "barrier":  # NCCL's is an all_reduce of one number
        return f"{name}{numbered}"
    kind = next((clean(name)[:20] for one in parts for name in one.dtypes), "")
    shape = f"{kind} [{', '.join(map(str, sizes[0]))}]".strip()
    more = f" and {plural(len(sizes) - 1, 'more tensor')}" if len(sizes) > 1 else ""
    return f"{name}{numbered} ({shape}{more})"


def _place(group: _Group, rank: int, number: int) -> str | None:
    return next((one.place for one in group.calls[rank].calls.get(number, []) if one.place), None)


def _at(group: _Group, ranks: Iterable[int], number: int) -> str:
    """`` at train.py:40``."""
    places = {_short(place) for rank in ranks if (place := _place(group, rank, number))}
    return f" at {_listed(sorted(places)[:3])}" if places else ""


def _called_at(group: _Group, ranks: Iterable[int], number: int) -> str:
    at = _at(group, ranks, number)
    return f", called{at}" if at else ""


def _short(place: str) -> str:
    """``train.py:40`` of ``/home/ml1/train.py:40 main``."""
    return clean(os.path.basename(place.rpartition(" ")[0] or place))


def _ranks(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0, 2 and 3``, ``8 ranks (0, 1, 2, 3, …)``."""
    found = sorted(ranks)
    if len(found) == 1:
        return f"rank {found[0]}"
    if len(found) > 7:
        return f"{len(found)} ranks ({', '.join(map(str, found[:4]))}, …)"
    return f"ranks {_listed([str(one) for one in found])}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _waits(ranks: Sequence[int]) -> str:
    return "waits itself" if len(ranks) == 1 else "wait themselves"
