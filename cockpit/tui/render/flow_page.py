"""The parts of the troubleshoot page for one state of a talk: story, choices, preview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cockpit.model.flow import Ask, Choose, Done, Ended, FlowState, InTerminal
from cockpit.model.remedy import Preview
from cockpit.tui.line import Line, Row
from cockpit.tui.render.cells import fit_line, foreign, width_of, wrapped
from cockpit.tui.render.flow_lines import (
    ended_lines,
    error_lines,
    has_tried,
    report_lines,
    said_lines,
    story_versions,
    whole_story,
)
from cockpit.tui.render.flow_preview import (
    body_lines,
    command_text,
    folded,
    labelled,
    option_rows,
    preview_lines,
    text_rows,
    title_width,
)
from cockpit.tui.render.glyphs import Glyphs

Mode = Literal["busy", "failed", "ask", "choose", "edit", "undo", "confirm", "terminal", "ended"]
Whole = Literal["preview", "found", "report"]
"""What may take the whole page."""

LEAST_PREVIEW = 7
"""Lines of a preview beside which the story is shortened no further."""
BESIDE_CHOICES = 10
"""Lines of a preview that are wanted beside the choices: a command and what is lost by it."""
OF_WORTH = 4
"""Versions of the story in which everything that is not ok has a line."""
_MOST_RUNNING = 4
"""Lines of what runs above its progress."""


@dataclass(frozen=True)
class FlowPage:
    """Made once for a state; the pane below the choices is made for the one under the cursor."""

    header: Line | None = None
    """The question above the choices."""
    rows: tuple[Row, ...] = ()
    head: Line | None = None
    """What stands above the preview and does not scroll."""
    panes: tuple[list[Line], ...] = ()
    """What stands below, for each choice; one where nothing is chosen."""
    width: int = 80
    glyphs: Glyphs = field(default_factory=Glyphs.unicode)
    state: FlowState | None = None
    asks_for_all: bool = True
    """The pane has to be seen whole before it is agreed to."""
    grows: bool = False
    """The pane is progress: the story above it does not make way for each line."""

    def preview(self, place: int, error: str | None) -> list[Line]:
        """The pane for this choice; below an error where there is one."""
        pane = list(self.panes[min(place, len(self.panes) - 1)]) if self.panes else []
        if error is None:
            return pane
        return [*error_lines(error, self.width, self.glyphs), *([()] if pane else []), *pane]

    def story(self, room: int, pane: Sequence[Line]) -> list[Line]:
        """The longest version that leaves the preview whole, else a part of it that scrolls."""
        if self.state is None:
            return []
        versions = list(story_versions(self.state, self.width, self.glyphs))
        if not versions[0]:
            return [()]  # nothing was found: a blank line all the same
        longest = max([len(pane), *map(len, self.panes)]) + (self.head is not None)
        for needed, shortest in self._wishes(longest, room):
            for lines in versions[:shortest]:
                if lines and len(lines) + 2 + needed <= room:
                    return [(), *lines, ()]
        return versions[-1] if len(versions[-1]) < room // 2 else []

    def _wishes(self, longest: int, room: int) -> list[tuple[int, int | None]]:
        """Lines for the preview, and how many versions of the story may be tried for that.

        Beside choices both are read; what is confirmed has to be seen whole, and where that takes
        several pages they are to be few: then the story gets a third of the lines.
        """
        least = (min(longest, LEAST_PREVIEW), None)
        if self.grows:
            return [(LEAST_PREVIEW, None)]
        if not self.asks_for_all:
            return [(longest, OF_WORTH), (min(longest, BESIDE_CHOICES), OF_WORTH), least]
        return [(longest, None), (min(longest, room * 2 // 3), None), least]


def flow_page(
    state: FlowState | None,
    mode: Mode,
    whole: Whole | None,
    width: int,
    glyphs: Glyphs,
    busy: Sequence[Line] = (),
) -> FlowPage:
    """All parts. ``whole`` says what takes the page instead of them; ``busy`` see busy_lines."""
    if whole is not None and state is not None:
        return _whole_page(state, whole, width, glyphs)
    if mode == "busy" or state is None:
        return FlowPage(
            panes=(list(busy),), width=width, glyphs=glyphs, state=state, grows=mode == "busy"
        )
    prompt = state.prompt
    if isinstance(prompt, Ask):
        return _asking(state, prompt, width, glyphs)
    if isinstance(prompt, Choose):
        maker = _undoing if mode == "undo" else _choosing
        return maker(state, prompt, width, glyphs)
    if isinstance(prompt, Ended):
        head, pane = None, ended_lines(prompt, has_tried(state.done), width, glyphs)
    elif isinstance(prompt, InTerminal):
        head = _head("In your terminal exactly this; the cockpit comes back afterwards", glyphs)
        pane = _terminal(prompt, width, glyphs)
    else:
        head, pane = _head("Run exactly this?", glyphs), _confirm(prompt.preview, width, glyphs)
    return FlowPage(head=head, panes=(pane,), width=width, glyphs=glyphs, state=state)


def _head(words: str, glyphs: Glyphs) -> Line:
    return glyphs.finish(((f" ▸ {words}", "title"),))


def _whole_page(state: FlowState, whole: Whole, width: int, glyphs: Glyphs) -> FlowPage:
    prompt = state.prompt
    if whole == "found":
        panes: tuple[list[Line], ...] = (whole_story(state, width, glyphs),)
    elif isinstance(prompt, Ended):
        panes = (report_lines(prompt.report, width, glyphs),)
    elif isinstance(prompt, Choose):
        panes = tuple(preview_lines(p, width, glyphs, headline=True) for p in prompt.options)
    elif isinstance(prompt, InTerminal):
        panes = (_terminal(prompt, width, glyphs),)
    else:
        panes = () if isinstance(prompt, Ask) else (_confirm(prompt.preview, width, glyphs),)
    return FlowPage(panes=panes, width=width, glyphs=glyphs, state=state)


def _asking(state: FlowState, ask: Ask, width: int, glyphs: Glyphs) -> FlowPage:
    """An answer that is longer than its row stands whole below."""
    panes: list[list[Line]] = []
    for text in ask.texts:
        parts = wrapped(foreign(text), max(8, width - 4))
        lines: list[Line] = [(), *(((f"   {part}", ""),) for part in parts)]
        is_long = width_of(foreign(text)) > width - 4
        panes.append([glyphs.finish(line) for line in lines] if is_long else [])
    header = glyphs.finish(fit_line(((f" ▸ {foreign(ask.question)}", "title"),), width))
    rows = tuple(text_rows(ask.texts, width, glyphs))
    return FlowPage(header, rows, None, tuple(panes), width, glyphs, state, asks_for_all=False)


def _choosing(state: FlowState, choose: Choose, width: int, glyphs: Glyphs) -> FlowPage:
    rows = tuple(option_rows(choose, width, glyphs))
    # A title that its row has no room for stands whole above its preview.
    cut = [title_width(choose, width) < width_of(foreign(one.title)) for one in choose.options]
    panes = tuple(
        [(), *preview_lines(one, width, glyphs, headline=is_cut)]
        for one, is_cut in zip(choose.options, cut, strict=True)
    )
    header = _head("What to do", glyphs)
    return FlowPage(header, rows, None, panes, width, glyphs, state, asks_for_all=False)


def _undoing(state: FlowState, choose: Choose, width: int, glyphs: Glyphs) -> FlowPage:
    """The titles, the last thing first; below each what ran then."""
    records = [one for one in reversed(state.done) if one.undo is not None]
    rows = tuple(text_rows(choose.undoable, width, glyphs))
    panes = tuple(_undo_pane(one, width, glyphs) for one in records[: len(rows)])
    header = _head("Take back which? Enter takes it back at once", glyphs)
    return FlowPage(header, rows, None, panes, width, glyphs, state)


def _undo_pane(done: Done, width: int, glyphs: Glyphs) -> list[Line]:
    lines: list[Line] = [(), ((" What was run, and is taken back:", "label"),)]
    for text in done.lines:
        lines += [((f"   {part}", ""),) for part in folded(foreign(text.expandtabs(4)), width - 4)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _confirm(preview: Preview, width: int, glyphs: Glyphs) -> list[Line]:
    lines = preview_lines(preview, width, glyphs, headline=True)
    if preview.typed is not None:
        words = foreign(preview.typed)
        lines += [(), *labelled(" Type ", f"{words} to go on.", width - 1, "accent")]
    return [glyphs.finish(line) for line in lines]


def _terminal(prompt: InTerminal, width: int, glyphs: Glyphs) -> list[Line]:
    """The command as it is started; of its variables the names: their values may be secrets."""
    exact = command_text(prompt.command)
    lines: list[Line] = []
    if exact not in prompt.preview.lines:
        parts = folded(f"$ {foreign(exact)}", width - 4)
        lines += [((f"   {part}", "strong"),) for part in parts]
    if prompt.command.environment:
        names = foreign(" ".join(sorted(prompt.command.environment)))
        lines += labelled("   with its own: ", names, width - 1)
    rest = preview_lines(prompt.preview, width, glyphs, headline=True)
    return [
        glyphs.finish(fit_line(line, width)) for line in [*lines, *([()] if lines else []), *rest]
    ]


def busy_lines(
    running: Preview | None, said: Sequence[str], width: int, glyphs: Glyphs
) -> list[Line]:
    """What runs, and what it says."""
    above: list[Line] = []
    if running is not None:
        body = body_lines(running, width - 6)
        above = [glyphs.finish((("   ", ""), *line)) for line in body[:_MOST_RUNNING]]
        above += [glyphs.finish((("   …", "dim"),))] if len(body) > _MOST_RUNNING else []
    return [*above, *([()] if above and said else []), *said_lines(said, width, glyphs)]
