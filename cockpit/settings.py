"""What the user chose: one frozen Settings of defaults < file < environment < flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cockpit.errors import UsageError

ENVIRONMENT = {
    "COCKPIT_INTERVAL": "interval_s",
    "COCKPIT_THEME": "theme",
    "COCKPIT_ASCII": "ascii",
    "COCKPIT_READONLY": "readonly",
}
"""Variable → setting. NO_COLOR is honoured as well (no-color.org)."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every choice. The names are the keys of config.toml."""

    interval_s: float = 1.0
    only: tuple[int, ...] | None = None
    """GPU indices to show; None: all."""
    readonly: bool = False
    ascii: bool | None = None
    """None: ASCII only where the locale is not UTF-8."""
    color: bool = True
    theme: str | None = None
    sort: Literal["vram", "sm", "cpu", "age", "pid", "user", "gpu", "command", "rss"] = "vram"
    mouse: bool = True
    wire_diff: bool = True
    """Send only changed cells to the terminal; False: Textual's own output."""
    keys: dict[str, str] = {}
    """Binding id → keys, such as ``kill = "f9,K"``."""

    # flags only, never from a file
    demo: str | None = None
    replay: str | None = None
    record: str | None = None


_FLAGS_ONLY = {"demo", "replay", "record"}


def load(flags: dict[str, Any], config: str | None, environ: dict[str, str]) -> Settings:
    """Defaults < file < environment < flags; a flag of None was not given. Raises UsageError."""
    merged = {
        **_from_file(Path(config) if config else default_path(environ), bool(config)),
        **_from_environment(environ),
        **{name: value for name, value in flags.items() if value is not None},
    }
    settings = convert(merged, "the options")
    if not 0.1 <= settings.interval_s <= 60:
        raise UsageError("The interval must lie between 0.1 and 60 seconds.")
    return settings


def default_path(environ: dict[str, str]) -> Path:
    """$XDG_CONFIG_HOME/cockpit/config.toml, ~/.config where the variable is not set."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "cockpit" / "config.toml"


def convert(values: dict[str, Any], where: str) -> Settings:
    """Checked Settings; the error names the place and the key. Raises UsageError."""
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"In {where}: {error}") from error


def _from_file(path: Path, asked_for: bool) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        if asked_for:
            raise UsageError(f"There is no config file {path}.") from error
        return {}
    except OSError as error:
        if not asked_for:  # another user's home after su or setpriv: as good as absent
            return {}
        raise UsageError(f"The config file cannot be read: {error}") from error
    try:
        values = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    for name in _FLAGS_ONLY & values.keys():
        raise UsageError(f"In {path}: `{name}` is a flag, not a setting.")
    convert(values, str(path))
    return dict(values)


def _from_environment(environ: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        setting: environ[name] for name, setting in ENVIRONMENT.items() if environ.get(name)
    }
    if environ.get("NO_COLOR"):
        values["color"] = False
    return values
