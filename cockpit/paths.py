"""Where the user is, and where the cockpit keeps its own files. A base module."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cockpit.errors import UsageError

NO_HOME = "no home directory of its own (with sudo: `sudo -H`, without -E)"
"""Ends a sentence about what cannot be kept."""


def working_directory() -> str:
    """Where the user is. Raises UsageError where that was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise UsageError("This directory was deleted: go to another one (cd) first.") from error


def state_directory(environ: Mapping[str, str]) -> Path | None:
    """$XDG_STATE_HOME/cockpit, else ~/.local/state/cockpit; None: there is none that is ours.

    By the XDG specification a relative path counts as unset. Makes nothing. That of another user,
    as `sudo -E` and a kept HOME name it, is none: what is read there is acted on (the way back of
    a patch, a run's command), and what is written there could be led anywhere by a link.
    """
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        home = _home(environ)
        if home is None:
            return None
        state = home / ".local" / "state"
    state /= "cockpit"
    return state if _is_ours(state) else None


def _home(environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("HOME", ""))
    if home.is_absolute():
        return home
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container's number without an account
        return None


def _is_ours(path: Path) -> bool:
    """It belongs to us; where it is not made yet: what it would be made in does.

    Root's own may not lie in another user's folder either, who could put a link in its place. For
    others that is no question: homes lie in folders of a group, or of a number without a name.
    """
    there = [one for one in (path, *path.parents) if os.path.lexists(one)]
    if there[0] != path:
        ours = _may_be_made_in(there[0])
    else:
        ours = _owners(path) == {os.geteuid()}
    if os.geteuid() != 0 or not ours:
        return ours
    above = {*there, *Path(os.path.realpath(path)).parents}
    return all(_owners(one) <= _machine() for one in above)


def _may_be_made_in(folder: Path) -> bool:
    """Ours, or root's where only root can write, or where nobody takes away another's (a /tmp).

    Who was there first in a /tmp owns what he made: then it is not ours, and is not used.
    """
    owners = _owners(folder)
    if owners <= _machine():
        try:
            mode = folder.stat().st_mode
            return not mode & stat.S_IWOTH or bool(mode & stat.S_ISVTX)
        except OSError:  # a link to nothing
            return False
    return owners == {os.geteuid()}


def _machine() -> set[int]:
    """Whose the machine is. In a user namespace its root shows as the overflow number."""
    return {0, *_owners(Path("/"))}


def _owners(path: Path) -> set[int]:
    """Of the entry, and of what it leads to where it is a link."""
    found = set()
    for look in (os.lstat, os.stat):
        with suppress(OSError):  # a link to nothing; gone meanwhile
            found.add(look(path).st_uid)
    return found
