"""The findings about one GPU or one process, in a sentence each, for the top of its page."""

from __future__ import annotations

from cockpit.model.finding_subject import gpus_of, pids_of
from cockpit.model.snapshot import Snapshot
from cockpit.tui.line import Line
from cockpit.tui.render.finding_words import ROLES, bare_title, worst_first
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.prose import paragraph


def mentions(
    snapshot: Snapshot,
    width: int,
    glyphs: Glyphs,
    *,
    gpu: int | None = None,
    pid: int | None = None,
) -> list[Line]:
    """Worst first, wrapped, a blank line below them; nothing where no finding names it."""
    lines: list[Line] = []
    for one in worst_first(snapshot.findings):
        named = gpus_of(one, snapshot.processes) if gpu is not None else pids_of(one)
        if (gpu if gpu is not None else pid) in named:
            sign = "·" if one.severity == "info" else "!"
            lines += paragraph(f"{sign} {bare_title(one)}", width, ROLES[one.severity])
    return [*(glyphs.finish(line) for line in lines), ()] if lines else []
