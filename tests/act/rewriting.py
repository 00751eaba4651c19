"""Reads the table of rewrites: sources with a marked line, and the diff that has to come out."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "rewrites"
_MARK = re.compile(r" *#@$", re.M)


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    text: str
    line: int
    diff: str
    """``+`` and ``-`` lines with their places; ``unchanged``."""
    facts: dict[str, object] = field(default_factory=dict)


def cases() -> list[Case]:
    return [
        _case(path.stem, part)
        for path in sorted(FOLDER.glob("*.txt"))
        for part in path.read_text().split("=== ")[1:]
    ]


def _case(kind: str, part: str) -> Case:
    head, _, diff = part.partition("\n>>>")
    name, _, text = (head + "\n").partition("\n")
    facts: dict[str, object] = {}
    if text.startswith("{"):
        first, _, text = text.partition("\n")
        facts = json.loads(first)
    marked = [i for i, line in enumerate(text.split("\n"), 1) if line.endswith("#@")]
    assert len(marked) == 1, name
    return Case(kind, name, _MARK.sub("", text), marked[0], diff.strip(" ").strip("\n"), facts)


def diff_of(old: str, new: str) -> str:
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))
    return "\n".join(lines[2:])
