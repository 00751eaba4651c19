"""Compare lines with a text file; ``UPDATE_GOLDENS=1`` writes it anew (look at the diff then)."""

from __future__ import annotations

import os
from pathlib import Path

from cockpit.tui.line import plain

FOLDER = Path(__file__).parent / "goldens"


def assert_golden(name, lines):
    text = "".join(plain(line).rstrip() + "\n" for line in lines)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
