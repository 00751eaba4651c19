"""What ``cockpit fix --plain`` prints: states, offers and previews as lines of text.

Commands, diffs and source are never wrapped: they are to be copied. All else follows the width of
the terminal.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from cockpit.model.flow import Choose, Done, FlowState, Found
from cockpit.model.remedy import BY_HAND, Preview
from cockpit.model.text import clean

NARROWEST, WIDEST = 40, 100
"""Longer lines are hard to read, whatever the terminal has."""
MARKS = {"ok": "ok", "bad": "!!", "note": "-", "unknown": "?"}
OUTPUT_LINES = 12
"""Of what failed: its last ones."""
LOOK_LINES = 40
"""Of a profile, say: its first ones, for the costliest come first."""
_DOES = {
    "command": "runs a command",
    "diff": "changes a file",
    "signal": "ends processes",
    "operation": "acts inside the run",
    "text": "opens your editor",
}


def is_told(preview: Preview) -> bool:
    """An instruction for the user: there is nothing that could be run."""
    return preview.form == "text" and preview.terminal is None


def head(state: FlowState) -> str:
    """``Out of memory · train.py:156``."""
    return " · ".join(clean(one) for one in (state.title, state.subject) if one)


def found_line(found: Found) -> str:
    """One thing that was looked at."""
    return "\n".join(
        wrapped(f"  {MARKS[found.mark]:<4}{found.what}  {found.sentence}", indent="      ")
    )


def done_lines(row: Done) -> Iterator[str]:
    """How a fix came out, with the numbers; what it printed, where that was wanted or it did not
    help; and where its file or its record is."""
    yield ""
    yield from wrapped(f"  [{row.verdict}] {row.title}", indent="    ")
    yield from wrapped(f"    {row.sentence}", indent="    ")
    for one in row.compared:
        yield from wrapped(f"    {one.what}: {one.before} -> {one.after}", indent="      ")
    shown = row.output[:LOOK_LINES] if row.is_look and row.ok else ()
    if not row.ok or row.verified is False:
        shown = row.output[-OUTPUT_LINES:]
    for line in shown:
        yield f"    | {clean(line)}"
    told = (row.title, row.sentence, *row.lines)
    if row.path is not None and not any(row.path in one for one in told):
        yield f"    Kept in {clean(row.path)}"


def options_of(prompt: Choose) -> list[int]:
    """Numbers (from 0) of those that can be chosen."""
    return [n for n, one in enumerate(prompt.options) if one.refusal is None and not is_told(one)]


def option_lines(number: int, preview: Preview) -> Iterator[str]:
    """An offer: title, what kind of change it is, and why just this."""
    does = "needs an administrator" if preview.risk == "admin" else _DOES[preview.form]
    does = "changes nothing" if preview.risk == "safe" else does
    yield from wrapped(f"  {number}. {preview.title}  [{does}]", indent="     ")
    if preview.because:
        yield from wrapped(f"     {preview.because}", indent="     ")


def aside_lines(prompt: Choose) -> Iterator[str]:
    """What cannot be chosen: fixes that are refused now, and what only the user can do."""
    refused = [one for one in prompt.options if one.refusal is not None and not is_told(one)]
    told = [one for one in prompt.options if is_told(one)]
    if refused:
        yield "\nNot possible now:"
        for why in dict.fromkeys(one.refusal for one in refused):  # one reason may stop several
            titles = "; ".join(one.title for one in refused if one.refusal == why)
            yield from wrapped(f"  - {titles}: {why}", indent="    ")
    if told:
        yield "\nBy hand (the cockpit cannot do these):"
        for one in told:
            yield from told_lines(one)


def told_lines(preview: Preview) -> Iterator[str]:
    """Title, why, and the words to type or write."""
    yield from wrapped(f"  - {preview.title}", indent="    ")
    if preview.because:
        yield from wrapped(f"    {preview.because}", indent="    ")
    for line in preview.lines:
        yield f"      {clean(line)}".rstrip()
    if preview.refusal not in (None, BY_HAND):
        yield from wrapped(f"    {preview.refusal}", indent="    ")


def preview_lines(preview: Preview, indent: str = "  ") -> Iterator[str]:
    """Exactly what would run, what is lost, how it is seen to help, how it is taken back."""
    for line in preview.lines:
        if preview.form in ("signal", "operation"):
            yield from wrapped(f"{indent}  {line}", indent=f"{indent}    ")
        else:
            yield f"{indent}  {clean(line)}".rstrip()
    rows = (
        ("You lose", preview.loses),
        ("Afterwards", preview.verify),
        ("Undo", preview.undo),
    )
    for what, text in rows:
        if text:
            yield from wrapped(f"{indent}{what}: {text}", indent=indent)


def all_lines(prompt: Choose, readonly: bool) -> Iterator[str]:
    """Every fix with its preview, for --dry-run and --readonly."""
    shown = [one for one in prompt.options if not is_told(one)]
    if shown:
        yield "\nWhat would run, each only after a confirmation:"
    for number, one in enumerate(shown, 1):
        yield from option_lines(number, one)
        if one.refusal is not None and not readonly:
            yield from wrapped(f"     Not possible now: {one.refusal}", indent="     ")
        yield from preview_lines(one, "     ")
    if any(is_told(one) for one in prompt.options):
        told = Choose(options=tuple(one for one in prompt.options if is_told(one)))
        yield from aside_lines(told)


def undo_lines(title: str, done: Sequence[Done]) -> Iterator[str]:
    """What exactly was done that would be taken back."""
    for row in done:
        if row.undo is not None and row.title == title:
            yield f"\nTaken back would be: {clean(title)}"
            yield from (f"    {clean(line)}".rstrip() for line in row.lines)


def wrapped(text: str, *, indent: str) -> list[str]:
    """Clean, and as wide as the terminal; 80 where that is not known."""
    columns = shutil.get_terminal_size((80, 24)).columns
    width = min(max(columns, NARROWEST), WIDEST)
    lines = textwrap.wrap(
        clean(text),
        width - 1,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,  # a path is to be copied
    )
    return lines or [""]
