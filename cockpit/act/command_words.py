"""Where in a command line the user's own program begins: past launchers, wrappers, ``sh -c``.

Pure. What a shell would still change in a string (variables, pipes, several commands) is not
guessed: then there is a refusal, and nothing of the command is touched.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cockpit.act.command_launchers import (
    LAUNCHERS,
    MODULES,
    PROGRAM_MODULES,
    PROGRAMS,
    PYTHON,
    PYTHON_TAKES,
    SHELLS,
    WITHOUT_SUBCOMMAND,
    Launcher,
)
from cockpit.act.quoting import assignment

ProgramKind = Literal["script", "module", "code", "program"]
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELL_WORK = re.compile(r"[$`;&|<>(){}\[\]!*?~#\n\\]")
"""What a shell acts on. Inside quotes some of it would be harmless: refused all the same."""


@dataclass(frozen=True, slots=True)
class Program:
    """The user's program in an argv. Indices are into that argv."""

    kind: ProgramKind
    name: str
    """Script path, module, the program's name, or ``-c``."""
    at: int
    arguments_at: int
    launchers: tuple[str, ...] = ()
    options: tuple[tuple[str, int, int], ...] = ()
    """(launcher, begin, end): the words of its own options."""
    assignments: tuple[int, ...] = ()
    """Words ``NAME=value`` that set the environment of what follows."""
    framework: str | None = None
    """As far as the launcher or the program tells."""
    shell_at: int | None = None
    """``sh -c``: the index of its string; ``at`` and the others are then of the string's words."""
    words: tuple[str, ...] = ()
    """What the indices are into: the argv, or the words of the string."""


class NotUnderstoodError(ValueError):
    """A sentence: why the command is not taken apart."""


@dataclass
class _Walk:
    argv: tuple[str, ...]
    position: int = 0
    launchers: list[str] = field(default_factory=list)
    options: list[tuple[str, int, int]] = field(default_factory=list)
    assignments: list[int] = field(default_factory=list)

    @property
    def word(self) -> str | None:
        return self.argv[self.position] if self.position < len(self.argv) else None

    def take(self) -> str:
        word = self.word
        if word is None:
            raise NotUnderstoodError("The command ends before the program that it starts.")
        self.position += 1
        return word


def find_program(argv: Sequence[str]) -> Program:
    """Raises NotUnderstoodError."""
    walk = _Walk(tuple(argv))
    while True:
        while walk.word and ASSIGNMENT.fullmatch(walk.word) and _may_assign(walk):
            walk.assignments.append(walk.position)
            walk.position += 1
        at = walk.position
        word = walk.take()
        name = os.path.basename(word)
        if name in SHELLS:
            return _of_shell(walk)
        found = _of_python(walk) if PYTHON.fullmatch(name) else _of_launcher(walk, name)
        if found == "next":
            continue
        return found or _of_program(walk, word, name, at)


def _may_assign(walk: _Walk) -> bool:
    return walk.launchers[-1:] in (["env"], ["sh"])


def _of_launcher(walk: _Walk, name: str) -> Program | Literal["next"] | None:
    launcher = LAUNCHERS.get(name)
    if launcher is None:
        return None
    if launcher.refusal:
        raise NotUnderstoodError(launcher.refusal)
    if launcher.subcommands and not _subcommand(walk, launcher):
        return None
    return _past(walk, name, launcher)


def _subcommand(walk: _Walk, launcher: Launcher) -> bool:
    """Steps behind it; False where another one stands there (``uv pip``, ``docker ps``)."""
    start = walk.position
    _skip(walk, launcher)
    if walk.word in launcher.subcommands:
        walk.position += 1
        return True
    walk.position = start
    return False


def _past(walk: _Walk, name: str, launcher: Launcher) -> Program | Literal["next"]:
    begin = walk.position
    seen = _skip(walk, launcher)
    walk.launchers.append(name)
    walk.options.append((name, begin, walk.position))
    for _ in range(launcher.positional):
        walk.take()
    if seen & {"-m", "--module"} and (launcher.python or name == "uv"):
        return _done(walk, "module", walk.take(), walk.position - 1)
    if launcher.python and "--no-python" not in seen:
        return _done(walk, "script", walk.take(), walk.position - 1)
    if name == "uv" and walk.word and walk.word.endswith(".py"):
        return _done(walk, "script", walk.take(), walk.position - 1)
    return "next"


def _skip(walk: _Walk, launcher: Launcher) -> set[str]:
    """Steps over options; the names of those that stood there, with ``-`` for ``_``."""
    seen: set[str] = set()
    while (word := walk.word) is not None and word.startswith("-") and word != "-":
        walk.position += 1
        if word == "--":
            break
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        seen.add(name)
        if not equals:
            walk.position += launcher.takes.get(name, 0)
            if launcher.unknown_take and name not in launcher.switches:
                walk.position += _looks_like_value(walk.word)
    return seen


def _looks_like_value(word: str | None) -> bool:
    return word is not None and not word.startswith("-") and not word.endswith((".py", ".sh"))


def _of_python(walk: _Walk) -> Program | Literal["next"]:
    while (word := walk.word) is not None and word.startswith("-") and word != "-":
        at = walk.position
        walk.position += 1
        if word in PYTHON_TAKES:
            walk.take()
        elif not word.startswith("--") and word[1] not in "XW":
            letter = re.search(r"[mc]", word[1:])
            if letter and letter[0] == "c":
                walk.position += word.endswith("c")
                return _done(walk, "code", "-c", at)
            if letter:
                attached = word[1:][letter.end() :]
                return _of_module(walk, attached or walk.take())
    return _of_script(walk)


def _of_script(walk: _Walk) -> Program | Literal["next"]:
    """``python …/bin/torchrun``: as /proc shows a program that begins with ``#!python``."""
    at = walk.position
    word = walk.take()
    name = os.path.basename(word)
    if name in PROGRAMS:
        return _of_program(walk, word, name, at)
    return _of_launcher(walk, name) or _done(walk, "script", word, at)


def _of_module(walk: _Walk, module: str) -> Program | Literal["next"]:
    known = MODULES.get(module)
    if known is None:
        framework = PROGRAM_MODULES.get(module)
        return _done(walk, "module", module, walk.position - 1, framework)
    launcher = LAUNCHERS[known]
    wants = launcher.subcommands and module not in WITHOUT_SUBCOMMAND
    if wants and not _subcommand(walk, launcher):
        return _done(walk, "module", module, walk.position - 1)
    return _past(walk, known, launcher)


def _of_program(walk: _Walk, word: str, name: str, at: int) -> Program:
    framework, subcommands = PROGRAMS.get(name, (None, ()))
    if walk.word in subcommands:
        walk.position += 1
    kind: ProgramKind = "script" if word.endswith((".py", ".sh")) else "program"
    return _done(walk, kind, word, at, framework)


def _done(
    walk: _Walk, kind: ProgramKind, name: str, at: int, framework: str | None = None
) -> Program:
    by_launcher = [one for one in walk.launchers if one in ("accelerate", "deepspeed")]
    return Program(
        kind=kind,
        name=name,
        at=at,
        arguments_at=walk.position,
        launchers=tuple(walk.launchers),
        options=tuple(walk.options),
        assignments=tuple(walk.assignments),
        framework=framework or (by_launcher[-1] if by_launcher else None),
        words=walk.argv,
    )


def _of_shell(walk: _Walk) -> Program:
    while (word := walk.word) is not None and word.startswith("-"):
        walk.position += 1
        if not word.startswith("--") and "c" in word:
            return _of_string(walk, walk.position, walk.take())
    if walk.word is None:
        raise NotUnderstoodError("The command is a shell that reads its commands from elsewhere.")
    return _done(walk, "script", walk.take(), walk.position - 1)


def _of_string(walk: _Walk, at: int, text: str) -> Program:
    if _SHELL_WORK.search(text):
        raise NotUnderstoodError(
            "The command is a string that a shell works on: it is not taken apart."
        )
    try:
        words = shlex.split(text)
    except ValueError:
        raise NotUnderstoodError("The quotes in the shell's command do not match.") from None
    inner = _Walk(tuple(words), launchers=["sh"])
    while inner.word and ASSIGNMENT.fullmatch(inner.word):
        inner.assignments.append(inner.position)
        inner.position += 1
    found = find_program(words[inner.position :]) if inner.word else None
    if found is None or found.shell_at is not None:
        raise NotUnderstoodError("The shell's command is not one simple command.")
    return _shifted(found, inner, tuple(walk.launchers), at)


def _shifted(found: Program, inner: _Walk, outer: tuple[str, ...], at: int) -> Program:
    """The program of the string's words, its indices counted from the string's beginning."""
    by = inner.position
    return Program(
        kind=found.kind,
        name=found.name,
        at=found.at + by,
        arguments_at=found.arguments_at + by,
        launchers=(*outer, "sh", *found.launchers),
        options=tuple((name, a + by, b + by) for name, a, b in found.options),
        assignments=(*inner.assignments, *(i + by for i in found.assignments)),
        framework=found.framework,
        shell_at=at,
        words=inner.argv,
    )


def join_string(words: Sequence[str]) -> str:
    """Words of a simple command as one string; assignments at its head stay assignments."""
    at, pieces = 0, []
    while at < len(words) and (match := ASSIGNMENT.fullmatch(words[at])):
        pieces.append(assignment(match[1], match[2]))
        at += 1
    return " ".join([*pieces, *(shlex.quote(word) for word in words[at:])])
