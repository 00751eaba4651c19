"""The fixes of a finding in their order: what is run, its risk, why, what is lost, the check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpit.model.finding import Fix
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import foreign, width_of, wrapped
from cockpit.tui.render.prose import heading, labelled, paragraph

_LABEL = 7

RISKS: dict[str, tuple[str, Role]] = {
    "safe": ("safe", "good"),
    "confirm": ("asks first", "warn"),
    "admin": ("for the administrator", "error"),
}
"""Class of the design's safety table → its words."""

_KINDS: dict[str, str] = {
    "command": "run",
    "env": "set",
    "code-change": "change",
    "in-process": "call",
    "kill": "run",
    "hardware": "look at",
    "wait": "wait",
}
"""Kind of a fix → what is done with its value."""


def all_fixes(fixes: Sequence[Fix], width: int) -> list[Line]:
    """A check that all of them share stands once, below them."""
    if not fixes:
        return []
    checks = {fix.verify for fix in fixes}
    lines = [heading("What to do, in this order")]
    for number, fix in enumerate(fixes, 1):
        lines += one_fix(number, fix, width, with_verify=len(checks) > 1 or len(fixes) == 1)
    if len(checks) == 1 and len(fixes) > 1:
        words = f"It is repaired when: {foreign(checks.pop())}"
        lines += [(), *paragraph(words, width)]
    return lines


def fix_title(number: int, fix: Fix) -> Line:
    """In one line, for a list of those that come after the first."""
    words, role = RISKS[fix.risk]
    return ((f" {number:>2} ", "accent"), (foreign(fix.title), "strong"), (f"  [{words}]", role))


def one_fix(number: int, fix: Fix, width: int, *, with_verify: bool) -> Iterable[Line]:
    """All of it. ``with_verify=False`` where the check stands below several."""
    yield from _fix_head(number, fix, width)
    yield from labelled(_KINDS[fix.kind], foreign(fix.value), _LABEL, width, "accent")
    rows = [("why", fix.why)]
    if fix.loses:
        rows.append(("lost", fix.loses))
    if with_verify:
        rows.append(("check", fix.verify))
    for label, text in rows:
        if text:
            yield from labelled(label, foreign(text), _LABEL, width)


def _fix_head(number: int, fix: Fix, width: int) -> list[Line]:
    """A long title is wrapped, its risk stands behind it."""
    words, role = RISKS[fix.risk]
    risk = f"  [{words}]"
    parts = wrapped(foreign(fix.title), max(8, width - 5 - width_of(risk)))
    lines: list[Line] = [((f" {number:>2} ", "accent"), (parts[0], "strong"))]
    lines += [(("    ", ""), (part, "strong")) for part in parts[1:]]
    lines[-1] = (*lines[-1], (risk, role))
    return lines
