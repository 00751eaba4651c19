"""The help page: keys (from the bindings), the filter language, and what the signs mean."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.filter import EXAMPLES
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, pad, width_of, wrapped
from cockpit.tui.render.facts import column_width, in_columns
from cockpit.tui.render.glyphs import Glyphs

_LEAST = 62
"""Cells of a column: below that, explanations turn into towers."""

KeyGroup = tuple[str, Sequence[tuple[str, str]]]
"""A heading, and (key, what it does) pairs."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("!", "needs a look: a stray holder, or what a finding names"),
    ("!!", "the same, and graver: an error, not a warning"),
    ("a", "attached: the cockpit can ask this run"),
    ("•", "tagged with space: x works on all tagged ones"),
    ("–", "could not be read; the page of the GPU or process says why"),
    ("dim", "idle, old or secondary"),
)

REMARKS: tuple[tuple[str, str], ...] = (
    ("heat", "slowed down because it is too hot"),
    ("power brake", "slowed down because the power supply asks for it"),
    ("cap", "at its power limit: normal under full load"),
    ("limit 500 W", "somebody lowered the power limit"),
    ("stale 12s", "the driver does not answer: values are that old"),
    ("lost", "the driver cannot reach the GPU any more"),
    ("ECC 2", "memory errors that could not be corrected"),
    ("remap", "memory rows wait for a reset to be replaced"),
    ("stray 38G", "memory held by a process that nobody waits for"),
    ("PCIe x4", "a link below its best while the GPU works"),
    ("Xid 79", "the driver reported this error in the last ten minutes"),
    ("full", "more than 97 % of the memory is in use"),
)
"""The words behind a GPU row."""

COLUMNS: tuple[tuple[str, str], ...] = (
    ("UTIL", "share of time in which any kernel ran: 100 is not full"),
    ("SM%", "of a GPU: share of SM cycles with work; of a process: its share"),
    ("TC%", "share of cycles in which tensor cores worked"),
    ("OCC", "warps on the SMs, of the most possible"),
    ("DRAM", "share of cycles in which memory moved data"),
    ("MEM%", "share of time in which memory was read or written"),
    ("mem", "temperature of the memory, °C"),
    ("PCI, NVL", "bytes a second in and out, decimal units"),
    ("CPU%", "of one core"),
)


def help_lines(groups: Sequence[KeyGroup], width: int, glyphs: Glyphs) -> list[Line]:
    """All of it in one to three columns."""
    each = column_width(width, least=_LEAST)
    blocks = [_block(title, pairs, each, "accent") for title, pairs in groups if pairs]
    blocks.append(_block("Filter ( / )", EXAMPLES, each, "accent"))
    blocks.append(_block("Signs", SIGNS, each, "strong"))
    blocks.append(_block("Behind a GPU", REMARKS, each, "strong"))
    blocks.append(_block("Columns", COLUMNS, each, "strong"))
    return [
        glyphs.finish(fit_line(line, width)) for line in in_columns(blocks, width, least=_LEAST)
    ]


def _block(title: str, pairs: Sequence[tuple[str, str]], width: int, role: Role) -> list[Line]:
    left = min(26, max((width_of(key) for key, _ in pairs), default=0))
    lines: list[Line] = [((f" {foreign(title)}", "title"),)]
    for key, words in pairs:
        lines += _pair(foreign(key), foreign(words), left, width, role)
    return lines


def _pair(key: str, words: str, left: int, width: int, role: Role) -> list[Line]:
    texts = wrapped(words, max(8, width - left - 5))
    first: Line = ((f"  {pad(key, left)}  ", role), (texts[0], ""))
    return [first, *(((" " * (left + 4), ""), (text, "")) for text in texts[1:])]
