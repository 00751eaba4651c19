"""Variables that a command line sets itself (``env A=1 …``, ``docker run -e A=1``). Pure.

What a command sets inside overrides what it is started with: such a variable has to be changed
where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cockpit.act.command_words import (
    ASSIGNMENT,
    NotUnderstoodError,
    Program,
    find_program,
    join_string,
)

_CONTAINERS = ("docker", "podman")


class Placed(NamedTuple):
    """The command, and what is left to be set or unset around it."""

    argv: tuple[str, ...]
    set: dict[str, str]
    unset: tuple[str, ...]


def place(argv: Sequence[str], set_: Mapping[str, str], unset: Sequence[str] = ()) -> Placed:
    """Changes assignments inside the command; into a container all goes by ``-e``."""
    try:
        program = find_program(argv)
    except NotUnderstoodError:
        return Placed(tuple(argv), dict(set_), tuple(unset))
    words, rest = _assign(program, set_, unset)
    words, rest = _into_container(program, words, rest, unset)
    if program.shell_at is not None:
        at = program.shell_at
        words = [*argv[:at], join_string(words), *argv[at + 1 :]]
    return Placed(tuple(words), rest, tuple(unset))


def assigned(argv: Sequence[str]) -> dict[str, str]:
    """What the command sets by ``NAME=value`` words; empty where it is not understood."""
    try:
        program = find_program(argv)
    except NotUnderstoodError:
        return {}
    pairs = (program.words[at].partition("=") for at in program.assignments)
    return {name: value for name, _, value in pairs}


def _assign(
    program: Program, set_: Mapping[str, str], unset: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    rest = dict(set_)
    for at, word in enumerate(program.words):
        match = ASSIGNMENT.fullmatch(word) if at in program.assignments else None
        if match is None:
            words.append(word)
        elif match[1] in set_:
            words.append(f"{match[1]}={set_[match[1]]}")
            rest.pop(match[1], None)
        elif match[1] not in unset:
            words.append(word)
    return words, rest


def _into_container(
    program: Program, words: list[str], rest: dict[str, str], unset: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Behind ``docker run``; an older ``-e`` of the same name goes."""
    begins = [begin for name, begin, _ in program.options if name in _CONTAINERS]
    if not begins or program.assignments:
        return words, rest
    begin, end = next((b, e) for name, b, e in program.options if name in _CONTAINERS)
    options = _without(words[begin:end], {*rest, *unset})
    added = [word for name, value in rest.items() for word in ("-e", f"{name}={value}")]
    return [*words[:begin], *added, *options, *words[end:]], {}


def _without(options: list[str], names: set[str]) -> list[str]:
    kept: list[str] = []
    at = 0
    while at < len(options):
        word = options[at]
        value = options[at + 1] if word in ("-e", "--env") and at + 1 < len(options) else None
        inline = word.partition("=")[2] if word.startswith("--env=") else value
        step = 2 if value is not None else 1
        if inline is None or inline.partition("=")[0] not in names:
            kept += options[at : at + step]
        at += step
    return kept
