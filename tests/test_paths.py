"""Where the cockpit's own files go."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from cockpit.paths import state_directory

HOME = {"HOME": "/home/ann"}


def test_the_state_directory_follows_the_xdg_specification():
    usual = Path("/home/ann/.local/state/cockpit")
    assert state_directory(HOME) == usual
    assert state_directory({**HOME, "XDG_STATE_HOME": "relative"}) == usual
    assert state_directory({**HOME, "XDG_STATE_HOME": "/s"}) == Path("/s/cockpit")


def test_without_home_the_account_says_where_it_is():
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert state_directory({}) == Path(home, ".local/state/cockpit")
    assert state_directory({"HOME": "here"}) == Path(home, ".local/state/cockpit")


def test_a_number_without_an_account_has_no_state_directory(monkeypatch: pytest.MonkeyPatch):
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert state_directory({}) is None
