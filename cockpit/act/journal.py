"""The diary of all that the cockpit changed: one JSON object a line, before and after each action.

Never stands in the way: a journal that cannot be written is a sentence, not a failed kill.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from cockpit.model.text import clean

MAX_BYTES = 5 << 20
MAX_COMMAND = 500
"""Characters of a command that are kept."""


class Entry(Struct, frozen=True, kw_only=True):
    """One line. ``intent`` is written before the signal, ``result`` after it."""

    at: str
    uid: int
    user: str | None
    sudo_user: str | None
    action: str
    """The plan's id: joins the two lines of one action."""
    phase: Literal["intent", "result"]
    signal: str
    pid: int
    start_ticks: int | None
    command: str
    """Cleaned and cut."""
    before_bytes: int | None = None
    """Device memory that the driver listed for it."""
    after_bytes: int | None = None
    outcome: str | None = None
    sentence: str | None = None


class Journal:
    """Appends to one file, 0600 in a directory of 0700; the last 5 to 10 MiB are kept."""

    def __init__(self, path: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.path = path if path is not None else default_path(os.environ)
        self.max_bytes = max_bytes
        self.trouble: str | None = None
        """Why the last line could not be written."""

    def write(self, entry: Entry) -> bool:
        """Append one line; False with ``trouble`` set when that did not work. Never raises."""
        line = msgspec.json.encode(entry) + b"\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._rotate(len(line))
            self._append(line)
        except OSError as error:
            self.trouble = f"the journal {clean(str(self.path))} cannot be written: {_why(error)}"
            return False
        self.trouble = None
        return True

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            # One write of one line: two cockpits may append to the same file.
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _rotate(self, coming: int) -> None:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size + coming > self.max_bytes:
            os.replace(self.path, self.path.with_name(self.path.name + ".1"))


def default_path(environment: Mapping[str, str]) -> Path:
    """$XDG_STATE_HOME/cockpit/journal.jsonl; by its spec a relative path counts as unset."""
    state = Path(environment.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path(environment.get("HOME") or "/", ".local", "state")
    return state / "cockpit" / "journal.jsonl"


def now() -> str:
    """UTC, to the millisecond, as in snapshots."""
    text = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def bounded(command: str) -> str:
    """A command of another process, harmless and short enough for a line."""
    return clean(command[:MAX_COMMAND])


@lru_cache(maxsize=256)
def user_name(uid: int) -> str | None:
    """None: no account of that number. Kept, because a directory service may answer slowly."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
