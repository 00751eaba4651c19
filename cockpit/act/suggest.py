"""From a kind of change and a traceback to a fix: a patch where it is certain, else the editor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cockpit.act import source_file
from cockpit.act.editor import EditByHand
from cockpit.act.patch import Patch
from cockpit.act.rewrites import KINDS, Facts
from cockpit.act.suggestions import SUGGESTIONS
from cockpit.errors import RefusedError

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::.*)?")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
"""A fact in a suggestion; double braces, because the suggestions are Python."""


class Place(NamedTuple):
    """A line of a file of the user."""

    file: str
    """Absolute."""
    line: int
    """From 1."""


def locate(
    frames: str | Iterable[str | tuple[str, int]], cwd: str | None = None
) -> tuple[Place, ...]:
    """The user's own frames that can be patched, innermost first.

    ``frames`` in the order of a traceback (outermost first): pairs, or ``train.py:42`` as in the
    fact ``place`` of a finding. Relative ones are taken from the run's working directory.
    """
    listed = [frames] if isinstance(frames, str) else list(frames)
    found = []
    for frame in reversed(listed):
        place = _parsed(frame, cwd)
        if place is not None and place not in found and _is_own(place.file):
            found.append(place)
    return tuple(found)


def _parsed(frame: str | tuple[str, int], cwd: str | None) -> Place | None:
    if isinstance(frame, str):
        match = _PLACE.fullmatch(frame)
        if match is None:
            return None
        frame = (match["file"], int(match["line"]))
    file, line = frame
    if not os.path.isabs(file):
        if cwd is None:
            return None
        file = os.path.join(cwd, file)
    return Place(os.path.normpath(file), line)


def _is_own(file: str) -> bool:
    try:
        source_file.read(file)
    except RefusedError:
        return False
    return True


def suggest_first(kind: str, places: Sequence[Place], facts: Facts) -> Patch | EditByHand | None:
    """The innermost place with a certain patch; else the editor at the innermost; None: no place.

    An OOM is raised in ``forward``, but the loop that keeps the losses is some frames outside.
    """
    for place in places:
        patch = _certain(kind, place, facts)
        if patch is not None:
            return patch
    return by_hand(kind, *places[0], facts) if places else None


def _certain(kind: str, place: Place, facts: Facts) -> Patch | None:
    if kind not in KINDS:
        return None
    patch = Patch(kind, place.file, place.line, facts)
    return patch if patch.is_certain else None


def by_hand(kind: str, file: str, line: int, facts: Facts) -> EditByHand:
    """The editor at the line. KeyError: no such kind."""
    words = SUGGESTIONS[kind]
    values = {name: str(value) for name, value in facts.items()}
    lines = tuple(_SLOT.sub(lambda m: values.get(m[1], f"<{m[1]}>"), one) for one in words.lines)
    return EditByHand(file, line, lines, words.title, words.verify)
