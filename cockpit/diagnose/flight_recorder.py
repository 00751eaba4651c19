"""One rank's dump of torch's flight recorder: bytes → what it called last, group by group.

A dump is a pickle of plain data, or the same as JSON (without frames). Format: the headers of torch
(FlightRecorderDetail.hpp), versions 1.0 to 2.10; older ones say ``seq_id`` and have no name for a
group. Point-to-point calls are left out: they are counted apart, and not all ranks make them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cockpit.diagnose import plain_pickle
from cockpit.model.flight import is_users_own

MOST_ENTRIES = 200_000
_SENDS = re.compile(r"(?:send|recv)\b")
_WRAPPER = "coalesced"
"""The call that ends a coalesced one: it has the state of all its parts, and no sizes."""
_NAMES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
"""torch's name for it inside → the function that people call."""
_DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
}


@dataclass(frozen=True)
class GroupKey:
    """What ranks have to agree on to be of one group: names alone are counted by each rank."""

    backend: str
    name: str
    ranks: tuple[int, ...]
    """As configured; empty: not known."""


@dataclass(frozen=True)
class Call:
    """One collective, or a part of a coalesced one."""

    number: int
    """``collective_seq_id``: equal on all ranks of the group for the same call."""
    name: str
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    state: str
    """``scheduled``, ``started`` (only where torch measures times) or ``completed``."""
    place: str | None
    """``file:line function`` of the user's own frame that called it."""
    order: int
    """Grows over all groups of the rank."""


@dataclass
class GroupCalls:
    """What one rank did in one group. Numbers begin at 1; 0: nothing yet."""

    description: str = ""
    calls: dict[int, list[Call]] = field(default_factory=dict)
    enqueued: int = 0
    started: int = 0
    completed: int = 0
    has_sends: bool = False


@dataclass(frozen=True)
class Dump:
    """One rank's dump."""

    rank: int
    groups: Mapping[GroupKey, GroupCalls]
    is_whole: bool
    """Nothing was pushed out of the buffer or left out: a group without a call has none."""


def read(raw: bytes, rank: int) -> Dump:
    """Raises ValueError with the reason, as the end of a sentence."""
    value = _json(raw) if raw[:1] in (b"{", b"[") else plain_pickle.load(raw)
    if isinstance(value, list):  # torch 2.1 wrote the calls only
        value = {"entries": value}
    if not isinstance(value, dict) or not {"entries", "pg_config", "pg_status"} & set(value):
        raise ValueError("it is no dump of a flight recorder")
    entries = [one for one in _list(value.get("entries")) if isinstance(one, dict)][-MOST_ENTRIES:]
    members = _members(_dict(value.get("pg_config")))
    status = _dict(value.get("pg_status"))
    first = min((_number(one.get("record_id")) for one in entries), default=None)
    nothing = not any(_status(status, name, "enqueued") for name in status)
    return Dump(
        rank=rank,
        groups=_groups(entries, members, status),
        is_whole=nothing if first is None else first == 0,
    )


def _json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("it is cut off or damaged") from error


def _groups(
    entries: list[dict[str, Any]], members: Mapping[str, tuple[int, ...]], status: dict[str, Any]
) -> dict[GroupKey, GroupCalls]:
    groups: dict[GroupKey, GroupCalls] = defaultdict(GroupCalls)
    ids: dict[GroupKey, str] = {}
    for order, entry in enumerate(entries):
        name, description = _group_name(entry)
        backend, _, operation = _text(entry.get("profiling_name")).rpartition(":")
        key = GroupKey(backend, name, members.get(name, ()))
        group = groups[key]
        group.description = description
        ids[key] = str(entry.get("pg_id"))
        if _is_send(entry, operation):
            group.has_sends = True
            continue
        call = _call(entry, operation, order)
        if call.number > 0:
            group.calls.setdefault(call.number, []).append(call)
    for key, group in groups.items():
        _count(group, status, ids[key])
    return dict(groups)


def _count(group: GroupCalls, status: dict[str, Any], id_: str) -> None:
    """By the calls; by the counters where those say more.

    A call of gloo has no state, and one that has completed may be left out: only the counters tell.
    They count sends as well, with numbers of their own, and say nothing where there are any.
    """

    def last(*states: str) -> int:
        numbers = (n for n, parts in group.calls.items() if any(p.state in states for p in parts))
        return max(numbers, default=0)

    def counted(what: str) -> int:
        return 0 if group.has_sends else _status(status, id_, what)

    group.completed = max(last("completed"), counted("completed"))
    group.started = max(last("started", "completed"), counted("started"), group.completed)
    group.enqueued = max(max(group.calls, default=0), counted("enqueued"), group.completed)


def _call(entry: dict[str, Any], operation: str, order: int) -> Call:
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    return Call(
        number=_number(number),
        name=_NAMES.get(operation, operation),
        sizes=tuple(
            tuple(_number(one) for one in _list(size)[:16])
            for size in _list(entry.get("input_sizes"))[:1024]
        ),
        dtypes=tuple(
            _DTYPES.get(one, one.lower())
            for one in map(_text, _list(entry.get("input_dtypes"))[:1024])
        ),
        state=_text(entry.get("state")),
        place=_place(_list(entry.get("frames"))),
        order=order,
    )


def is_wrapper(call: Call) -> bool:
    """It only ends a coalesced call."""
    return call.name == _WRAPPER


def _place(frames: Iterable[Any]) -> str | None:
    for one in frames:
        if isinstance(one, dict):
            file, line = _text(one.get("filename")), _number(one.get("line"))
            frame = f"{file}:{line} {_text(one.get('name'))}".rstrip()
            if file and line > 0 and is_users_own(frame):
                return frame
    return None


def _is_send(entry: dict[str, Any], operation: str) -> bool:
    return entry.get("is_p2p") is True or _SENDS.match(operation) is not None


def _group_name(entry: dict[str, Any]) -> tuple[str, str]:
    """(name, description). From version 1.5 on a pair; before that, only a number."""
    group = entry.get("process_group")
    parts = [_text(one) for one in _list(group)] or [_text(group)]
    name = parts[0] or str(_number(entry.get("pg_id")))
    return name, parts[1] if len(parts) > 1 else ""


def _members(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """``{"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}``."""
    found = {}
    for name, group in config.items():
        ranks = re.findall(r"\d{1,7}", _text(_dict(group).get("ranks")))
        if ranks and isinstance(name, str):
            found[name] = tuple(sorted({int(one) for one in ranks}))
    return found


def _status(status: dict[str, Any], id_: str, what: str) -> int:
    """Of ``last_enqueued_collective`` and its like; -1 there is none."""
    return max(0, _number(_dict(status.get(id_)).get(f"last_{what}_collective")))


def _number(value: Any) -> int:
    """JSON has some as texts. 0 for what is no number: no call has it."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?\d{1,18}", value, re.ASCII) else 0
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1 << 63 else 0


def _text(value: Any) -> str:
    return value[:400] if isinstance(value, str) else ""


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
