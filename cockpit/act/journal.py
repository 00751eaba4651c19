"""The diary of all that the cockpit changed: one JSON object a line, before and after each action.

Never stands in the way: a journal that cannot be written is a sentence, not a failed kill.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from cockpit.model.secret import hide
from cockpit.model.text import clean
from cockpit.model.time import iso
from cockpit.paths import NO_HOME, state_directory
from cockpit.procfs import account_name

MAX_BYTES = 5 << 20
MAX_COMMAND = 500
"""Characters of a command that are kept."""


def _account() -> str | None:
    return account_name(os.geteuid())


class Entry(Struct, frozen=True, kw_only=True):
    """One line. ``intent`` is written before the signal, ``result`` after it."""

    at: str = field(default_factory=lambda: iso(time.time()))
    uid: int = field(default_factory=os.geteuid)
    user: str | None = field(default_factory=_account)
    sudo_user: str | None = field(default_factory=lambda: os.environ.get("SUDO_USER"))
    action: str
    """The plan's id: joins the two lines of one action."""
    phase: Literal["intent", "result"]
    operation: str = "kill"
    """``kill``, ``attach``, or what was done in a run: ``gc``, ``set`` …"""
    signal: str | None = None
    pid: int | None
    """None: it is about no process (a patch, an installation)."""
    start_ticks: int | None
    command: str
    """Cut when it is written."""
    before_bytes: int | None = None
    """Device memory that the driver listed for it."""
    after_bytes: int | None = None
    outcome: str | None = None
    sentence: str | None = None


class Journal:
    """Appends to one file, 0600 in a directory of 0700; the last 5 to 10 MiB are kept."""

    def __init__(self, path: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.path = path if path is not None else default_path()
        """None: there is no home to keep it in."""
        self.max_bytes = max_bytes
        self.trouble: str | None = None
        """Why the last line could not be written."""

    def write(self, entry: Entry) -> bool:
        """Append one line; False with ``trouble`` set when that did not work. Never raises.

        What is foreign in it is cleaned and loses its secrets here.
        """
        path = self.path
        if path is None:
            self.trouble = f"the journal cannot be written: this user has {NO_HOME}"
            return False
        line = msgspec.json.encode(_harmless(entry)) + b"\n"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _rotate(path, len(line), self.max_bytes)
            _append(path, line)
        except OSError as error:
            self.trouble = f"the journal {clean(str(path))} cannot be written: {_why(error)}"
            return False
        self.trouble = None
        return True


def _append(path: Path, line: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        # One write of one line: two cockpits may append to the same file.
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _rotate(path: Path, coming: int, max_bytes: int) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size + coming > max_bytes:
        os.replace(path, path.with_name(path.name + ".1"))


def default_path() -> Path | None:
    """``journal.jsonl`` in the state directory; None: there is no such directory."""
    folder = state_directory(os.environ)
    return None if folder is None else folder / "journal.jsonl"


def bounded(command: str) -> str:
    """A command, harmless, without the secrets in it, and short enough for a line."""
    return clean(hide(command)[:MAX_COMMAND])


def _harmless(entry: Entry) -> Entry:
    words, sudo = entry.sentence, entry.sudo_user
    return msgspec.structs.replace(
        entry,
        sudo_user=bounded(sudo) if sudo else None,
        operation=bounded(entry.operation),
        command=bounded(entry.command),
        sentence=clean(hide(words)) if words is not None else None,
    )


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
