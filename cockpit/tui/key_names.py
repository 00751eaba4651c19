"""Names of keys as Textual gives them to a binding: which of a user's do not exist, and why."""

from __future__ import annotations

from textual._keyboard_protocol import FUNCTIONAL_KEYS
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
"""In the order in which Textual names them; of another order no key comes."""
_NAMED = frozenset(
    {key.value.rpartition("+")[2] for key in Keys}
    | set(KEY_NAME_REPLACEMENTS.values())
    | set(FUNCTIONAL_KEYS.values())
)


def why_not(keys: str) -> str | None:
    """What is wrong with a list such as ``f9,ctrl+k``, in one clause; None: nothing."""
    for key in (part.strip() for part in keys.split(",")):
        if not key:
            return "there is an empty key between its commas (the comma itself is `comma`)"
        wrong = _why_not(key)
        if wrong is not None:
            return f"`{key}` is no key: {wrong}"
    return None


def _why_not(key: str) -> str | None:
    *modifiers, name = key.split("+") if len(key) > 1 else [key]
    if not name:
        return "nothing follows the last plus (the plus itself is `plus`)"
    strange = [one for one in modifiers if one not in MODIFIERS]
    if strange:
        return f"`{strange[0]}` is not one of {', '.join(MODIFIERS)}"
    if modifiers != sorted(set(modifiers)):
        right = "+".join([*sorted(set(modifiers)), name])
        return f"it is written `{right}`"
    return None if _is_name(name) else _no_name(name)


def _no_name(name: str) -> str:
    lower = name.lower()
    if lower != name and _is_name(lower):
        return f"it is written `{lower}`"
    return f"there is none named `{name}` (such as a, f9, enter, pagedown, question_mark)"


def _is_name(name: str) -> bool:
    """Characters by themselves or by their Unicode name, function keys by theirs."""
    if len(name) == 1:
        return name.isprintable()
    is_character = key_to_character(name) is not None and name not in KEY_NAME_REPLACEMENTS
    return name in _NAMED or is_character
