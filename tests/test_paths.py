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


# -- whose it is: real folders, looked at as root and as the user of number 1002


OTHER = 1002
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)


def made(path: Path, uid: int, mode: int = 0o755) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


@needs_root
def test_root_has_no_state_directory_in_the_home_that_sudo_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = made(tmp_path / "ann", OTHER)
    kept = {"HOME": str(home)}
    assert state_directory(kept) is None, "nothing of it is there yet"
    made(home / ".local/state/cockpit", OTHER)
    assert state_directory(kept) is None
    assert state_directory({"HOME": "/x", "XDG_STATE_HOME": str(home / ".local/state")}) is None
    as_user(monkeypatch, OTHER)
    assert state_directory(kept) == home / ".local/state/cockpit", "its user's it is"


@needs_root
def test_a_link_of_another_user_does_not_make_a_directory_of_root_ours(tmp_path: Path):
    home = made(tmp_path / "ann", OTHER)
    secret = made(tmp_path / "root-only", 0, 0o700)
    (home / ".local").mkdir()
    (home / ".local/state").mkdir()
    (home / ".local/state/cockpit").symlink_to(secret)
    os.chown(home / ".local/state/cockpit", 0, 0, follow_symlinks=False)
    assert state_directory({"HOME": str(home)}) is None


@needs_root
def test_a_user_has_none_that_is_another_users_or_where_anybody_may_be_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tmp_path.chmod(0o755)
    as_user(monkeypatch, OTHER)
    assert state_directory({"XDG_STATE_HOME": str(made(tmp_path / "bob", 1003))}) is None
    assert state_directory({"XDG_STATE_HOME": str(made(tmp_path / "open", 0, 0o777))}) is None
    assert state_directory({"XDG_STATE_HOME": str(made(tmp_path / "tmp", 0, 0o1777))}) is not None
    theirs = made(tmp_path / "mine/cockpit", 1003).parent
    os.chown(theirs, OTHER, OTHER)
    assert state_directory({"XDG_STATE_HOME": str(theirs)}) is None
    own = made(tmp_path / "lab", 1003) / "ann"
    made(own, OTHER)
    assert state_directory({"XDG_STATE_HOME": str(own)}) == own / "cockpit", "in a lab's folder"
    roots = made(tmp_path / "home", 0)
    assert state_directory({"HOME": str(roots / "new")}) == roots / "new/.local/state/cockpit"


@needs_root
def test_a_link_to_nothing_is_no_home(tmp_path: Path):
    (tmp_path / "home").symlink_to(tmp_path / "gone")
    assert state_directory({"HOME": str(tmp_path / "home")}) is None
