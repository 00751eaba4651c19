"""The line that says which parts the memory page has, and which of them is open."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.line import Line, Span
from cockpit.tui.render.cells import fit_line, merged
from cockpit.tui.render.glyphs import Glyphs

_WORDS = {
    "bar": ("b", "bar"),
    "segments": ("s", "segments"),
    "census": ("c", "census"),
    "history": ("h", "by stack"),
    "stacks": ("t", "threads"),
}


def tab_line(tabs: Sequence[str], chosen: str, width: int, glyphs: Glyphs) -> Line:
    """``─ [bar] ─ segments ─ census ───``: the open one in brackets, for those without colours."""
    spans: list[Span] = []
    for tab in tabs:
        _, word = _WORDS[tab]
        spans.append(("── ", "dim"))
        spans.append((f"[{word}] ", "accent") if tab == chosen else (f"{word} ", "label"))
    line = merged(spans)
    rule = max(0, width - sum(len(text) for text, _ in line))
    return glyphs.finish(fit_line(merged((*line, ("─" * rule, "dim"))), width))
