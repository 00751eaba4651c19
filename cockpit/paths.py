"""Where the cockpit keeps its own files. A base module: it imports nothing of ours."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path


def state_directory(environ: Mapping[str, str]) -> Path | None:
    """$XDG_STATE_HOME/cockpit, else ~/.local/state/cockpit; None: there is no home either.

    By the XDG specification a relative path counts as unset. Makes nothing.
    """
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():
        return state / "cockpit"
    home = _home(environ)
    return None if home is None else home / ".local" / "state" / "cockpit"


def _home(environ: Mapping[str, str]) -> Path | None:
    home = Path(environ.get("HOME", ""))
    if home.is_absolute():
        return home
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container's number without an account
        return None
