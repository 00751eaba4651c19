"""One finding: what, why, on which evidence, what it is not, what to do in which order."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.finding import Evidence, Finding
from cockpit.model.finding_history import Known
from cockpit.model.finding_subject import gpus_of, pids_of
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import gib, words
from cockpit.tui.line import Line
from cockpit.tui.render.cells import crop, ends, fit_line, foreign, join, merged, width_of, wrapped
from cockpit.tui.render.fact_words import fact_words
from cockpit.tui.render.finding_fixes import all_fixes, fix_title, one_fix
from cockpit.tui.render.finding_rows import age_words
from cockpit.tui.render.finding_words import ROLES, bare_title
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_ranges import ranges
from cockpit.tui.render.process_words import command_words
from cockpit.tui.render.prose import heading, labelled, paragraph
from cockpit.tui.render.times import clock

_WIDEST = 130
"""Longer lines of prose are hard to read."""
_SOURCE = 32
_FACT = 22
_PLACED = ("gpu", "gpus", "pid", "pids", "holders", "kill", "severity")
"""Facts that stand at the top already, or in the fix."""
_MOST_EVIDENCE = 60
_NO_CAUSE = ("unknown", "benign", "recovered")


def finding_title(
    known: Known,
    place: str,
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    utc_offset_s: float = 0.0,
) -> Line:
    """Which one it is, what kind; since when at the right."""
    one = known.finding
    kind = f"  {foreign(one.flow)}"
    if one.cause not in _NO_CAUSE:
        kind += f" · {words(foreign(one.cause))}"
    left: Line = (
        (f" Finding {place}", "title"),
        (f"  {one.severity}", ROLES[one.severity]),
        (kind, "dim"),
    )
    if known.cleared_at is not None:
        right: Line = ((f" cleared at {clock(known.cleared_at, utc_offset_s)} ", "good"),)
    else:
        since = f" since {clock(known.since, utc_offset_s)}, {age_words(known, now_s)} "
        right = ((since, "dim"),)
    return glyphs.finish(ends(left, right, width))


def cleared_lines(known: Known, width: int, glyphs: Glyphs, utc_offset_s: float) -> list[Line]:
    """That it is over, above what it last said."""
    if known.cleared_at is None:
        return []
    at = clock(known.cleared_at, utc_offset_s)
    since = clock(known.since, utc_offset_s)
    words = f"Cleared at {at}, seen since {since}. Below is what it said last."
    lines = paragraph(f"{glyphs.yes} {words}", width, "good")
    return [glyphs.finish(line) for line in (*lines, ())]


def finding_page(finding: Finding, snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Everything, in the order in which it is read: wrapped, nothing is cropped."""
    width = min(width, _WIDEST)
    lines = [*_head(finding, snapshot, width)]
    for part in (
        _evidence(finding.evidence, width),
        _facts(finding, width),
        _not(finding, width),
        _also(finding, width),
        all_fixes(finding.fixes, width),
    ):
        if part:
            lines += [(), *part]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def finding_preview(finding: Finding, snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """What it is and what to do first, for below a list; evidence after it."""
    width = min(width, _WIDEST)
    lines = [*_head(finding, snapshot, width)]
    if finding.fixes:
        lines += [
            (),
            heading("What to do, in this order"),
            *one_fix(1, finding.fixes[0], width, with_verify=True),
        ]
        lines += [fix_title(n, fix) for n, fix in enumerate(finding.fixes[1:], 2)]
    if finding.evidence:
        lines += [(), *_evidence(finding.evidence, width)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _head(finding: Finding, snapshot: Snapshot, width: int) -> list[Line]:
    """Title, whom it is about, the explanation."""
    lines = paragraph(bare_title(finding), width, "strong")
    where = _where(finding, snapshot)
    lines += [fit_line(((" ", ""), *line), width) for line in where]
    if finding.explanation:
        lines += paragraph(foreign(finding.explanation), width)
    return lines


def _where(finding: Finding, snapshot: Snapshot) -> list[Line]:
    """GPUs and how sure it is; then a line a process, three at the most."""
    gpus = gpus_of(finding, snapshot.processes)
    there = {gpu.index for gpu in snapshot.gpus}
    parts: list[Line] = []
    if gpus:
        missing = [gpu for gpu in gpus if gpu not in there]
        words = f"{'GPU' if len(gpus) == 1 else 'GPUs'} {ranges(gpus)}"
        aside = f" ({ranges(missing)} not shown here)" if len(gpus) > 1 else " (not shown here)"
        parts.append(merged(((words, ""), (aside if missing else "", "dim"))))
    if finding.cause not in _NO_CAUSE:
        parts.append(((f"{finding.confidence:.0%} sure".replace("%", " %"), "dim"),))
    head = join(parts, " · ")
    return [*([head] if head else []), *_processes(finding, snapshot)]


def _processes(finding: Finding, snapshot: Snapshot) -> list[Line]:
    known = {process.pid: process for process in snapshot.processes}
    pids = pids_of(finding)
    lines: list[Line] = []
    for pid in pids[:3]:
        process = known.get(pid)
        if process is None:
            lines.append(((f"pid {pid}", ""), ("  holds no GPU memory here now", "dim")))
            continue
        user = f"  {foreign(process.user)}" if process.user else ""
        held = "" if process.vram_bytes is None else f"  {gib(process.vram_bytes)} GiB"
        lines.append(((f"pid {pid}{user}{held}", ""), (f"  {command_words(process)}", "dim")))
    if len(pids) > 3:
        rest = ", ".join(map(str, pids[3:40])) + (", …" if len(pids) > 40 else "")
        lines.append(((f"and pids {rest}", "dim"),))
    return lines


def _evidence(evidence: Sequence[Evidence], width: int) -> list[Line]:
    """Each with where it was read: that column is as wide as its longest word.

    Where that is more than a quarter of the page each place has a line of its own: cut, "output of
    pid 4712, line 9" would leave one number that could be either.
    """
    if not evidence:
        return []
    shown = evidence[:_MOST_EVIDENCE]
    sources = [_source(one) for one in shown]
    left = max(map(width_of, sources))
    lines = [heading("Evidence")]
    for source, one in zip(sources, shown, strict=True):
        if left <= min(_SOURCE, width // 4):
            lines += labelled(source, foreign(one.text), left, width)
        else:
            lines += [((f"   {part}", "dim"),) for part in wrapped(source, max(8, width - 4))]
            lines += [
                ((f"     {part}", ""),) for part in wrapped(foreign(one.text), max(8, width - 6))
            ]
    if len(evidence) > len(shown):
        lines.append(((f"   and {len(evidence) - len(shown)} more", "dim"),))
    return lines


def _source(one: Evidence) -> str:
    line = "" if one.line is None else f", line {one.line}"
    return foreign(one.source) + line


def _facts(finding: Finding, width: int) -> list[Line]:
    pairs = fact_words(finding.facts, _PLACED)
    if not pairs:
        return []
    left = min(_FACT, max(width_of(name) for name, _ in pairs))
    lines = [heading("Facts")]
    for name, value in pairs:
        lines += labelled(crop(name, left), value, left, width)
    return lines


def _not(finding: Finding, width: int) -> list[Line]:
    if not finding.not_:
        return []
    lines = [heading("It is not")]
    for sentence in finding.not_:
        lines += labelled("·", foreign(sentence), 1, width)
    return lines


def _also(finding: Finding, width: int) -> list[Line]:
    if not finding.also:
        return []
    left = min(_SOURCE, max(width_of(foreign(one.cause)) for one in finding.also))
    lines = [heading("It could also be")]
    for one in finding.also:
        lines += labelled(words(foreign(one.cause)), foreign(one.why), left, width)
    return lines
