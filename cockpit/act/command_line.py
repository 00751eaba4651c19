"""What a command line says about a training run: its batch size, accumulation, precision … Pure.

``recognise`` finds the words, ``command_change`` changes them. A name means what the program itself
declares (``declared``, read from its source or its ``--help``), else what the table says. Words
that a shell would still change are not guessed: then ``refusal`` says why, and nothing is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeGuard

from cockpit.act.command_table import (
    EVALUATION,
    ONLY_WITH_DASHES,
    SHORT,
    Kind,
    Meaning,
    Row,
    canonical,
    parts_of,
    row_of,
)
from cockpit.act.command_words import NotUnderstoodError, Program, find_program

Form = Literal["space", "equals", "attached", "override", "pair", "switch"]
TRUE = frozenset(("true", "yes", "on", "1"))
FALSE = frozenset(("false", "no", "off", "0"))
_ATTACHED = re.compile(r"-([a-z])(\d+)")
_OVERRIDE = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
_YACS = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)+")
_BEFORE_OVERRIDE = frozenset(
    (
        *("-m", "--multirun", "-o", "--opt", "--opts", "--set", "--override", "--overrides"),
        *("--options", "--cfg-options", "-D", "--args", "--config-override"),
    )
)
"""Options behind which ``name=value`` words stand; behind others such a word is their value."""
_OF_TRAINER = frozenset(
    (
        *("per_device_train_batch_size", "per_device_eval_batch_size", "dataloader_num_workers"),
        *("per_gpu_train_batch_size", "logging_steps", "save_strategy", "eval_strategy"),
    )
)
"""Only programs with transformers.TrainingArguments have one of these."""


class Declared(NamedTuple):
    """An option that the program itself declares."""

    names: tuple[str, ...]
    """As it is typed: ``-b``, ``--batch-size``."""
    takes: bool
    """False: a switch."""
    default: str | None = None
    """None: none, or not a constant."""
    choices: tuple[str, ...] = ()
    source: str = ""
    """``train.py:12`` or ``--help``."""

    @property
    def long_name(self) -> str:
        """The most telling of its names."""
        return max(self.names, key=len)


class Found(NamedTuple):
    """One option on a command line. Indices are into ``Recognised.words``."""

    meaning: Meaning
    kind: Kind
    name: str
    """As written."""
    value: str | None
    """None: a bare switch."""
    at: int
    value_at: int
    form: Form
    says: str | None = None
    framework: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def number(self) -> int | None:
        """None for ``auto``, a list, a variable of the config."""
        text = (self.value or "").strip()
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def on(self) -> bool:
        """A switch that is set."""
        return self.value is None or self.value.lower() not in FALSE


@dataclass(frozen=True, slots=True)
class Recognised:
    """A command, taken apart."""

    argv: tuple[str, ...]
    program: Program | None = None
    """None: see ``refusal``."""
    found: tuple[Found, ...] = ()
    framework: str | None = None
    declared: tuple[Declared, ...] = ()
    refusal: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the program and its options stand in."""
        return self.program.words if self.program else self.argv

    def all_of(self, meaning: Meaning) -> tuple[Found, ...]:
        """In the order of the command line."""
        return tuple(one for one in self.found if one.meaning == meaning)

    def last(self, meaning: Meaning) -> Found | None:
        """The one that counts: of two the later overrides the earlier."""
        every = self.all_of(meaning)
        return every[-1] if every else None

    def declared_as(self, meaning: Meaning) -> tuple[Declared, ...]:
        """Options of the program that mean this, on the command line or not."""
        return tuple(
            one for one in self.declared if any(_meaning(name) == meaning for name in one.names)
        )


def recognise(
    argv: Sequence[str], declared: Sequence[Declared] = (), framework: str | None = None
) -> Recognised:
    """``framework``: what the caller knows about the program, such as from its imports."""
    words = tuple(argv)
    try:
        program = find_program(words)
    except NotUnderstoodError as error:
        return Recognised(words, refusal=str(error))
    by_name = {name: one for one in declared for name in one.names}
    found = [
        *_options(program, "accelerate"),
        *_scan(program.words, program.arguments_at, len(program.words), by_name),
    ]
    known = framework or _framework(program, found)
    return Recognised(words, program, tuple(found), known, tuple(declared))


def _options(program: Program, launcher: str) -> list[Found]:
    """A launcher's own options that change the training (``accelerate launch``)."""
    return [
        one
        for name, begin, end in program.options
        if name == launcher
        for one in _scan(program.words, begin, end, {})
        if one.meaning in ("precision", "accumulation", "device")
    ]


def _scan(
    words: Sequence[str], begin: int, end: int, by_name: dict[str, Declared]
) -> Iterator[Found]:
    at = begin
    while at < end and words[at] != "--":
        found = _at(words, at, begin, end, by_name)
        if found is not None:
            yield found
            at = max(at, found.value_at)
        at += 1


def _at(
    words: Sequence[str], at: int, begin: int, end: int, by_name: dict[str, Declared]
) -> Found | None:
    word = words[at]
    following = words[at + 1] if at + 1 < end else None
    if word.startswith("-"):
        return _dashed(word, following, at, by_name)
    if match := _OVERRIDE.fullmatch(word):
        name, value = match.groups()
        if at > begin and not _may_follow(words[at - 1], by_name):
            return None
        row = _row(name, {})
        if row is None or canonical(name) in ONLY_WITH_DASHES:
            return None
        return _make(row, name, value, at, at, "override")
    if _YACS.fullmatch(word) and _is_value(following) and (row := _row(word, {})):
        return _make(row, word, following, at, at + 1, "pair")
    return None


def _is_value(word: str | None) -> TypeGuard[str]:
    """No option: a word without a dash, or a negative number."""
    return word is not None and (not word.startswith("-") or word[1:].isdigit())


def _may_follow(before: str, by_name: dict[str, Declared]) -> bool:
    if not before.startswith("-") or "=" in before or before in _BEFORE_OVERRIDE:
        return True
    declared = by_name.get(before)
    return declared is not None and not declared.takes


def _dashed(
    word: str, following: str | None, at: int, by_name: dict[str, Declared]
) -> Found | None:
    name, equals, value = word.partition("=")
    row = _row(name, by_name)
    declared = by_name.get(name)
    if row is None:
        match = _ATTACHED.fullmatch(word)
        row = _row(f"-{match[1]}", by_name) if match else None
        if match is None or row is None:
            return None
        return _make(row, f"-{match[1]}", match[2], at, at, "attached")
    choices = declared.choices if declared else ()
    takes = declared.takes if declared else row.kind == "value"
    if equals:
        return _make(row, name, value, at, at, "equals", choices)
    if row.kind != "value" and _is_truth(row, following, takes):
        return _make(row, name, following, at, at + 1, "space", choices)
    if row.kind != "value":
        return _make(row, name, None, at, at, "switch", choices)
    if not _is_value(following):
        return None
    return _make(row, name, following, at, at + 1, "space", choices)


def _is_truth(row: Row, following: str | None, takes: bool) -> bool:
    """``--bf16 True``. ``--cuda 0`` may as well name a device: digits are left alone there."""
    if following is None or following.lower() not in TRUE | FALSE:
        return False
    return takes or row.meaning != "device" or not following.isdigit()


def _row(name: str, by_name: dict[str, Declared]) -> Row | None:
    """What a name means; what the program declares counts before the table."""
    declared = by_name.get(name)
    if declared is not None:
        return _row_of_declared(declared, name)
    single = name.startswith("-") and not name.startswith("--")
    plain = canonical(name)
    if single and len(plain) <= 2 and plain not in SHORT:
        return None
    if by_name and single and len(plain) <= 2:
        return None  # the program's options are known, and this is none of them
    return row_of(plain)


def _row_of_declared(declared: Declared, name: str) -> Row | None:
    """By the name itself, else by another of the same option: ``-x`` of ``-x, --batch-size``."""
    others = sorted(declared.names, key=len, reverse=True)
    for one in (name, *others):
        telling = one.startswith("--") or len(declared.names) == 1
        row = row_of(canonical(one)) if telling else None
        if row is not None:
            return row
    return None


def _meaning(name: str) -> Meaning | None:
    row = row_of(canonical(name)) if name.startswith("--") else None
    if row is None:
        return None
    return _of_evaluation(row, name)


def _of_evaluation(row: Row, name: str) -> Meaning | None:
    if not EVALUATION & set(parts_of(name)):
        return row.meaning
    return "eval_batch" if row.meaning in ("batch", "eval_batch") else None


def _make(
    row: Row,
    name: str,
    value: str | None,
    at: int,
    value_at: int,
    form: Form,
    choices: tuple[str, ...] = (),
) -> Found | None:
    meaning = _of_evaluation(row, name)
    if meaning is None:
        return None
    return Found(
        meaning, row.kind, name, value, at, value_at, form, row.says, row.framework, choices
    )


def _framework(program: Program, found: Sequence[Found]) -> str | None:
    arguments = program.words[program.arguments_at :]
    names = {canonical(w.partition("=")[0]) for w in arguments if w.startswith("--")}
    if names & _OF_TRAINER:
        return "transformers"
    if program.framework:
        return program.framework
    heads = {w.lstrip("+-").partition("=")[0].partition(".")[0] for w in arguments if "." in w}
    if "exp_manager" in heads or ("model" in heads and "trainer" in heads):
        return "nemo"
    if "trainer" in heads or any(canonical(o.name) == "accumulate_grad_batches" for o in found):
        return "lightning"
    return None
