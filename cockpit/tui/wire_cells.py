"""Strips as cells: a line is two strings of one length, its characters and its pens.

A pen is a number for one look (attributes, colours, link), kept as ``chr(number)``, so comparing
lines is a memcmp and finding the changed cells is one pass in C. A wide character is its lead and
``TAIL``; a cluster of several code points (combining marks, joined emoji) is one private code.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes
from rich.color import Color, ColorSystem
from rich.style import Style
from textual.strip import Strip

TAIL = "\0"
"""The second cell of a wide character; never text, since control characters are dropped."""
CLUSTERS_FROM = "\U000f0000"
"""From here on a character stands for a cluster (real ones up there become clusters too)."""

Cells = tuple[str, str]
"""(characters, pens) of a line or a part of one."""

_NARROW = frozenset(
    chr(code)
    for first, last in (
        (0x20, 0x7E), (0xA0, 0xAC), (0xAE, 0x2FF), (0x370, 0x482), (0x2010, 0x2027),
        (0x2190, 0x21FF), (0x2500, 0x25FC), (0x2800, 0x28FF),
    )
    for code in range(first, last + 1)
    if cell_len(chr(code)) == 1
)  # fmt: skip
"""Characters of one cell that join with nothing: text of these needs no look at each one."""

# The zero-width joiner is left in: emoji are made of it. Variation selectors are printable.
_HARMFUL = re.compile(
    "[\0-\x1f\x7f-\x9f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

_ATTRIBUTES = (
    ("bold", "1", "22"), ("dim", "2", "22"), ("italic", "3", "23"), ("underline", "4", "24"),
    ("blink", "5", "25"), ("blink2", "6", "25"), ("reverse", "7", "27"), ("conceal", "8", "28"),
    ("strike", "9", "29"), ("underline2", "21", "24"), ("frame", "51", "54"),
    ("encircle", "52", "54"), ("overline", "53", "55"),
)  # fmt: skip
_OFF = {on: off for _, on, off in _ATTRIBUTES}
_SEEN_ON_BLANKS = {"4", "5", "6", "7", "9", "21", "51", "52", "53"}
"""Attributes under which a blank shows its foreground."""


class Look(NamedTuple):
    """What a terminal has to be told to draw like this; empty strings are its defaults."""

    attributes: frozenset[str] = frozenset()
    foreground: str = ""
    background: str = ""
    link: str = ""

    def sgr(self) -> list[str]:
        """Parameters that set this look after a reset."""
        colours = [code for code in (self.foreground, self.background) if code]
        return [*sorted(self.attributes, key=int), *colours]


class Pens:
    """Numbers for looks, and the shortest way from one to another.

    ``colour`` False leaves attributes only (NO_COLOR).
    """

    def __init__(self, system: ColorSystem, *, colour: bool = True) -> None:
        self.system = system
        self.colour = colour
        self.plain = chr(0)
        """The pen after ``ESC [ m``."""
        self._looks: list[Look] = [Look()]
        self._numbers: dict[Look, str] = {Look(): self.plain}
        self._of_style: dict[Style | None, str] = {None: self.plain}
        self._blanks: dict[str, str] = {}
        self._changes: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._looks)

    def of(self, style: Style | None) -> str:
        """The pen of a rich style; meta does not count."""
        pen = self._of_style.get(style)
        if pen is None:
            if len(self._of_style) > 8192:  # meta makes styles without end
                self._of_style.clear()
            pen = self._of_style[style] = self._number(self._look(style or Style()))
        return pen

    def blank(self, pen: str) -> str:
        """The pen that draws a blank just like this one does, without a foreground it hides."""
        blank = self._blanks.get(pen)
        if blank is None:
            look = self._looks[ord(pen)]
            if not look.attributes & _SEEN_ON_BLANKS:
                look = Look(background=look.background, link=look.link)
            blank = self._blanks[pen] = self._number(look)
        return blank

    def change(self, old: str, new: str) -> str:
        """What brings the terminal from one pen to the other."""
        change = self._changes.get((old, new))
        if change is None:
            change = _change(self._looks[ord(old)], self._looks[ord(new)])
            self._changes[old, new] = change
        return change

    def _number(self, look: Look) -> str:
        pen = self._numbers.get(look)
        if pen is None:
            pen = self._numbers[look] = chr(len(self._looks))
            self._looks.append(look)
        return pen

    def _look(self, style: Style) -> Look:
        return Look(
            frozenset(on for name, on, _ in _ATTRIBUTES if getattr(style, name)),
            self._code(style.color, foreground=True),
            self._code(style.bgcolor, foreground=False),
            _HARMFUL.sub("", style.link or ""),
        )

    def _code(self, colour: Color | None, *, foreground: bool) -> str:
        if colour is None or colour.is_default or not self.colour:
            return ""
        return ";".join(colour.downgrade(self.system).get_ansi_codes(foreground))


def _change(old: Look, new: Look) -> str:
    """The shorter of reset-and-set and only-what-differs."""
    reset = "\x1b[" + ";".join(["0", *new.sgr()] if new.sgr() else []) + "m"
    differs = _differences(old, new)
    sgr = "\x1b[" + ";".join(differs) + "m" if differs else ""
    link = f"\x1b]8;;{new.link}\x1b\\" if old.link != new.link else ""
    return min(sgr, reset, key=len) + link


def _differences(old: Look, new: Look) -> list[str]:
    off = {_OFF[on] for on in old.attributes - new.attributes}
    left = {on for on in old.attributes if _OFF[on] not in off}  # 22 ends bold and dim together
    codes = [*sorted(off, key=int), *sorted(new.attributes - left, key=int)]
    if old.foreground != new.foreground:
        codes.append(new.foreground or "39")
    if old.background != new.background:
        codes.append(new.background or "49")
    return codes


class CellReader:
    """Turns strips into cells, once each: entries are kept by identity with the strip."""

    def __init__(self, pens: Pens) -> None:
        self.pens = pens
        self._kept: dict[int, tuple[Strip, Cells]] = {}
        self._clusters: dict[str, str] = {}
        self._texts: list[str] = []

    def cells(self, strip: Strip) -> Cells:
        """The strip's cells: printable characters only, a pen each."""
        kept = self._kept.get(id(strip))
        if kept is not None:
            return kept[1]
        if len(self._kept) > 2048:
            self._kept.clear()
        cells = self._read(strip)
        self._kept[id(strip)] = (strip, cells)
        return cells

    def cluster(self, code: str) -> str:
        """The code points that a private code stands for."""
        return self._texts[ord(code) - ord(CLUSTERS_FROM)]

    def _read(self, strip: Strip) -> Cells:
        characters: list[str] = []
        pens: list[str] = []
        for text, style, control in strip:
            if control or not text:
                continue
            if not _NARROW.issuperset(text):
                text = self._split(text)
            characters.append(text)
            pens.append(self._pens_of(text, self.pens.of(style)))
        return "".join(characters), "".join(pens)

    def _pens_of(self, text: str, pen: str) -> str:
        blank = self.pens.blank(pen)
        if blank == pen or " " not in text:
            return pen * len(text)
        return "".join([blank if character == " " else pen for character in text])

    def _split(self, text: str) -> str:
        """One character a cell: wide ones get their tail, clusters their code."""
        parts: list[str] = []
        for start, end, width in split_graphemes(text)[0]:
            cluster = _HARMFUL.sub("", text[start:end])
            if not width:
                continue  # nothing to stand on: a control or a mark without a base
            lead = self._code(cluster) if cluster else "\ufffd"
            parts.append(lead + TAIL if width == 2 else lead)
        return "".join(parts)

    def _code(self, cluster: str) -> str:
        if len(cluster) == 1 and cluster < CLUSTERS_FROM:
            return cluster
        code = self._clusters.get(cluster)
        if code is None:
            if len(self._texts) >= 0x10000:
                return "\ufffd"  # only text made to do this has so many different clusters
            code = self._clusters[cluster] = chr(ord(CLUSTERS_FROM) + len(self._texts))
            self._texts.append(cluster)
        return code
