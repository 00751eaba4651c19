"""OOM records of a run, read from its folder.

The agent writes ``oom/oom-PID-N.json`` there at the moment of the failure, and with history on
torch's own snapshot as a pickle beside it. A pickle may run code when it is opened: here only plain
data comes out of one.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from typing import Any

import msgspec

MAX_PICKLE_BYTES = 512 << 20
TOP_STACKS = 50
_RECORD = re.compile(r"oom-(\d+)-(\d+)\.json")


def load(directory: str) -> tuple[dict[str, Any], ...]:
    """In the order of their moments. ``snapshot_path`` is where the pickle lies now."""
    folder = os.path.join(directory, "oom")
    found = []
    for name in _listed(folder, "oom-"):
        record = _decode(os.path.join(folder, name)) if _RECORD.fullmatch(name) else None
        if record is None:
            continue
        pickled = _pickles(folder, int(record.get("pid") or 0), record)
        record["path"] = os.path.join(folder, name)
        record["snapshot_path"] = os.path.join(folder, pickled[0]) if pickled else None
        found.append(record)
    return tuple(sorted(found, key=lambda record: float(record.get("at") or 0)))


def allocations_by_stack(snapshot_path: str, limit: int = TOP_STACKS) -> list[dict[str, Any]]:
    """Live bytes by the stack that allocated them, biggest first: ``bytes``, ``count``, ``device``,
    ``frames`` of [file, line, function], innermost first. Raises ValueError or OSError."""
    totals: dict[tuple[Any, ...], list[int]] = {}
    for segment in _plain_pickle(snapshot_path).get("segments") or ():
        for block in segment.get("blocks") or ():
            if block.get("state") != "active_allocated":
                continue
            frames = tuple(
                (str(f.get("filename")), int(f.get("line") or 0), str(f.get("name")))
                for f in block.get("frames") or ()
            )
            row = totals.setdefault((segment.get("device"), frames), [0, 0])
            row[0] += int(block.get("size") or 0)
            row[1] += 1
    biggest = sorted(totals.items(), key=lambda item: -item[1][0])[:limit]
    return [
        {"device": device, "bytes": size, "count": count, "frames": [list(f) for f in frames]}
        for (device, frames), (size, count) in biggest
    ]


class _PlainUnpickler(pickle.Unpickler):
    """No class and no function by any name: what is left is dictionaries, lists, numbers, texts."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot holds no {module_name}.{global_name}")


def _plain_pickle(path: str) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > MAX_PICKLE_BYTES:
            raise ValueError("The snapshot is too big to be read here.")
        raw = file.read(MAX_PICKLE_BYTES)
    try:
        taken = _PlainUnpickler(io.BytesIO(raw)).load()
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"This is no snapshot of torch: {error}") from error
    if not isinstance(taken, dict):
        raise ValueError("This is no snapshot of torch.")
    return taken


def _pickles(folder: str, pid: int, record: dict[str, Any]) -> list[str]:
    """Named ``oom-PID-SECONDS-N.pickle``: of the process's, those of this record's moment."""
    at = int(float(record.get("at") or 0))
    found = []
    for name in _listed(folder, f"oom-{pid}-"):
        parts = name.removesuffix(".pickle").split("-")
        if name.endswith(".pickle") and len(parts) == 4 and parts[2].isdigit():
            found += [name] if 0 <= int(parts[2]) - at <= 60 else []
    return sorted(found)


def _listed(folder: str, prefix: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix))
    except OSError:
        return []


def _decode(path: str) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                return None
            value = msgspec.json.decode(file.read())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None
