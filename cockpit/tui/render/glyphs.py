"""The signs that lines are drawn with: one set for UTF-8 terminals, one for the others.

Renderers write the signs of the first set; :meth:`Glyphs.finish` turns what an ASCII terminal
cannot show into something of the same width. What must look different there (bars, traces) is a
field of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cockpit.tui.line import Line
from cockpit.tui.render.cells import width_of

_ASCII = str.maketrans(
    dict(zip("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉▓▒░", "_.:-=+*#    ###%:.", strict=True))
    | dict(zip("–—…·•°×✓✗▲▼▸│├└─┄↑↓←→≤≥−∞Σ’“”", '--~|* x+x^v>|||--^v<><>-~S\'""', strict=True))
)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs; every sign is one cell wide."""

    full: str
    parts: str
    """Parts of a cell from thin to thick, without the full one; empty: whole cells only."""
    track: str
    """The empty part of a bar."""
    spark: str
    """Levels from low to high."""
    fills: str
    """Fillings of a bar with several shares, in their order."""
    braille: bool
    tree: tuple[str, str, str, str]
    """Branch, last branch, passing line, nothing."""
    up: str
    down: str
    yes: str
    no: str
    ascii_only: bool = False

    @staticmethod
    def unicode(braille: bool = True) -> Glyphs:
        """For UTF-8 terminals; ``braille=False`` for fonts without it (PuTTY)."""
        return UNICODE if braille else UNICODE_BLOCKS

    @staticmethod
    def ascii() -> Glyphs:
        """For every other terminal."""
        return ASCII

    def finish(self, line: Line) -> Line:
        """The line as this terminal can show it; its width stays."""
        if not self.ascii_only:
            return line
        return tuple((_plain(text), role) for text, role in line)

    def text(self, text: str) -> str:
        """:meth:`finish` for a text alone."""
        return _plain(text) if self.ascii_only else text


_PAUSE = re.compile(r'(?<=-- )…(?=")')
"""Not the end of a cut word: of "cockpit run -- ~" a shell would make something else."""


def _plain(text: str) -> str:
    if text.isascii():
        return text
    translated = _PAUSE.sub(".", text).translate(_ASCII)
    return "".join(c if c.isascii() else "?" * width_of(c) for c in translated)


_TREE = ("├ ", "└ ", "│ ", "  ")
UNICODE = Glyphs("█", "▏▎▍▌▋▊▉", "┄", "▁▂▃▄▅▆▇█", "█▓▒░", True, _TREE, "▲", "▼", "✓", "✗")
UNICODE_BLOCKS = Glyphs("█", "▏▎▍▌▋▊▉", "┄", "▁▂▃▄▅▆▇█", "█▓▒░", False, _TREE, "▲", "▼", "✓", "✗")
ASCII = Glyphs(
    full="#",
    parts="",
    track="-",
    spark="_.:-=+*#",
    fills="#%+:",
    braille=False,
    tree=("|-", "`-", "| ", "  "),
    up="^",
    down="v",
    yes="+",
    no="x",
    ascii_only=True,
)


def bar(share: float | None, width: int, glyphs: Glyphs) -> Line:
    """A share (0 to 1) as a bar of exactly ``width`` cells, in eighths of a cell where possible.

    Anything above nothing shows: 0.4 GiB of 140 is the context that somebody looks for.
    """
    if share is None:
        return ((" " * width, ""),)
    steps = len(glyphs.parts) + 1
    filled = round(min(1.0, max(0.0, share)) * width * steps)
    if share > 0.0 and not filled:
        filled = 1
    whole, part = divmod(filled, steps)
    text = glyphs.full * whole + (glyphs.parts[part - 1] if part else "")
    return ((text, "bar"), (glyphs.track * (width - len(text)), "dim"))
