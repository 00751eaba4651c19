"""``cockpit doctor``: the machine and one job's Python, step by step, with a small success."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator

import msgspec

from cockpit.commands.ask import answer, first_tick, open_link, remove_log, tell
from cockpit.engine.link import Link
from cockpit.engine.protocol import AskCheckup
from cockpit.errors import CockpitError
from cockpit.model.checkup import Check, CheckStatus, Checkup, CheckupRequest
from cockpit.model.finding import Fix
from cockpit.model.text import clean, words
from cockpit.settings import Settings

PATIENCE_S = 300.0
"""Longer than all time limits of the engine's children together."""
FIRST_TICK_S = 15.0
"""A GPU that hangs keeps a complete reading waiting; it is what the doctor is asked about."""
WIDTH = 100
_MARKS: dict[CheckStatus, str] = {
    "pass": "ok",
    "warn": "warn",
    "fail": "FAIL",
    "not_applicable": "-",
}
_COLOURS: dict[CheckStatus, str] = {"pass": "32", "warn": "33", "fail": "1;31"}
"""SGR; the mark is a word, so that colour is never the only sign."""
_RISKS = {"safe": "", "confirm": "  [changes something]", "admin": "  [for the administrator]"}
_INDENT = " " * 25


def run(settings: Settings, *, json: bool, python: str | None, pid: int | None) -> int:
    """0 when no step failed, warnings or not; else 1. Raises what the engine refuses."""
    # --only would make entries of CUDA_VISIBLE_DEVICES look as if they named no GPU.
    link = open_link(msgspec.structs.replace(settings, only=None), complete=True)
    try:
        first_tick(link, FIRST_TICK_S)
        found = _ask(link, CheckupRequest(pid=pid, python=python))
    finally:
        link.close()
        remove_log(link)
    if json:
        print(msgspec.json.encode(found).decode(), flush=True)
    else:
        colour = settings.color and sys.stdout.isatty()
        text = "\n".join(lines(found, colour=colour))
        print(text.encode("ascii", "replace").decode() if settings.ascii else text, flush=True)
    return 1 if any(check.status == "fail" for check in found.checks) else 0


def _ask(link: Link, request: CheckupRequest) -> Checkup:
    id_ = link.next_id()
    found = answer(link, AskCheckup(id=id_, request=request), id_, PATIENCE_S, _progress).checkup
    if found is None:
        raise CockpitError("The engine answered without a checkup.")
    return found


def _progress(sentence: str) -> None:
    """For somebody who waits; a file of diagnostics needs none of it."""
    if sys.stderr.isatty():
        tell(f"... {clean(sentence)}")


def lines(found: Checkup, *, colour: bool = False) -> Iterator[str]:
    """A line a step; beneath those that did not pass the evidence and what to do."""
    yield f"Examined: {clean(found.subject.sentence)}"
    yield ""
    told: set[Fix] = set()
    for check in found.checks:
        yield from _step(check, colour, told)
    yield ""
    yield _sum(found)


def _step(check: Check, colour: bool, told: set[Fix]) -> Iterator[str]:
    """``told``: what was printed already; two steps may have one cause."""
    mark = f"{_MARKS[check.status]:<5}"
    if colour and check.status in _COLOURS:
        mark = f"\x1b[{_COLOURS[check.status]}m{mark}\x1b[0m"
    first, *rest = _wrap(check.sentence, "", "") or [""]
    yield f"{mark} {clean(check.title):<18} {first}".rstrip()
    yield from (_INDENT + line for line in rest)
    if check.status not in ("warn", "fail"):
        return
    for one in check.evidence:
        yield from (_INDENT + line for line in _wrap(f"{one.source}: {one.text}", "> ", "  "))
    for fix in check.fixes if check.status == "fail" else check.fixes[:1]:
        if fix not in told:
            told.add(fix)
            yield from _fix(fix)


def _fix(fix: Fix) -> Iterator[str]:
    """The value on a line of its own and unbroken: it is there to be copied."""
    yield f"{_INDENT}* {clean(fix.title)}{_RISKS[fix.risk]}"
    yield f"{_INDENT}    {clean(fix.value)}"


def _sum(found: Checkup) -> str:
    counts = Counter(check.status for check in found.checks)
    told = f"{counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed"
    if found.finding is None:
        return f"{told}."
    first = next(check for check in found.checks if check.status == "fail")
    cause = "" if found.finding.cause == "unknown" else f" ({words(found.finding.cause)})"
    return f"{told}. Begin with: {first.title}{cause}."


def _wrap(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        clean(text),
        WIDTH - len(_INDENT),
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
    )
