"""Where the threads of a process are, innermost frame first, the training thread on top."""

from __future__ import annotations

from cockpit.model.memory import Stacks, ThreadStack
from cockpit.model.text import plural
from cockpit.tui.line import Line
from cockpit.tui.render.cells import fit_line, foreign, wrapped
from cockpit.tui.render.glyphs import Glyphs

_MOST_FRAMES = 40
_BY = {"agent": "read by the agent", "py-spy": "read from outside by py-spy, without a pause"}


def stack_lines(stacks: Stacks, width: int, glyphs: Glyphs) -> list[Line]:
    """Who looked and why, then one block a thread."""
    lines: list[Line] = []
    if stacks.sentence:
        parts = wrapped(f"! {foreign(stacks.sentence)}", max(8, width - 2))
        lines += [((f" {part}", "warn"),) for part in parts]
    count = plural(len(stacks.threads), "thread")
    lines.append(((f" {count}, {_BY[stacks.read_by]}", "dim"),))
    for thread in sorted(stacks.threads, key=lambda one: not one.is_training):
        lines += [(), *_thread_lines(thread)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _thread_lines(thread: ThreadStack) -> list[Line]:
    mark = "  trains" if thread.is_training else ""
    lines: list[Line] = [((f" {foreign(thread.name)}", "strong"), (mark, "accent"))]
    for number, frame in enumerate(thread.frames[:_MOST_FRAMES]):
        place, _, function = foreign(frame).partition(" ")
        sign = " ▸ " if not number else "   "
        lines.append(((sign, "accent"), (place, ""), (f"  {function}", "dim")))
    left = len(thread.frames) - _MOST_FRAMES
    if left > 0:
        lines.append(((f"   … {plural(left, 'frame')} more", "dim"),))
    if not thread.frames:
        lines.append((("   no Python frame", "dim"),))
    return lines
