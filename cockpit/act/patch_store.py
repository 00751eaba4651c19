"""Backups of patched files: one folder a patch in the state directory, kept until the user cleans.

``original`` and ``changed`` are the bytes before and after, ``meta.json`` says of which file.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from cockpit.act.source_file import digest
from cockpit.errors import RefusedError
from cockpit.model.remedy import UndoRecord
from cockpit.model.text import clean
from cockpit.paths import NO_HOME, state_directory


class Meta(Struct, frozen=True, kw_only=True):
    """What is kept beside the bytes, for a person who finds the folder."""

    file: str
    kind: str
    at: str
    original_sha256: str
    changed_sha256: str


def keep(file: str, kind: str, title: str, original: bytes, changed: bytes) -> UndoRecord:
    """Write a backup; how it is used is in the record. Raises RefusedError: nowhere to write it."""
    meta = Meta(
        file=file,
        kind=kind,
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        original_sha256=digest(original),
        changed_sha256=digest(changed),
    )
    try:
        folder = _new_folder()
        _write(folder / "original", original)
        _write(folder / "changed", changed)
        _write(folder / "meta.json", msgspec.json.encode(meta) + b"\n")
    except OSError as error:
        raise RefusedError(f"its backup cannot be written: {error}") from None
    return UndoRecord(
        kind="patch",
        title=title,
        data={
            "file": file,
            "backup": str(folder),
            "sha256": meta.changed_sha256,
            "original_sha256": meta.original_sha256,
        },
    )


def original_of(record: UndoRecord) -> bytes:
    """The bytes to put back. Raises RefusedError when they are not what was kept."""
    raw = _read(record, "original")
    if digest(raw) != record.data["original_sha256"]:
        raise RefusedError(f"the backup in {clean(record.data['backup'])} is damaged: not used")
    return raw


def changed_of(record: UndoRecord) -> bytes:
    """The bytes that the patch wrote. Raises RefusedError."""
    return _read(record, "changed")


def _patches() -> Path:
    state = state_directory(os.environ)
    if state is None:
        raise RefusedError(f"for its backup this user has {NO_HOME}")
    return state / "patches"


def _new_folder() -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = _patches() / f"{stamp}-{secrets.token_hex(4)}"
    for above in (folder.parent.parent, folder.parent):
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    return folder


def _write(path: Path, raw: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _read(record: UndoRecord, name: str) -> bytes:
    folder = Path(record.data["backup"])
    if folder.parent != _patches():
        raise RefusedError(f"{clean(str(folder))} is not a folder of the cockpit's backups")
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise RefusedError(f"the backup cannot be read: {clean(str(error))}") from None
