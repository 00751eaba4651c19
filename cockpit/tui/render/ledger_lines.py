"""Who holds the memory of one GPU: a bar, and lines that add up to the total they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.text import GIB, plural, size
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, merged, wrapped
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_words import command_words, hidden_words

_UNIT = GIB // 10
_BAR_ROLES: tuple[Role, ...] = ("bar", "bar2", "bar3", "bar4")
_MOST = 12
_SELDOM = ("unaccounted", "driver")
"""Shares that are left out where they round to nothing; a process is always named."""


class _Part(NamedTuple):
    """One share of the total."""

    name: str
    bytes: int
    sign: str
    role: Role
    words: str = ""


def ledger_lines(
    ledger: Ledger, processes: Sequence[Process], width: int, glyphs: Glyphs
) -> list[Line]:
    """The bar, one line a share, the sum, and why something is unaccounted for."""
    parts = _parts(ledger, {process.pid: process for process in processes}, glyphs)
    lines: list[Line] = [((" Memory", "strong"), (f"  {size(ledger.total_bytes)}", ""))]
    lines.append(_bar(parts, max(4, width - 2)))
    lines += _legend(parts, ledger.total_bytes)
    for explanation in ledger.explanations:
        texts = wrapped(foreign(explanation.sentence), max(8, width - 6))
        lines += [((f"   {'! ' if not n else '  '}{t}", "warn"),) for n, t in enumerate(texts)]
    for field, reason in ledger.gaps.items():
        words = f"   {foreign(field).removesuffix('_bytes').replace('_', ' ')}: counted as 0"
        lines.append(((f"{words}, {gap_words(reason)}", "dim"),))
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _parts(ledger: Ledger, known: Mapping[int, Process], glyphs: Glyphs) -> list[_Part]:
    parts = [_Part("driver", ledger.driver_reserved_bytes, glyphs.fills[3], "label", "reserved")]
    shares = sorted(ledger.processes, key=lambda share: -share.bytes)
    for number, share in enumerate(shares[:_MOST]):
        role = _BAR_ROLES[number % len(_BAR_ROLES)]
        sign = glyphs.fills[number % 3]
        parts.append(_Part(f"pid {share.pid}", share.bytes, sign, role, _words(share.pid, known)))
    rest = shares[_MOST:]
    if rest:
        held = sum(share.bytes for share in rest)
        parts.append(_Part("others", held, glyphs.fills[2], "bar", plural(len(rest), "process")))
    parts.append(_Part("unaccounted", ledger.unaccounted_bytes, "?", "warn", "no process's name"))
    parts.append(_Part("free", ledger.free_bytes, "·", "dim"))
    return parts


def _words(pid: int, known: Mapping[int, Process]) -> str:
    process = known.get(pid)
    if process is None:
        return "not in the table any more"
    if not process.visible and not process.command:
        return hidden_words(process)
    return f"{foreign(process.user or '–')}  {command_words(process)}"


def _bar(parts: Sequence[_Part], cells: int) -> Line:
    """Cells by largest remainder, so that the bar is as long as the total."""
    counts = shares_of(cells, [max(0, part.bytes) for part in parts])
    spans: list[tuple[str, Role]] = [(" ", "")]
    spans += [(part.sign * count, part.role) for part, count in zip(parts, counts, strict=True)]
    return merged(spans)


def _legend(parts: Sequence[_Part], total_bytes: int) -> list[Line]:
    """Tenths of a GiB that add up to the total as it is shown (largest remainder)."""
    total = round(total_bytes / _UNIT)
    tenths = rounded_to(total, [part.bytes / _UNIT for part in parts])
    lines = [
        _legend_line(part, count, total)
        for part, count in zip(parts, tenths, strict=True)
        if (count or part.name not in _SELDOM) and part.bytes
    ]
    return [*lines, ((f"   {'total':12}{total / 10:8.1f} GiB", "label"),)]


def _legend_line(part: _Part, tenths: int, total: int) -> Line:
    share = f"{100 * tenths / total:4.0f} %" if total else ""
    return merged(
        (
            (f" {part.sign} ", part.role),
            (f"{part.name:12}", "warn" if part.role == "warn" else ""),
            (f"{tenths / 10:8.1f} GiB{share}", ""),
            (f"  {part.words}", "dim"),
        )
    )


def shares_of(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` things given out by weight; they always add up to it."""
    whole = sum(weights)
    return rounded_to(total, [total * weight / whole for weight in weights]) if whole else []


def rounded_to(total: int, values: Sequence[float]) -> list[int]:
    """The values rounded so that they add up to ``total``; the largest remainders round up."""
    floors = [int(value // 1) for value in values]
    missing = total - sum(floors)
    order = sorted(range(len(values)), key=lambda n: floors[n] - values[n])
    step = 1 if missing > 0 else -1
    for turn in range(abs(missing) if values else 0):
        at = turn % len(order)
        floors[order[at] if step > 0 else order[-1 - at]] += step
    return floors
