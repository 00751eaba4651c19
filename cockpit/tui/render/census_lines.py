"""The census of a run: tensors by kind, device and dtype, the biggest with who holds them; and,
while allocations are recorded, live memory by the line that asked for it."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.memory import AllocationSite, BigTensor, Census, TensorGroup
from cockpit.model.text import plural, size
from cockpit.tui.line import Line
from cockpit.tui.render.cells import crop, fit_line, foreign, pad, wrapped
from cockpit.tui.render.glyphs import Glyphs, bar

_BAR = 14
_FRAMES = 4
"""Callers of an allocation that are shown."""


def census_lines(census: Census, width: int, glyphs: Glyphs, deep_key: str) -> list[Line]:
    """Groups, then the biggest tensors. ``deep_key`` asks for more: ``[C]``."""
    lines: list[Line] = []
    notes = [] if census.complete else ["The walk ran out of its time: these are lower bounds."]
    notes += [foreign(census.sentence)] if census.sentence else []
    if not census.deep:
        notes.append(
            f"{deep_key} looks at every object: it takes seconds, in slices of a millisecond."
        )
    for note in notes:
        lines += [((f" {part}", "dim"),) for part in wrapped(note, max(8, width - 2))]
    lines += [*([()] if lines else []), *_group_lines(census.groups, width, glyphs)]
    lines += [(), *_biggest_lines(census.biggest, width)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _group_lines(groups: Sequence[TensorGroup], width: int, glyphs: Glyphs) -> list[Line]:
    if not groups:
        return [((" No tensors were found.", "dim"),)]
    kind = min(18, max(9, *(len(foreign(one.kind)) for one in groups)))
    head = f" {pad('kind', kind)} {'device':8} {'dtype':10} {'count':>8} {'size':>9}"
    lines: list[Line] = [((head, "label"),)]
    most = max(one.bytes for one in groups)
    for one in sorted(groups, key=lambda one: -one.bytes):
        text = f" {pad(foreign(one.kind), kind)} {pad(foreign(one.device), 8)}"
        text += f" {pad(short_dtype(one.dtype), 10)} {one.count:>8,} {size(one.bytes):>9}"
        share = bar(one.bytes / most if most else 0.0, _BAR, glyphs) if width >= 70 else ()
        lines.append(((text, ""), (" ", ""), *share))
    whole = sum(one.bytes for one in groups if not one.device.startswith("cpu"))
    blank = " " * (kind + 21)
    lines.append(((f" {pad('on GPUs', kind)}{blank[kind:]}{'':8} {size(whole):>9}", "label"),))
    return lines


def _biggest_lines(biggest: Sequence[BigTensor], width: int) -> list[Line]:
    if not biggest:
        return []
    lines: list[Line] = [((" Biggest tensors", "strong"),)]
    wide = width >= 100
    shape_width = 24 if wide else 18
    for one in biggest:
        shape = "x".join(str(side) for side in one.shape) or "scalar"
        text = f" {size(one.bytes):>9}  {pad(shape, shape_width)} {pad(short_dtype(one.dtype), 5)}"
        text += f" {pad(foreign(one.device), 7)}" if wide else ""
        kind = foreign(one.kind or "")
        holder = foreign(one.holder or "–")
        room = max(0, width - len(text) - 3)
        tail = f"  {kind}" if kind and kind not in holder and len(holder) + len(kind) < room else ""
        lines.append(((text, ""), (f" {crop(holder, room)}", "accent"), (tail, "dim")))
    return lines


def short_dtype(name: str) -> str:
    """``bf16`` for ``torch.bfloat16``: as people say it."""
    name = foreign(name).removeprefix("torch.")
    table = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "float64": "fp64"}
    return table.get(name, name)


def site_lines(
    sites: Sequence[AllocationSite], width: int, glyphs: Glyphs, fix_key: str = ""
) -> list[Line]:
    """Live memory by stack, biggest first; how to record where nothing is recorded.

    ``fix_key`` as in ``[f]``; empty where it is off.
    """
    if not sites:
        how = f": {fix_key}, record" if fix_key else ""
        text = (
            f"Allocations by stack are known only while they are recorded{how}. "
            "Only what is allocated from then on has a stack; about 2 µs each."
        )
        return [((f" {part}", ""),) for part in wrapped(glyphs.text(text), max(8, width - 2))]
    whole = sum(one.bytes for one in sites)
    lines: list[Line] = [((" Live memory by the line that asked for it", "strong"),), ()]
    for one in sorted(sites, key=lambda one: -one.bytes):
        lines += _site(one, whole, width, glyphs)
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _site(site: AllocationSite, whole: int, width: int, glyphs: Glyphs) -> list[Line]:
    share = site.bytes / whole if whole else 0.0
    frames = [foreign(frame) for frame in site.frames[:_FRAMES]] or ["no Python frame"]
    head = f" {size(site.bytes):>9} {100 * share:3.0f} % "
    rest = f"  {plural(site.count, 'block')}  GPU {site.device}"
    first: Line = (
        (head, ""),
        *bar(share, _BAR, glyphs),
        (f" {frames[0]}", "strong"),
        (rest, "dim"),
    )
    blank = " " * (len(head) + _BAR)
    callers: list[Line] = [((f"{blank} from {frame}", "dim"),) for frame in frames[1:]]
    return [fit_line(line, width) for line in (first, *callers)]
