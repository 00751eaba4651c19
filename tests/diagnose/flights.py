"""Dumps of a flight recorder as torch writes them, made by hand: dictionaries, lists, pickles."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

LIBRARY = {
    "name": "all_reduce",
    "filename": "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py",
    "line": 3252,
}


def entry(
    number: int,
    state: str = "completed",
    *,
    name: str = "all_reduce",
    line: int = 40,
    sizes: Sequence[Sequence[int]] = ((2048, 2048),),
    dtype: str = "Float",
    group: tuple[str, str] = ("0", "default_pg"),
    **changes: Any,
) -> dict[str, Any]:
    """One call in the form of version 2.x; the record's number follows from where it stands."""
    dtypes = [dtype] * len(sizes)
    return {
        "frames": [LIBRARY, {"name": "step", "filename": "/home/ml1/train.py", "line": line}],
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_796_099_915_975_092_267 + number,
        "input_sizes": [list(one) for one in sizes],
        "input_dtypes": dtypes,
        "output_sizes": [list(one) for one in sizes],
        "output_dtypes": dtypes,
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 5 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        **changes,
    }


def dump(
    *entries: dict[str, Any],
    world: int = 2,
    groups: dict[str, Sequence[int]] | None = None,
    first: int = 0,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What one rank writes, version 2.10. ``first``: so many calls have left the buffer."""
    members = groups or {"0": range(world)}
    return {
        "version": "2.10",
        "pg_config": {
            name: {"name": name, "desc": "", "ranks": str(list(ranks))}
            for name, ranks in members.items()
        },
        "comm_lib_version": "2.28.9",
        "pg_status": status or {},
        "entries": [{**one, "record_id": first + at} for at, one in enumerate(entries)],
    }


def old_dump(*entries: dict[str, Any]) -> dict[str, Any]:
    """Version 1.x (torch 2.2): ``seq_id``, no name of the group, no counters, no is_p2p."""
    gone = ("collective_seq_id", "p2p_seq_id", "process_group", "is_p2p", "input_dtypes")
    return {
        "version": "1.1",
        "entries": [
            {k: v for k, v in one.items() if k not in gone}
            | {"seq_id": one["collective_seq_id"], "record_id": at}
            for at, one in enumerate(entries)
        ],
    }


def as_pickle(value: object) -> bytes:
    """In torch's own protocol."""
    return pickle.dumps(value, protocol=2)


def as_json(value: dict[str, Any]) -> bytes:
    """torch's JSON has no frames, and counters as texts."""
    status = {
        group: {name: str(number) for name, number in counters.items()}
        for group, counters in value["pg_status"].items()
    }
    entries = [{k: v for k, v in one.items() if k != "frames"} for one in value["entries"]]
    return json.dumps({**value, "pg_status": status, "entries": entries}).encode()
