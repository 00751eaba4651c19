"""Changes to a command line: one thing set to another value, all other words left as they are.

An option is added only where it is known to exist: the framework documents it for each of its
programs, or the program's own source or ``--help`` declares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cockpit.act.command_line import Declared, Found, Recognised, recognise
from cockpit.act.command_table import MEANT, WORDS, Meaning, Row, addable, canonical, row_of
from cockpit.act.command_words import join_string

HALF = "half"
MOST_SHARE = 0.95
"""Of a card for a serving engine: the driver and a context of CUDA want the rest."""
_TOGGLES = ("checkpointing", "compile")
_DEEPSPEED_FILES = (
    "--deepspeed",
    "--deepspeed_config",
    "--deepspeed-config",
    "--deepspeed_config_file",
)


class Edit(NamedTuple):
    """One option before and after; None: it was not, or is no longer, on the command line."""

    meaning: Meaning
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A new command line."""

    argv: tuple[str, ...]
    edits: tuple[Edit, ...]
    notes: tuple[str, ...] = ()
    """What has to be known about it: sentences."""


def change(
    argv: Sequence[str],
    meaning: Meaning,
    value: str,
    declared: Sequence[Declared] = (),
    framework: str | None = None,
) -> Change | None:
    """None: nothing to change, or the program has no such option that is known.

    ``value``: a number; for precision ``bf16``, ``fp16`` or ``fp32``; for checkpointing and compile
    ``on`` or ``off``; for device ``cuda`` or ``cpu``. Relative ones count from the command line, or
    from a default that is known: ``half`` of a whole number, ``+0.05`` of a share.
    """
    known = recognise(argv, declared, framework)
    told = _half(known, meaning) if value == HALF else value
    told = _share(known, meaning, float(value)) if value.startswith("+") else told
    return None if told is None else _change(known, meaning, told)


def _half(known: Recognised, meaning: Meaning) -> str | None:
    """None: not known, or there is no half. Without any worker the program loads by itself."""
    number, least = _number(known, meaning), 0 if meaning == "workers" else 1
    return None if not number or number // 2 < least else str(number // 2)


def _share(known: Recognised, meaning: Meaning, more: float) -> str | None:
    """None: not known, or already as much as there may be."""
    found = known.last(meaning)
    rows = addable(meaning, known.framework)
    text = found.value if found is not None else rows[0].default if rows else None
    try:
        old = float(text or "")
    except ValueError:
        return None
    new = min(old + more, MOST_SHARE)
    return f"{new:.2f}" if 0 < old < new else None


def halve_batch(
    argv: Sequence[str],
    declared: Sequence[Declared] = (),
    framework: str | None = None,
    of: Meaning = "batch",
) -> Change | None:
    """Half the batch and, where the accumulation is known, twice as much of that.

    None where the batch is 1, not known, or not a plain number. ``of``: ``batch`` or
    ``eval_batch``. An odd batch is rounded down, and a note says what the effective one becomes.
    """
    known = recognise(argv, declared, framework)
    if of == "eval_batch":
        return _halved(known, "eval_batch")
    size = _number(known, "batch")
    whole = known.last("global_batch")
    if size is not None:
        return _halved_with_accumulation(known, size, whole)
    if whole is None or not whole.number or whole.number < 2:
        return None
    return _halved_global(known)


def _halved(known: Recognised, meaning: Meaning) -> Change | None:
    size = _number(known, meaning)
    return None if size is None or size < 2 else _change(known, meaning, str(size // 2))


def _halved_with_accumulation(known: Recognised, size: int, whole: Found | None) -> Change | None:
    first = _halved(known, "batch")
    if first is None:
        return None
    if whole is not None:
        note = f"{whole.name} stays: the framework accumulates twice as often by itself"
        return replace(first, notes=(note, *_notes(known)))
    steps = _number(known, "accumulation")
    second = steps and _change(_again(known, first.argv), "accumulation", str(steps * 2))
    if not steps or not second:
        note = "the accumulation is not known: the effective batch is halved, and with it what a "
        return replace(first, notes=(note + "learning rate means", *_notes(known)))
    effective, before = (size // 2) * steps * 2, size * steps
    odd = (f"the effective batch becomes {effective} instead of {before}",)
    notes = (*(odd if effective != before else ()), *_notes(known))
    return Change(second.argv, (*first.edits, *second.edits), notes)


def _halved_global(known: Recognised) -> Change | None:
    """micro batch = global batch / accumulation / ranks: twice the accumulation halves it."""
    steps = known.last("accumulation")
    if steps is not None and steps.number:
        doubled = _change(known, "accumulation", str(steps.number * 2))
        note = "the global batch stays; twice the accumulation halves what is computed at once"
        return doubled and replace(doubled, notes=(note, *_notes(known)))
    halved = _halved(known, "global_batch")
    note = "the global batch itself is halved, and with it what a learning rate means"
    return halved and replace(halved, notes=(note, *_notes(known)))


def _notes(known: Recognised) -> tuple[str, ...]:
    words = [word.partition("=")[0] for word in known.words]
    if not any(name in words for name in _DEEPSPEED_FILES):
        return ()
    return ("the DeepSpeed configuration file has to say auto, or the same numbers",)


def _number(known: Recognised, meaning: Meaning) -> int | None:
    """On the command line, else the default where it is documented or declared."""
    found = known.last(meaning)
    if found is not None:
        return found.number
    for one in known.declared_as(meaning):
        if one.default is not None and one.default.isdigit():
            return int(one.default)
    rows = addable(meaning, known.framework)
    return int(rows[0].default) if rows and rows[0].default else None


# -- one thing ---------------------------------------------------------------------------------


def _change(known: Recognised, meaning: Meaning, value: str) -> Change | None:
    if known.program is None:
        return None
    if meaning == "precision":
        return _set_precision(known, value)
    if meaning == "device":
        return _set_device(known, value)
    if meaning in _TOGGLES:
        return _toggle(known, meaning, value)
    found = known.last(meaning)
    if found is None:
        return _add(known, meaning, value)
    return _done(known, _Words(known).value(found, value))


class _Words:
    """Edits of the words, applied from the last to the first so that indices stay true."""

    def __init__(self, known: Recognised) -> None:
        self._known = known
        self._new: dict[int, str | None] = {}
        self._added: list[str] = []
        self.edits: list[Edit] = []

    def value(self, found: Found, text: str) -> _Words:
        if found.value == text:
            return self
        joined = {"equals": f"{found.name}={text}", "override": f"{found.name}={text}"}
        joined["attached"] = f"{found.name}{text}"
        self._new[found.value_at] = joined.get(found.form, text)
        self.edits.append(Edit(found.meaning, found.name, found.value, text))
        return self

    def switch(self, found: Found, on: bool) -> _Words:
        """The option itself to be set or not; a written truth value keeps its style."""
        if found.on == on:
            return self
        if found.value is None:
            self._new[found.at] = None
            self.edits.append(Edit(found.meaning, found.name, "set", None))
            return self
        return self.value(found, _truth(on, found.value))

    def add(self, meaning: Meaning, name: str, value: str | None) -> _Words:
        equals = self._with_equals() and value is not None
        self._added += [f"{name}={value}"] if equals else [name, *([value] if value else [])]
        self.edits.append(Edit(meaning, name, None, value or "set"))
        return self

    def words(self) -> tuple[str, ...]:
        """Additions go to the end, before a bare ``--`` of the program's own."""
        old, program = self._known.words, self._known.program
        assert program is not None
        arguments = old[program.arguments_at :]
        end = program.arguments_at + (
            arguments.index("--") if "--" in arguments else len(arguments)
        )
        kept = [self._new.get(i, word) for i, word in enumerate(old)]
        return tuple(w for w in (*kept[:end], *self._added, *kept[end:]) if w is not None)

    def _with_equals(self) -> bool:
        """As the rest is written; not for options that are found with their value apart."""
        program = self._known.program
        arguments = self._known.words[program.arguments_at :] if program else ()
        joined = any(word.startswith("--") and "=" in word for word in arguments)
        return joined and all(one.form != "space" for one in self._known.found)


def _done(known: Recognised, words: _Words) -> Change | None:
    if not words.edits or known.program is None:
        return None
    new, at = words.words(), known.program.shell_at
    argv = new if at is None else (*known.argv[:at], join_string(new), *known.argv[at + 1 :])
    return Change(argv, tuple(words.edits))


def _again(known: Recognised, argv: Sequence[str]) -> Recognised:
    return recognise(argv, known.declared, known.framework)


def _add(known: Recognised, meaning: Meaning, value: str | None) -> Change | None:
    for one in known.declared_as(meaning):
        if one.takes == (value is not None):
            return _done(known, _Words(known).add(meaning, one.long_name, value))
    for row in addable(meaning, known.framework):
        return _done(known, _Words(known).add(meaning, _typed(row), value))
    return None


def _typed(row: Row) -> str:
    """vLLM's options are written with dashes in its documentation, the Trainer's without."""
    name = row.names[0].replace("_", "-") if row.framework == "vllm" else row.names[0]
    return f"--{name}"


def _truth(on: bool, like: str) -> str:
    word = {"true": "true", "yes": "yes", "on": "on", "1": "1"}
    other = {"true": "false", "yes": "no", "on": "off", "1": "0"}
    pairs = {**{t: (t, other[t]) for t in word}, **{other[t]: (t, other[t]) for t in word}}
    text = pairs.get(like.lower(), ("true", "false"))[0 if on else 1]
    return text.capitalize() if like[:1].isupper() else text


# -- things with words of their own ----------------------------------------------------------------


def _toggle(known: Recognised, meaning: Meaning, value: str) -> Change | None:
    on, words = value == "on", _Words(known)
    every = known.all_of(meaning)
    for found in every:
        words.switch(found, on if found.kind == "switch" else not on)
    is_off = any(found.kind == "off_switch" and found.on for found in every)
    if words.edits and not (on or is_off):
        _turned_off(known, words, meaning)
    if words.edits or any(found.on == on for found in every if found.kind == "switch"):
        return _done(known, words)
    return None if is_off and not on else _add_toggle(known, meaning, on)


def _turned_off(known: Recognised, words: _Words, meaning: Meaning) -> None:
    """What a framework does unless it is told not to goes on without its switch."""
    for row in addable(meaning, known.framework):
        if row.kind == "off_switch":
            words.add(meaning, _typed(row), None)


def _add_toggle(known: Recognised, meaning: Meaning, on: bool) -> Change | None:
    wanted = "switch" if on else "off_switch"
    for one in known.declared_as(meaning):
        for name in one.names:
            row = row_of(canonical(name))
            if row is not None and row.kind == wanted:
                value = "True" if one.takes else None
                return _done(known, _Words(known).add(meaning, name, value))
    for row in addable(meaning, known.framework):
        if row.kind == wanted:
            return _done(known, _Words(known).add(meaning, _typed(row), None))
    return None


def _set_device(known: Recognised, value: str) -> Change | None:
    words = _Words(known)
    for found in known.all_of("device"):
        if found.kind == "off_switch":
            words.switch(found, value == "cpu")
        elif found.kind == "switch":
            words.switch(found, value != "cpu")
        elif (found.value or "").startswith("cpu") != (value == "cpu"):
            gpu = "gpu" if canonical(found.name) == "accelerator" else value
            words.value(found, "cpu" if value == "cpu" else gpu)
    return _done(known, words)


def _set_precision(known: Recognised, value: str) -> Change | None:
    words, told = _Words(known), False
    for found in known.all_of("precision"):
        if found.kind == "value":
            text = _spelled(found, known, value)
            if text is None:
                return None
            words.value(found, text)
            told = True
        elif found.says == value:
            words.switch(found, True)
            told = True
        else:
            words.switch(found, False)
    if not told and value != "fp32":
        return _add_precision(known, words, value)
    return _done(known, words)


def _add_precision(known: Recognised, words: _Words, value: str) -> Change | None:
    for one in known.declared_as("precision"):
        row = row_of(canonical(one.long_name))
        if row is not None and not one.takes and row.says == value:
            return _done(known, words.add("precision", one.long_name, None))
        if row is not None and one.takes and row.kind == "value":
            text = _in_choices(value, one.choices)
            if text is not None:
                return _done(known, words.add("precision", one.long_name, text))
    for row in addable("precision", known.framework):
        if row.kind == "value" or row.says == value:
            text = WORDS["dtype"][value] if row.kind == "value" else None
            return _done(known, words.add("precision", _typed(row), text))
    return None


def _in_choices(value: str, choices: Sequence[str]) -> str | None:
    return next((word for word in choices if MEANT.get(word) == value), None)


def _spelled(found: Found, known: Recognised, value: str) -> str | None:
    """The precision in the words of the old value; None: not among the choices."""
    if found.choices:
        return _in_choices(value, found.choices)
    old, name = (found.value or "").lower(), canonical(found.name)
    if old.endswith(("-mixed", "-true")) or (
        name == "precision" and known.framework == "lightning"
    ):
        return WORDS["lightning"][value]
    if name == "mixed_precision" or old == "no":
        return WORDS["accelerate"][value]
    if "float" in old or name.endswith("dtype"):
        return WORDS["short" if old in ("bf16", "fp16", "fp32") else "dtype"][value]
    return WORDS["short" if old in ("fp16", "fp32") else "number"][value]
