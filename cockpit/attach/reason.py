"""Why the agent did not start: a file that the target leaves, and we read and remove.

Where no private directory is to be had there is no agent's log either, so it lies in the /tmp that
the target sees, under a name that nobody can guess. What stands in it is foreign.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cockpit.attach import script_name
from cockpit.attach.target import Target
from cockpit.model.text import clean

MAX_BYTES = 2000
_SENTENCE_MAX = 300


def new_path(target: Target) -> str:
    """As the target sees it."""
    return script_name.new_path(target, "why")


def take(target: Target, path: str) -> str | None:
    """The reason, cleaned, and its file removed; None: nothing was left (yet)."""
    reached = f"/proc/{target.pid}/root{path}"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # A link would be followed out of the target's root.
        if not path or not stat.S_ISDIR(os.lstat(os.path.dirname(reached)).st_mode):
            return None
        descriptor = os.open(reached, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != target.uid:
            return None
        raw = file.read(MAX_BYTES)
    if not raw.endswith(b"\n"):  # it is being written
        return None
    with suppress(OSError):
        os.unlink(reached)
    return clean(raw.decode("utf-8", "replace").strip())[:_SENTENCE_MAX]
