"""Defaults < file < environment < flags, and errors that name place and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.errors import UsageError
from cockpit.settings import load


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "cockpit").mkdir()
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def write(home: dict[str, str], text: str) -> None:
    (Path(home["XDG_CONFIG_HOME"]) / "cockpit" / "config.toml").write_text(text)


def test_without_anything_the_defaults_hold(home: dict[str, str]) -> None:
    assert load({}, None, home).interval_s == 1.0


def test_a_flag_beats_the_environment_which_beats_the_file(home: dict[str, str]) -> None:
    write(home, "interval_s = 2.0\ntheme = 'cockpit-light'\nsort = 'cpu'")
    environment = {**home, "COCKPIT_INTERVAL": "3", "COCKPIT_THEME": "terminal"}
    settings = load({"interval_s": 4.0, "only": None}, None, environment)
    assert (settings.interval_s, settings.theme, settings.sort) == (4.0, "terminal", "cpu")


def test_keys_of_the_file_are_binding_ids(home: dict[str, str]) -> None:
    write(home, "[keys]\nkill = 'f9,K'")
    assert load({}, None, home).keys == {"kill": "f9,K"}


def test_no_color_in_the_environment_takes_the_colours_away(home: dict[str, str]) -> None:
    assert load({}, None, {**home, "NO_COLOR": "1"}).color is False
    assert load({}, None, {**home, "NO_COLOR": ""}).color is True


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("interval_s = 'often'", "interval_s"),
        ("colour = true", "colour"),
        ("interval_s = 0.001", "0.1"),
        ("demo = 'busy'", "flag"),
        ("= 3", "TOML"),
    ],
)
def test_a_wrong_file_is_a_sentence(home: dict[str, str], text: str, word: str) -> None:
    write(home, text)
    with pytest.raises(UsageError, match=word):
        load({}, None, home)


def test_a_config_file_that_was_named_must_exist(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.toml"):
        load({}, str(tmp_path / "missing.toml"), home)
