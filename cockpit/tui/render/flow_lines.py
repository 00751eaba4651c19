"""A guided flow as lines: its title, what has been found, what was done and how it came out.

The story (found and done) comes in versions from whole to one line; the page takes the first that
leaves the question its room. Pure; all text is cleaned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpit.model.flow import Done, Ended, FlowState, Found
from cockpit.model.process import Process
from cockpit.model.remedy import Compared
from cockpit.model.text import plural
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import crop, ends, fit_line, foreign, merged, pad, width_of, wrapped
from cockpit.tui.render.flow_preview import folded, labelled
from cockpit.tui.render.glyphs import Glyphs

MOST_OF_FIRST = 3
"""Lines that the first bad check keeps while the others are cut to one each."""
_WIDEST_LABEL = 36
"""Cells of a title that a sentence still stands beside."""
_MOST_OUTPUT = 6
"""Last lines of what a fix printed; all of them stand on the whole page."""


def flow_title(state: FlowState | None, step: int, width: int, glyphs: Glyphs) -> Line:
    """`` Out of memory · pid 4711 rank 3          step 3``."""
    if state is None:
        return glyphs.finish(fit_line(((" Troubleshooting", "title"),), width))
    left: list[tuple[str, Role]] = [(f" {foreign(state.title)}", "title")]
    if state.subject:
        left += [(" · ", "dim"), (foreign(state.subject), "strong")]
    right: Line = (("", ""),) if isinstance(state.prompt, Ended) else ((f"  step {step} ", "dim"),)
    return glyphs.finish(ends(merged(left), right, width))


def owner_lines(process: Process | None, own_uid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Whose process it is, where that is somebody else: root (0) may change all of them."""
    if process is None or process.uid is None or own_uid in (0, process.uid):
        return []
    name = foreign(process.user) if process.user else f"uid {process.uid}"
    words = f"pid {process.pid} belongs to {name}: only they, or root, can change it."
    return [glyphs.finish(((f" {part}", "warn"),)) for part in wrapped(words, max(8, width - 2))]


# -- found and done, in versions


def story_versions(state: FlowState, width: int, glyphs: Glyphs) -> Iterable[list[Line]]:
    """From everything to one line. Each is shorter than the one before, or as long."""
    found, done = state.found, state.done
    cause = _cause(state, width, glyphs)
    short = found_lines(found, width, glyphs, short=True)
    last = done_lines(done[-1:], width, glyphs)
    earlier = done_one_liners(done[:-1], width, glyphs)
    yield _spaced(cause, found_lines(found, width, glyphs), [*earlier, *last])
    yield _spaced(cause, short, [*earlier, *last])
    bare = done_lines(done[-1:], width, glyphs, output=False)
    yield [*cause, *short, *earlier, *bare]
    yield [*cause[:1], *_cropped(found, width, glyphs, of_first=MOST_OF_FIRST), *bare]
    cropped = _cropped(found, width, glyphs)
    yield [*cause[:1], *cropped, *bare]
    one_liners = done_one_liners(done, width, glyphs)
    table = compared_lines(done[-1].compared, width) if done else []
    if len(one_liners) + len(table) <= len(bare):
        yield [*cropped, *one_liners, *table]
    yield [*cropped, *one_liners]
    yield [*cropped[:2], *done_one_liners(done[-1:], width, glyphs)]
    yield _one_line(state, width, glyphs)


def whole_story(state: FlowState, width: int, glyphs: Glyphs) -> list[Line]:
    """For a page of its own: everything that was found and done, with what exactly ran."""
    blocks = [_cause(state, width, glyphs), found_lines(state.found, width, glyphs)]
    for one in state.done:
        head = done_lines([one], width, glyphs, output=False)
        ran = _outside(one.lines, width, glyphs, "dim")
        blocks += [head, ran, _outside(one.output, width, glyphs)]
    return _spaced(*blocks)


def _spaced(*blocks: list[Line]) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        lines += [(), *block] if lines and block else block
    return lines


def _cause(state: FlowState, width: int, glyphs: Glyphs) -> list[Line]:
    """The diagnosis, where no check says the same already."""
    cause = foreign(state.cause).rstrip(".")
    if not cause or any(cause in foreign(one.sentence) for one in state.found):
        return []
    parts = wrapped(cause, max(8, width - 2))
    return [glyphs.finish(((f" {part}", "strong"),)) for part in parts]


# -- what was found


def _sign(mark: str, glyphs: Glyphs) -> tuple[str, Role]:
    if mark == "ok":
        return glyphs.yes, "good"
    if mark == "bad":
        return glyphs.no, "error"
    return ("•", "accent") if mark == "note" else ("?", "warn")


def _marked(sign: str, role: Role) -> Line:
    """Blanks beside the sign are plain: without colour an error is underlined."""
    return ((" ", ""), (sign, role), (" ", ""))


def found_lines(
    found: Sequence[Found], width: int, glyphs: Glyphs, *, short: bool = False
) -> list[Line]:
    """`` ✓ Whose memory?   this process holds …``; ``short`` sums up what is not the cause."""
    shown = [one for one in found if not (short and one.mark == "ok")]
    left = _left(shown, width)
    lines: list[Line] = []
    for one in shown:
        lines += _found(one, left, width, glyphs)
    return [*lines, *(_ok_line(found, width, glyphs) if short else [])]


def _found(
    one: Found, left: int, width: int, glyphs: Glyphs, most: int | None = None
) -> list[Line]:
    """On as many lines as it needs, at ``most`` so many: the last one is then cropped."""
    sign, role = _sign(one.mark, glyphs)
    head: Line = (*_marked(sign, role), (f"{pad(foreign(one.what), left)}  ", "label"))
    room = max(8, width - left - 6)
    texts = wrapped(foreign(one.sentence), room)
    if most is not None and len(texts) > most:
        texts[most - 1 :] = [crop(" ".join(texts[most - 1 :]), room)]
    lines = [(*head, (texts[0], "")), *(((" " * (left + 5) + text, ""),) for text in texts[1:])]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _cropped(
    found: Sequence[Found], width: int, glyphs: Glyphs, *, of_first: int = 1
) -> list[Line]:
    """A line for each that is not ok; the first that is bad may have ``of_first`` of them."""
    shown = [one for one in found if one.mark != "ok"]
    first = next((one for one in shown if one.mark == "bad"), None)
    left = _left(shown, width)
    lines: list[Line] = []
    for one in shown:
        lines += _found(one, left, width, glyphs, of_first if one is first else 1)
    return [*lines, *_ok_line(found, width, glyphs)]


def _left(shown: Sequence[Found], width: int) -> int:
    """Cells of the questions: their sentences stand under each other."""
    return min(width * 3 // 8, max((width_of(foreign(one.what)) for one in shown), default=0))


def _ok_line(found: Sequence[Found], width: int, glyphs: Glyphs) -> list[Line]:
    count = sum(one.mark == "ok" for one in found)
    if not count:
        return []
    line: Line = ((f" {glyphs.yes} ", "good"), (f"{plural(count, 'check')} ok", "dim"))
    return [glyphs.finish(fit_line(line, width))]


def _one_line(state: FlowState, width: int, glyphs: Glyphs) -> list[Line]:
    """The last thing that was done, else the worst that was found."""
    if state.done:
        return done_one_liners(state.done[-1:], width, glyphs)
    bad = [one for one in state.found if one.mark == "bad"] or list(state.found)
    return _found(bad[0], _left(bad[:1], width), width, glyphs, 1) if bad else []


# -- what was done


def outcome_sign(done: Done, glyphs: Glyphs) -> tuple[str, Role]:
    """Helped, did not help, or could not be seen."""
    if not done.ok or done.verified is False:
        return glyphs.no, "error"
    return (glyphs.yes, "good") if done.verified else ("•", "accent")


def done_lines(
    done: Sequence[Done], width: int, glyphs: Glyphs, *, output: bool = True
) -> list[Line]:
    """What ran, in a sentence how it came out, before and after, where it was written."""
    lines: list[Line] = []
    for one in done:
        sign, role = outcome_sign(one, glyphs)
        back = " (taken back)" if one.undone else ""
        title = crop(foreign(one.title), max(8, width // 2)) + back
        words = labelled(f" {sign} {title}: ", foreign(one.sentence), width, role)
        if width_of(title) > min(width // 3, _WIDEST_LABEL):
            # Beside a long title there is no room for a sentence, or it would hang in the middle.
            words = [((f" {sign} {title}", role),)]
            words += [
                ((f"   {part}", ""),) for part in wrapped(foreign(one.sentence), max(8, width - 4))
            ]
        lines += words + compared_lines(one.compared, width)
        if one.path:
            lines += [((part, "accent"),) for part in folded(f"   {foreign(one.path)}", width)]
        if output:
            lines += _outside(one.output[-_MOST_OUTPUT:], width, glyphs)
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def done_one_liners(done: Sequence[Done], width: int, glyphs: Glyphs) -> list[Line]:
    """A line each."""
    lines = []
    for one in done:
        sign, role = outcome_sign(one, glyphs)
        back = " (taken back)" if one.undone else ""
        line: Line = (
            *_marked(sign, role),
            (f"{foreign(one.title)}{back}: ", "label"),
            (foreign(one.sentence), ""),
        )
        lines.append(glyphs.finish(fit_line(line, width)))
    return lines


def compared_lines(compared: Sequence[Compared], width: int) -> list[Line]:
    """Before and after, side by side."""
    if not compared:
        return []
    rows = [(foreign(c.what), foreign(c.before), foreign(c.after)) for c in compared]
    whole = [("", "before", "after"), *rows]
    each = max(8, (width - 9) // 3)
    sizes = [min(each, max(width_of(row[column]) for row in whole)) for column in range(3)]
    lines: list[Line] = []
    for what, before, after in whole:
        head = not what and not lines
        text = f"   {pad(what, sizes[0])}  {pad(before, sizes[1], 'right')}  "
        tail = pad(after, sizes[2], "right")
        role: Role = "label" if head else ""
        lines.append(merged(((text, role), (tail, "label" if head else "strong"))))
    return lines


def _outside(texts: Iterable[str], width: int, glyphs: Glyphs, role: Role = "") -> list[Line]:
    """Output of a program, or what ran: folded behind a rule."""
    rule = glyphs.tree[2]
    lines: list[Line] = []
    for text in texts:
        for part in folded(foreign(text.expandtabs(8)), width - 6):
            lines.append(((f"   {rule}", "dim"), (part, role)))
    return [glyphs.finish(fit_line(line, width)) for line in lines]


# -- while it runs, and at the end


def busy_line(
    doing: str | None, elapsed_s: float, cancelled: bool, width: int, glyphs: Glyphs
) -> Line:
    """What is being done, and for how long: the one line that changes by itself."""
    words = "  stopping as soon as that is safe" if cancelled else f"  {int(elapsed_s)} s"
    what = f"Running: {foreign(doing)}" if doing is not None else "Looking at the machine"
    what = crop(f" ▸ {what}", width - len(words))
    return glyphs.finish(fit_line(((what, "strong"), (words, "dim")), width))


def said_lines(said: Iterable[str], width: int, glyphs: Glyphs) -> list[Line]:
    """Progress, a sentence each."""
    lines: list[Line] = []
    for text in said:
        parts = folded(foreign(text.expandtabs(8)), width - 4)
        lines += [((f"   {part}", ""),) for part in parts]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def has_tried(done: Iterable[Done]) -> bool:
    """Something ran that might have helped: more than a look."""
    return any(not one.is_look for one in done)


def ended_lines(ended: Ended, tried: bool, width: int, glyphs: Glyphs) -> list[Line]:
    """Whether it helped, where anything was ``tried``; and the last sentence."""
    lines: list[Line] = []
    if ended.verified:
        lines.append(((f" {glyphs.yes} Verified: a fix ran and was seen to help.", "good"),))
    elif tried:
        lines.append(((" • Not verified: no fix was seen to help.", "warn"),))
    for part in wrapped(foreign(ended.sentence), max(8, width - 4)):
        lines.append(((f"   {part}" if lines else f" • {part}", ""),))
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def error_lines(error: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Why the last answer got nowhere."""
    parts = labelled(f" {glyphs.no} ", foreign(error), width - 1, "error")
    return [glyphs.finish(fit_line(line, width)) for line in parts]


def report_lines(report: str, width: int, glyphs: Glyphs) -> list[Line]:
    """The Markdown as it is, headings set off: what is read here is what is handed on."""
    lines: list[Line] = []
    for text in report.splitlines():
        role: Role = "title" if text.startswith("#") else "dim" if text.startswith("```") else ""
        parts = folded(foreign(text.expandtabs(4)), width - 2)
        lines += [((f" {part}", role),) for part in parts]
    return [glyphs.finish(fit_line(line, width)) for line in lines]
