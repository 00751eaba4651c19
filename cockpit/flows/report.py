"""The report of a troubleshooting session, as Markdown for a ticket: seen, done, how it came out.

Secrets are masked; names and paths stay, as the reader of a ticket needs them. Text from outside
cannot become markup: no link, no mention, no picture that a tracker would load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cockpit.model.flow import Done, Found
from cockpit.model.secret import HIDDEN, hide, hide_lines, is_secret_name
from cockpit.model.text import clean

MOST_LINES = 40
"""Of one quotation: a ticket is read by people."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!@])")
_HIDDEN = _MARKUP.sub(r"\\\1", HIDDEN)
_MARKS = {"ok": "well", "bad": "not well", "note": "noted", "unknown": "not known"}


def markdown(
    title: str,
    subject: str,
    seen: Sequence[Found],
    done: Sequence[Done],
    outcome: str,
    environment: Mapping[str, str],
    *,
    seen_last: Sequence[Found] = (),
) -> str:
    """The whole report, line end included.

    ``seen``: before anything was done; ``seen_last``: afterwards, where something was.
    ``subject``: the run, such as ``pid 4711, train.py``; ``outcome``: a sentence; ``environment``:
    name → value, such as driver, GPU, torch, and variables that matter.
    """
    parts = [
        f"# {prose(title)}",
        f"**Run:** {prose(subject)}",
        f"**Outcome:** {prose(outcome)}",
        "## Seen",
        *_seen(seen),
        "## Done",
        *(_done(number, one) for number, one in enumerate(done, 1)),
        *(("## Seen afterwards", *_seen(seen_last)) if seen_last else ()),
        "## Environment",
        _environment(environment),
    ]
    if not seen:
        parts.insert(parts.index("## Seen") + 1, "Nothing out of the ordinary.")
    if not done:
        parts.insert(parts.index("## Done") + 1, "Nothing was changed.")
    return "\n\n".join(parts) + "\n"


def _seen(rows: Sequence[Found]) -> list[str]:
    return [f"- {prose(f'{one.what} {one.sentence} ({_MARKS[one.mark]})')}" for one in rows]


def prose(text: str) -> str:
    """A line of text without secrets, that Markdown shows as it is written."""
    return _MARKUP.sub(r"\\\1", hide(clean(text)))


def code(lines: Sequence[str], language: str = "text") -> str:
    """A quotation; its fence is longer than any run of backticks in it."""
    shown = [clean(line) for line in hide_lines(lines)]
    if len(shown) > MOST_LINES:
        left = len(shown) - MOST_LINES
        shown = [
            *shown[: MOST_LINES // 2],
            f"… {left} lines left out …",
            *shown[-MOST_LINES // 2 :],
        ]
    longest = max((len(run) for line in shown for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{language}", *shown, fence))


def _done(number: int, one: Done) -> str:
    parts = [f"### {number}. {prose(one.title)}"]
    if one.lines:
        parts.append(code(one.lines, "diff" if one.lines[0].startswith("--- ") else "text"))
    parts.append(f"Loses: {prose(one.loses or 'nothing')}")
    parts.append(f"**{one.verdict.capitalize()}:** {prose(one.sentence)}")
    if one.compared:
        rows = [f"| {prose(c.what)} | {prose(c.before)} | {prose(c.after)} |" for c in one.compared]
        parts.append("\n".join(("| | before | after |", "|---|---|---|", *rows)))
    if one.output:
        parts.append(code(one.output))
    if one.path is not None:
        parts.append(f"File: {prose(one.path)}")
    if one.undone:
        parts.append("**Taken back.**")
    return "\n\n".join(parts)


def _environment(environment: Mapping[str, str]) -> str:
    rows = [
        f"| {prose(name)} | {_HIDDEN if is_secret_name(name) else prose(value)} |"
        for name, value in environment.items()
    ]
    return "\n".join(("| | |", "|---|---|", *rows)) if rows else "Not known."
