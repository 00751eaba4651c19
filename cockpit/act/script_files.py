"""The files of a user's training script, read for the options that it declares. Runs nothing."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from cockpit.act.command_line import Declared
from cockpit.act.command_words import NotUnderstoodError, find_program
from cockpit.act.script_options import (
    declared_in_source,
    framework_of_source,
    imported,
    parses_options,
)

MAX_BYTES = 1 << 20
MAX_FILES = 20
"""The script and modules beside it that it imports: a parser often lies in its own file."""


class ScriptFacts(NamedTuple):
    """What is known of the program behind a command."""

    declared: tuple[Declared, ...] = ()
    framework: str | None = None
    files: tuple[str, ...] = ()
    """Those that were read."""
    parses: bool = False
    """It reads its command line by a parser, so that it answers ``--help``."""


def read_script(argv: tuple[str, ...], cwd: str | None, root: str = "") -> ScriptFacts:
    """Empty where there is no such file. ``root``: /proc/PID/root for a script in a container."""
    try:
        program = find_program(argv)
    except NotUnderstoodError:
        return ScriptFacts()
    folder = os.path.join(root + (cwd or "/"))
    if program.kind == "module":
        first = _module(folder, program.name)
    elif program.kind == "script" and program.name.endswith(".py"):
        inner = os.path.join(cwd or "/", program.name)
        first = root + inner
    else:
        return ScriptFacts()
    return _read_all(first) if first else ScriptFacts()


def _module(folder: str, name: str) -> str | None:
    """Only of the working directory: what is installed has its own documentation."""
    base = os.path.join(folder, *name.split("."))
    for path in (base + ".py", os.path.join(base, "__main__.py")):
        if os.path.exists(path):
            return path
    return None


def _read_all(first: str) -> ScriptFacts:
    declared: list[Declared] = []
    framework: str | None = None
    parses = False
    done: dict[str, None] = {}
    waiting = [first]
    while waiting and len(done) < MAX_FILES:
        path = waiting.pop(0)
        text = None if path in done else _text(path)
        if text is None:
            continue
        done[path] = None
        declared += declared_in_source(text, os.path.basename(path))
        framework = framework or framework_of_source(text)
        parses = parses or parses_options(text)
        waiting += _beside(os.path.dirname(path), text)
    return ScriptFacts(tuple(declared), framework, tuple(done), parses)


def _beside(folder: str, text: str) -> list[str]:
    names = (name.lstrip(".") for name in imported(text))
    return [path for name in names if name and os.path.exists(path := f"{folder}/{name}.py")]


def _text(path: str) -> str | None:
    """None for what is not a readable regular file of a sane size (a FIFO would block)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return None
        return file.read(MAX_BYTES).decode("utf-8", "replace")
