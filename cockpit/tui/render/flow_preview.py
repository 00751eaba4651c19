"""A fix before it runs: exact commands or diff, what is lost, how it is seen to have helped.

What runs is never cropped and its blanks stay: a long line is folded. Everything here comes from
outside and is cleaned.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cockpit.model.flow import Choose
from cockpit.model.remedy import BY_HAND, Preview, TerminalCommand
from cockpit.tui.line import Line, Role, Row
from cockpit.tui.render.cells import fit_line, foreign, merged, pad, width_of, wrapped
from cockpit.tui.render.glyphs import Glyphs

WIDEST_TITLE = 72
"""Cells of the titles of choices: farther away the eye would lose the row of its class."""
LONG = 8
"""Lines of a command or diff above which what is lost stands before it: it must not be missed."""
_TAB = 4
_GOES_ON = "└   "
"""Before the rest of a folded line of a diff: blanks alone would make a context line of it."""
_DIFF: tuple[tuple[str, Role], ...] = (
    ("+++", "label"),
    ("---", "label"),
    ("@@", "accent"),
    ("+", "good"),
    ("-", "removed"),
)
_COMMAND: tuple[tuple[str, Role], ...] = (
    ("+ ", "good"),
    ("- ", "removed"),
    ("# ", "dim"),
    ("", "strong"),
)


def is_by_hand(preview: Preview) -> bool:
    """Only told: the user does it, and can copy how."""
    return preview.refusal == BY_HAND


def risk_word(preview: Preview) -> str:
    """The class of the safety table in a word or two."""
    if is_by_hand(preview):
        return "by hand"
    if preview.refusal is not None:
        return "cannot run"
    if preview.risk == "admin":
        return "needs sudo"
    if preview.typed is not None:
        return "asks, typed"
    return "asks once" if preview.risk == "confirm" else "safe"


def title_width(choose: Choose, width: int) -> int:
    """Cells that a title has in the list of choices."""
    risk = max((width_of(risk_word(one)) for one in choose.options), default=0)
    longest = max((width_of(foreign(one.title)) for one in choose.options), default=0)
    return max(8, min(width - risk - 7, max(WIDEST_TITLE, longest)))


def option_rows(choose: Choose, width: int, glyphs: Glyphs) -> list[Row]:
    """Number, title, and beside the titles the class; the reason stands in the preview below."""
    options = choose.options
    risk = max((width_of(risk_word(one)) for one in options), default=0)
    title = title_width(choose, width)
    rows = []
    for number, one in enumerate(options):
        can = one.refusal is None or is_by_hand(one)
        spans: Line = (
            (f" {number + 1}  ", "accent" if can else "dim"),
            (pad(foreign(one.title), title), "" if can else "dim"),
            (f"  {pad(risk_word(one), risk, 'right')}", "label" if can else "dim"),
        )
        rows.append(Row(number, glyphs.finish(fit_line(merged(spans), width))))
    return rows


def text_rows(texts: Sequence[str], width: int, glyphs: Glyphs) -> list[Row]:
    """Numbered answers to a question."""
    rows = []
    for number, text in enumerate(texts):
        # A row of the list is one line; nine digits choose, the others the cursor.
        digit = str(number + 1) if number < 9 else " "
        line: Line = ((f" {digit}  ", "accent"), (foreign(text), ""))
        rows.append(Row(number, glyphs.finish(fit_line(line, width))))
    return rows


def preview_lines(
    preview: Preview, width: int, glyphs: Glyphs, *, headline: bool = False
) -> list[Line]:
    """All of it; with ``headline`` the title stands first."""
    lines: list[Line] = []
    if headline:
        lines += [((part, "strong"),) for part in wrapped(foreign(preview.title), width - 2)]
    if preview.because:
        lines += [((part, "dim"),) for part in wrapped(foreign(preview.because), width - 2)]
    body = body_lines(preview, width - 4)
    inner: list[Line] = [(("  ", ""), *line) for line in body]
    facts = _facts(preview, width - 2, glyphs)
    first, second = (facts, inner) if len(inner) > LONG else (inner, facts)
    lines += [*first, *([()] if first and second else []), *second]
    return [glyphs.finish(fit_line(((" ", ""), *line), width)) for line in lines]


def body_lines(preview: Preview, width: int) -> list[Line]:
    """What exactly runs, or changes: folded, not cropped."""
    is_command, is_diff = preview.form == "command", preview.form == "diff"
    table = _DIFF if is_diff else _COMMAND if is_command else (("", ""),)
    lines: list[Line] = []
    for raw in preview.lines:
        # Blanks for a tab in a source; in a command ^I says that it is one.
        text = raw if is_command else raw.expandtabs(_TAB)
        role: Role = next((role for start, role in table if text.startswith(start)), "")
        sign = "$ " if is_command and role == "strong" else ""
        parts = folded(sign + foreign(text), width, _GOES_ON if is_diff else "    ")
        lines += [((part, role),) for part in parts]
    return lines


def folded(text: str, width: int, before: str = "    ") -> list[str]:
    """The text in lines of at most ``width`` cells: every blank stays; ``before`` what follows."""
    width = max(8, width)
    lines = []
    indent = ""
    while width_of(text) > width - len(indent):
        cut = _cut(text, width - len(indent))
        lines.append(indent + text[:cut])
        text, indent = text[cut:], before
    return [*lines, indent + text]


def _cut(text: str, width: int) -> int:
    """Where to break: after the last blank of the second half, else at the edge."""
    end, used = 0, 0
    for char in text:
        used += width_of(char)
        if used > width:
            break
        end += 1
    blank = text.rfind(" ", end // 2, end)
    return max(1, blank + 1 if blank >= 0 else end)


def _facts(preview: Preview, width: int, glyphs: Glyphs) -> list[Line]:
    """What is lost, how it is verified, how it is taken back; or why it cannot be run."""
    if is_by_hand(preview):
        words = "it is for you to do, the cockpit cannot."
        copied = " Enter copies these lines." if preview.lines else ""
        return labelled("By hand: ", words + copied, width)
    if preview.refusal is not None:
        return labelled(f"{glyphs.no} ", foreign(preview.refusal), width, "error")
    rows = [
        ("You lose: ", preview.loses),
        ("Afterwards: ", preview.verify),
        ("Undo: ", preview.undo or "it cannot be taken back."),
    ]
    lines: list[Line] = []
    for label, words in rows:
        if words:
            lines += labelled(label, foreign(words), width)
    return lines


def labelled(label: str, words: str, width: int, role: Role = "label") -> list[Line]:
    """A label, and its words beside it on as many lines as they need."""
    left = width_of(label)
    parts = wrapped(words, max(8, width - left))
    first: Line = ((label, role), (parts[0], ""))
    return [first, *(((" " * left, ""), (part, "")) for part in parts[1:])]


def plain_text(lines: Sequence[str]) -> str:
    """For the clipboard or a file: as it is, but nothing that a terminal would obey when pasted."""
    kept = ("\t".join(foreign(part) for part in line.split("\t")) for line in lines)
    return "".join(f"{line}\n" for line in kept)


def command_text(command: TerminalCommand) -> str:
    """``cd DIR && argv`` as a shell would take it. Variables are left out: some are secrets."""
    words = shlex.join(command.argv)
    return f"cd {shlex.quote(command.cwd)} && {words}" if command.cwd else words


def command_of(preview: Preview) -> str:
    """The command line of a run that is started again, without what the cockpit puts around it.

    ``cd DIR && cockpit run --name N -- CMD`` with notes and differences on further lines.
    """
    lines = [one for one in preview.lines if not one.startswith(("+ ", "- ", "# "))]
    line = next((one for one in lines if " -- " in one), lines[-1] if lines else "")
    return line.partition(" -- ")[2] if "cockpit run " in line.partition(" -- ")[0] else line
