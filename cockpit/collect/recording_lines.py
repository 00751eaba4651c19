"""The lines of a recording: a header, full snapshots, and what changed between them.

Works on the JSON values of snapshots (``msgspec.to_builtins``), so that a field that a later
version adds needs nothing here. No files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from cockpit.model.snapshot import Snapshot

RECORDING_SCHEMA = 1

Row = dict[str, Any]
Key = tuple[Any, ...]

KEYS: dict[str, tuple[str, ...]] = {
    "gpus": ("index",),
    "processes": ("pid", "start_ticks"),
    "ledger": ("gpu",),
    "runs": ("pid",),
}
"""Sections that are lists of rows, and what a row is known by."""
_RECORDS = ("host", "driver", "sampler")


class _Line(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of every line."""


class Header(_Line, frozen=True, kw_only=True, tag="recording"):
    """The first line of every recording."""

    schema: int = RECORDING_SCHEMA
    version: str = ""
    """Of the cockpit that wrote it."""
    started_at: str = ""


class Full(_Line, frozen=True, kw_only=True, tag="full"):
    """A whole snapshot."""

    t: float
    """Seconds since the first snapshot."""
    n: int
    """Counts the lines after the header: a hole in front of a delta is seen by it."""
    snapshot: Row


class RowChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to the rows of one section."""

    changed: list[Row] = field(default_factory=list)
    """The key's fields and those that are different now."""
    added: list[Row] = field(default_factory=list)
    removed: list[list[Any]] = field(default_factory=list)
    """Keys."""
    order: list[list[Any]] | None = None
    """All keys, when the order is not simply that of before plus the added ones."""


class Events(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The oldest ``dropped`` went, these came."""

    dropped: int = 0
    added: list[Row] = field(default_factory=list)


class Delta(_Line, frozen=True, kw_only=True, tag="delta", omit_defaults=True):
    """What is different from the line before."""

    t: float
    n: int
    whole: Row = field(default_factory=dict)
    """Sections that stand here as they are now."""
    fields: dict[str, Row] = field(default_factory=dict)
    """Changed fields of the sections that are one record: host, driver, sampler."""
    rows: dict[str, RowChanges] = field(default_factory=dict)
    events: Events | None = None


class Attachment(_Line, frozen=True, kw_only=True, tag="attachment", omit_defaults=True):
    """Something beside the snapshots, as ``cockpit bundle`` adds it; already redacted."""

    what: str
    """``finding``, ``log``, ``run``, ``journal`` or ``doctor``."""
    title: str = ""
    lines: tuple[str, ...] = ()
    data: Any = None
    """JSON, where it is no text."""


Line = Header | Full | Delta | Attachment

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """JSON, line end included."""
    return _encoder.encode(line) + b"\n"


def decode_line(line: bytes) -> Line:
    """Raises msgspec.DecodeError on anything else; also on text that is not UTF-8."""
    try:
        return _decoder.decode(line)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error


def values_of(snapshot: Snapshot) -> Row:
    """The snapshot as JSON values."""
    values: Row = msgspec.to_builtins(snapshot)
    return values


def snapshot_of(values: Row) -> Snapshot:
    """The opposite. Raises msgspec.ValidationError."""
    return msgspec.convert(values, Snapshot)


# -- what changed


def difference(old: Row, new: Row, t: float, n: int) -> Delta:
    """The delta that makes ``new`` of ``old``."""
    whole: Row = {}
    fields: dict[str, Row] = {}
    rows: dict[str, RowChanges] = {}
    events: Events | None = None
    for name, value in new.items():
        if name in old and _same(old[name], value):
            continue
        if name in _RECORDS:
            fields[name] = _changed_fields(old[name], value)
        elif name in KEYS and (changes := _row_changes(KEYS[name], old[name], value)):
            rows[name] = changes
        elif name == "events":
            events = _event_changes(old[name], value)
        else:
            whole[name] = value
    return Delta(t=t, n=n, whole=whole, fields=fields, rows=rows, events=events)


def _same(a: Any, b: Any) -> bool:
    # by their JSON: 0.0 and -0.0, 1 and True are equal in Python but not in the file
    return bool(a == b) and _encoder.encode(a) == _encoder.encode(b)


def _changed_fields(old: Row, new: Row) -> Row:
    return {k: v for k, v in new.items() if k not in old or not _same(old[k], v)}


def _by_key(key: tuple[str, ...], rows: Sequence[Row]) -> dict[Key, Row] | None:
    """None when two rows have one key: then only the whole section tells the truth."""
    found = {_key_of(key, row): row for row in rows}
    return found if len(found) == len(rows) else None


def _key_of(key: tuple[str, ...], row: Row) -> Key:
    return tuple(row[k] for k in key)


def _row_changes(
    key: tuple[str, ...], old_rows: Sequence[Row], new_rows: Sequence[Row]
) -> RowChanges | None:
    old, new = _by_key(key, old_rows), _by_key(key, new_rows)
    if old is None or new is None:
        return None
    changed = [
        {**dict(zip(key, k, strict=True)), **_changed_fields(old[k], row)}
        for k, row in new.items()
        if k in old and not _same(old[k], row)
    ]
    added = [row for k, row in new.items() if k not in old]
    plain = [k for k in old if k in new] + [k for k in new if k not in old]
    return RowChanges(
        changed=changed,
        added=added,
        removed=[list(k) for k in old if k not in new],
        order=None if plain == list(new) else [list(k) for k in new],
    )


def _event_changes(old: Sequence[Row], new: Sequence[Row]) -> Events:
    for dropped in range(len(old) + 1):
        kept = old[dropped:]
        if len(kept) <= len(new) and _same(list(kept), list(new[: len(kept)])):
            break
    return Events(dropped=dropped, added=list(new[len(old) - dropped :]))


# -- and back


def apply(values: Row, delta: Delta) -> Row:
    """The values after the delta; ``values`` stays as it is. Raises KeyError on a wrong delta."""
    result = {**values, **delta.whole}
    for name, changed in delta.fields.items():
        result[name] = {**result[name], **changed}
    for name, changes in delta.rows.items():
        result[name] = _apply_rows(KEYS[name], result[name], changes)
    if delta.events is not None:
        kept = result["events"][delta.events.dropped :]
        result["events"] = [*kept, *delta.events.added]
    return result


def _apply_rows(key: tuple[str, ...], rows: Sequence[Row], changes: RowChanges) -> list[Row]:
    found = {_key_of(key, row): row for row in rows}
    for removed in changes.removed:
        del found[tuple(removed)]
    for changed in changes.changed:
        k = _key_of(key, changed)
        found[k] = {**found[k], **changed}
    for added in changes.added:
        found[_key_of(key, added)] = added
    if changes.order is None:
        return list(found.values())
    return [found[tuple(k)] for k in changes.order]
