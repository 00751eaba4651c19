"""Facts of a finding as people read them: names without their unit, values with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cockpit.model.text import age, rate, size
from cockpit.tui.render.cells import foreign

_MOST = 40
"""Values of a list or mapping that are shown: a log may name every rank of a thousand."""


def _number(value: float) -> str:
    """At most four digits that say something, and never an exponent for what people count."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


def _seconds(value: float) -> str:
    words = f"{_number(value)} s"
    return f"{words} ({age(value)})" if 120 <= value < 1e15 else words


def _rate(value: float) -> str:
    words = rate(value)
    return f"{words[:-1]} {words[-1]}B/s" if words[-1].isalpha() else f"{words} B/s"


_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes_per_s": _rate,
    "_bytes_per_step": lambda value: f"{size(value)} a step",
    "_bytes": size,
    "_pct": lambda value: f"{_number(value)} %",
    "_share": lambda value: f"{value * 100:.1f} %",
    "_ms": lambda value: f"{_number(value)} ms",
    "_mhz": lambda value: f"{_number(value)} MHz",
    "_s": _seconds,
    "_w": lambda value: f"{_number(value)} W",
    "_c": lambda value: f"{_number(value)} °C",
}
"""End of a fact's name → its value in words; the longer ends first."""


def fact_words(facts: Mapping[str, Any], without: Sequence[str] = ()) -> list[tuple[str, str]]:
    """(name, value) pairs, clean; what is None or empty is left out, what says the same too."""
    pairs = [
        _pair(str(name), value)
        for name, value in facts.items()
        if name not in without and value not in (None, "", [], (), {})
    ]
    return list(dict.fromkeys(pairs))


def _pair(name: str, value: Any) -> tuple[str, str]:
    for end, words in _UNITS.items():
        if name.endswith(end):
            return foreign(name.removesuffix(end).replace("_", " ")), _value(value, words)
    return foreign(name.replace("_", " ")), _value(value, _number)


def _value(value: Any, words: Callable[[float], str]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return words(value)
    if isinstance(value, Mapping):
        return _joined([f"{foreign(str(k))}: {_value(v, words)}" for k, v in value.items()])
    if isinstance(value, list | tuple):
        return _joined([_value(one, words) for one in value])
    return "–" if value is None else foreign(str(value))


def _joined(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST
    return ", ".join(parts[:_MOST]) + (f" and {rest} more" if rest > 0 else "")
