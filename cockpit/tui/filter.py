"""The language of the filter line: words and ``name:value`` terms, all of which must hold.

``train user:ml1 gpu:0-3 vram>10 !is:idle "my job"``: free words look into command, user, container
and pid; ``!`` or ``-`` before a term turns it round. A term that makes no sense is left out and
named in :attr:`Filter.error`; the others still hold. Nothing that somebody types raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cockpit.model.process import Process
from cockpit.model.text import GIB, MIB, clean
from cockpit.tui.render.process_words import is_idle
from cockpit.tui.sorting import sm_pct

Test = Callable[[Process], bool]

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_TERM = re.compile(r"(?s)([a-zA-Z]+)(>=|<=|:|>|<|=)(.*)")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{0,6})?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": GIB, "k": 1 << 10, "m": MIB, "g": GIB, "t": GIB << 10}
_MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class Term:
    """One condition, with the words that were typed."""

    text: str
    test: Test
    negated: bool

    def holds(self, process: Process) -> bool:
        """Whether the process passes it."""
        return self.test(process) != self.negated


@dataclass(frozen=True, slots=True)
class Filter:
    """What was typed, understood."""

    terms: tuple[Term, ...] = ()
    error: str | None = None
    """A sentence about the first term that makes no sense; None: all do."""

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, process: Process) -> bool:
        """Whether all terms hold."""
        return all(term.holds(process) for term in self.terms)

    def describe(self) -> str:
        """What is shown, such as ``train and user:ml1 and not is:idle``; empty: everything."""
        words = (f"not {term.text}" if term.negated else term.text for term in self.terms)
        return " and ".join(words)


class _WrongTermError(Exception):
    """A value that its term cannot take; the message is the sentence."""


def parse(text: str) -> Filter:
    """Understand a filter line. Never raises."""
    terms: list[Term] = []
    error: str | None = None
    for word in _WORD.findall(text):
        try:
            term = _term(word)
        except _WrongTermError as wrong:
            error = error or str(wrong)
        else:
            terms += [term] if term else []
    return Filter(tuple(terms), error)


def _term(word: str) -> Term | None:
    negated = word[0] in "!-" and len(word) > 1
    body = word[1:] if negated else word
    if not body.strip('"'):
        return None
    match = None if body.startswith('"') else _TERM.fullmatch(body)
    if match and match.group(1).lower() in _NAMES:
        name, operator, value = match.group(1).lower(), match.group(2), match.group(3)
        value = value.replace('"', "")
        test = _named(name, operator, value)
        return Term(clean(f"{name}{operator}{value}"), test, negated)
    plain = body.replace('"', "")
    return Term(clean(plain), _contains(plain), negated)


def _named(name: str, operator: str, value: str) -> Test:
    if not value:
        raise _WrongTermError(f"{name}{operator} needs a value, such as {_EXAMPLES[name]}.")
    if name in _NUMBERS:
        return _compared(name, operator, value)
    if operator not in (":", "="):
        raise _WrongTermError(f"{name} is not a number: write {_EXAMPLES[name]}.")
    return _WORDS[name](value.lower())


# -- words


def _contains(text: str) -> Test:
    wanted = text.lower()

    def test(process: Process) -> bool:
        return any(wanted in part.lower() for part in _searched(process))

    return test


def _searched(process: Process) -> tuple[str, ...]:
    return (
        " ".join(process.command),
        process.name or "",
        process.user or "",
        process.container or "",
        str(process.pid),
    )


def _field(*names: str) -> Callable[[str], Test]:
    """A term that looks into these fields only."""

    def make(wanted: str) -> Test:
        def test(process: Process) -> bool:
            return any(wanted in (getattr(process, name) or "").lower() for name in names)

        return test

    return make


def _gpu(value: str) -> Test:
    wanted: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if match is None:
            raise _WrongTermError(
                f"gpu:{clean(value)} names no GPU: write gpu:3, gpu:0-3 or gpu:0,2."
            )
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        wanted.update(range(min(first, last), min(max(first, last), _MOST_GPUS) + 1))
    return lambda process: any(use.gpu in wanted for use in process.devices)


def _is(value: str) -> Test:
    if value not in _STATES:
        raise _WrongTermError(
            f"is:{clean(value)} is not known: there are {', '.join(sorted(_STATES))}."
        )
    return _STATES[value]


def _integer(field: str) -> Callable[[str], Test]:
    def make(value: str) -> Test:
        if not re.fullmatch(r"[0-9]{1,9}", value):
            raise _WrongTermError(
                f"{field}:{clean(value)} is not a number: write {_EXAMPLES[field]}."
            )
        wanted = int(value)
        return lambda process: getattr(process, field) == wanted

    return make


# -- numbers


def _compared(name: str, operator: str, value: str) -> Test:
    limit = _number(name, value)
    read, compare = _NUMBERS[name], _OPERATORS[operator]

    def test(process: Process) -> bool:
        known = read(process)
        return known is not None and compare(known, limit)

    return test


def _number(name: str, value: str) -> float:
    match = (
        _SIZE.fullmatch(value) if name in _SIZES else re.fullmatch(r"(\d{1,9}\.?\d{0,6})%?", value)
    )
    if match is None or not match.group(1).isascii():
        raise _WrongTermError(
            f"{name} cannot be compared with {clean(value)}: write {_EXAMPLES[name]}."
        )
    number = float(match.group(1))
    return number * _UNITS[match.group(2).lower()] if name in _SIZES else number


_SIZES = frozenset({"vram", "rss"})

_NUMBERS: dict[str, Callable[[Process], float | None]] = {
    "vram": lambda process: process.vram_bytes,
    "rss": lambda process: process.rss_bytes,
    "cpu": lambda process: process.cpu_pct,
    "sm": sm_pct,
}

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda known, limit: known > limit,
    "<": lambda known, limit: known < limit,
    ">=": lambda known, limit: known >= limit,
    "<=": lambda known, limit: known <= limit,
    "=": lambda known, limit: round(known) == round(limit),
    ":": lambda known, limit: known >= limit,
}

_STATES: dict[str, Test] = {
    "stray": lambda process: process.stray is not None,
    "idle": is_idle,
    "hidden": lambda process: not process.visible,
    "zombie": lambda process: process.state == "Z",
    "mig": lambda process: any(use.mig_instance is not None for use in process.devices),
}

_WORDS: dict[str, Callable[[str], Test]] = {
    "user": _field("user"),
    "gpu": _gpu,
    "is": _is,
    "container": _field("container", "pod"),
    "pod": _field("pod"),
    "job": _field("slurm_job", "pod"),
    "env": _field("conda_env"),
    "tmux": _field("tmux"),
    "framework": _field("framework"),
    "rank": _integer("rank"),
    "pid": _integer("pid"),
}

_EXAMPLES: dict[str, str] = {
    "user": "user:ml1",
    "gpu": "gpu:0-3",
    "is": "is:stray",
    "container": "container:train",
    "pod": "pod:train-0",
    "job": "job:88123",
    "env": "env:llm",
    "tmux": "tmux:0",
    "framework": "framework:pytorch",
    "rank": "rank:0",
    "pid": "pid:4711",
    "vram": "vram>10 or vram>512M",
    "rss": "rss>20G",
    "cpu": "cpu>50",
    "sm": "sm>10",
}

_NAMES = frozenset(_WORDS) | frozenset(_NUMBERS)

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("train", "command, user, container or pid contains it"),
    ("user:ml1", "the user's name contains it"),
    ("gpu:3  gpu:0-3  gpu:0,2", "on one of these GPUs"),
    ("vram>10  vram<512M", "GPU memory, in GiB without a unit"),
    ("cpu>50  sm>10  rss>20G", "percent of a core, of the SMs; host memory"),
    ("is:stray  is:idle", "also is:hidden, is:zombie, is:mig"),
    ("job:88  container:x  env:llm", "Slurm job or pod, container, conda environment"),
    ("rank:0", "the rank in its job"),
    ('!user:root  "two words"', "! or - before a term turns it round; quotes keep words together"),
)
"""For the help page: what can be typed, and what it shows."""
