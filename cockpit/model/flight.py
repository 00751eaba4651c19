"""What the flight recorders of a job's ranks say together, and which frames are the user's own."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FlightKind = Literal["behind", "mismatch", "not_begun", "same", "alone", "missing", "unread"]
"""``behind``: a rank has not called what others wait in. ``mismatch``: ranks called different
things under one number. ``not_begun``: all called it, a GPU has not begun. ``same``: all are in one
call. ``alone``: nothing to compare with. ``missing``: a rank left no dump. ``unread``: a dump that
cannot be read, or is left out."""

_NOT_USERS = ("site-packages/", "dist-packages/", "/torch/", "<frozen", "<string>", "lib/python3")


class FlightRow(Struct, frozen=True, kw_only=True):
    """One thing that the comparison found."""

    kind: FlightKind
    sentence: str
    """Harmless for a terminal."""
    ranks: tuple[int, ...] = ()
    """Whom it accuses; empty: nobody, or nobody alone."""
    place: str | None = None
    """``file:line function`` of the accused rank's last or differing call; data from outside."""


def is_users_own(frame: str) -> bool:
    """``file:line function`` is in the user's code: not of a library, and no generated code."""
    return not any(part in frame for part in _NOT_USERS)
