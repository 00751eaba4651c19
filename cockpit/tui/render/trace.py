"""History as traces that advance in place: one line of levels, or several lines of area.

A trace is a sweep, like the one of an oscilloscope: sample *k* stands at place *k modulo width*
until the beam comes round again, and one blank cell (a thin mark, where the trace is one line) goes
before the beam. A new sample then changes two neighbouring cells, where a trace that scrolls
changes all of them (ten times the bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cockpit.model.gpu import Gpu
from cockpit.model.history import History, Metric
from cockpit.tui.line import Line, Span
from cockpit.tui.render.cells import fit_line, merged, pad
from cockpit.tui.render.glyphs import Glyphs

_DOTS = ((0x00, 0x40, 0x44, 0x46, 0x47), (0x00, 0x80, 0xA0, 0xB0, 0xB8))
"""Braille dots of the left and the right half, filled from below."""

_UNITS: dict[Metric, str] = {"util": "%", "vram": "%", "power": "W", "temp": "°C", "cpu": "%"}
SHORT: dict[Metric, str] = {
    "util": "util",
    "vram": "VRAM",
    "power": "power",
    "temp": "temp",
    "cpu": "CPU",
}
TALLEST = 5
"""Lines of a trace: more show no more."""
LEAST_PANEL = 29
"""Cells of a panel: four stand side by side on 120."""
LABEL = 9
TITLES: dict[Metric, str] = {
    "util": "utilisation",
    "vram": "VRAM in use",
    "power": "power",
    "temp": "temperature",
    "cpu": "host CPU",
}
"""Names of the traces, for headings."""


def sweep(
    history: History, gpu: int, metric: Metric, slots: int, per_slot: int = 1, blank: int = 1
) -> list[float | None]:
    """The newest samples at their places; None for gaps and for the ``blank`` places ahead.

    ``per_slot`` samples are averaged; a group that is not full yet is not shown, so that a slot
    changes once.
    """
    places: list[float | None] = [None] * slots
    end = history.count // per_slot
    first = max(0, end - slots + blank, -(-(history.count - history.size) // per_slot))
    values = history.values(gpu, metric, history.count - first * per_slot)
    for group in range(first, end):
        at = (group - first) * per_slot
        places[group % slots] = values[at] if per_slot == 1 else _mean(values[at : at + per_slot])
    return places


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def scale(metric: Metric, gpu: Gpu | None) -> tuple[float, float]:
    """Bottom and top of a trace: fixed ones, so that equal heights mean equal things."""
    if metric == "power":
        limit = gpu.power_limit_w if gpu else None
        return 0.0, limit or 700.0
    return (20.0, 100.0) if metric == "temp" else (0.0, 100.0)


def spark(
    history: History,
    gpu: int,
    metric: Metric,
    cells: int,
    glyphs: Glyphs,
    limits: tuple[float, float] = (0.0, 100.0),
    per_cell: int = 1,
) -> Span:
    """One line of exactly ``cells`` cells. All zero: a still line, which costs no bytes."""
    values = sweep(history, gpu, metric, cells, per_cell)
    if all(v is None or v <= limits[0] + 0.5 for v in values):
        if history.count >= cells * per_cell and any(v is not None for v in values):
            return glyphs.spark[0] * cells, "dim"
        return "".join(" " if v is None else glyphs.spark[0] for v in values), "dim"
    levels = [_level(v, limits, glyphs.spark) for v in values]
    if (end := history.count // per_cell) >= cells:
        # A mark and not a blank, which looks like a lost sample; of the same role: no more bytes.
        levels[end % cells] = glyphs.tree[2][0]
    return "".join(levels), "bar"


def _level(value: float | None, limits: tuple[float, float], levels: str) -> str:
    if value is None:
        return " "
    return levels[min(len(levels) - 1, int(_share(value, limits) * len(levels)))]


def _share(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def area(
    history: History,
    gpu: int,
    metric: Metric,
    width: int,
    height: int,
    glyphs: Glyphs,
    limits: tuple[float, float] = (0.0, 100.0),
    per_slot: int = 1,
) -> list[str]:
    """``height`` lines of ``width`` cells, top first; two samples a cell where braille is shown.

    A known value has at least the lowest dot.
    """
    per_cell = 2 if glyphs.braille else 1
    # Half a cell may be new: the rest of it and all of the next one are blank.
    blank = per_cell + (history.count // per_slot) % per_cell
    values = sweep(history, gpu, metric, width * per_cell, per_slot, blank)
    steps = height * (4 if glyphs.braille else len(glyphs.spark))
    filled = [0 if v is None else max(1, round(_share(v, limits) * steps)) for v in values]
    if glyphs.braille:
        halves = zip(filled[::2], filled[1::2], strict=True)
        columns = [_braille_column(left, right, height) for left, right in halves]
    else:
        columns = [_block_column(one, height, glyphs.spark) for one in filled]
    return ["".join(row) for row in zip(*columns, strict=True)]


@lru_cache(maxsize=1 << 12)
def _braille_column(left: int, right: int, height: int) -> str:
    """One column of cells, top first; ``left`` and ``right``: dots filled from below."""
    cells = []
    for row in reversed(range(height)):
        dots = _DOTS[0][_steps(left, row, 4)] | _DOTS[1][_steps(right, row, 4)]
        cells.append(chr(0x2800 + dots) if dots else " ")
    return "".join(cells)


@lru_cache(maxsize=1 << 10)
def _block_column(filled: int, height: int, levels: str) -> str:
    steps = len(levels)
    return "".join((" " + levels)[_steps(filled, row, steps)] for row in reversed(range(height)))


def _steps(filled: int, row: int, steps: int) -> int:
    """How much of what is filled lies in this row, counted from the bottom."""
    return min(steps, max(0, filled - row * steps))


def trace_lines(
    history: History,
    gpus: Sequence[Gpu],
    width: int,
    height: int,
    glyphs: Glyphs,
    metrics: Sequence[Metric],
    per_slot: int = 1,
) -> list[Line]:
    """A pane of at most ``height`` lines: a panel a GPU and metric, side by side where wide."""
    if not gpus or height < 1 or width < 12:
        return []
    traced = [(gpu, metric) for gpu in gpus for metric in metrics]
    columns = _pane_columns(len(traced), width, height)
    panel_width = width // columns
    rows = -(-len(traced) // columns)
    panel_height = min(TALLEST, max(1, height // rows))
    panels = [
        _panel(history, gpu, panel_width, panel_height, glyphs, metric, per_slot)
        for gpu, metric in traced
    ]
    lines: list[Line] = []
    for first in range(0, len(panels), columns):
        group = panels[first : first + columns]
        lines += [merged(span for panel in group for span in panel[n]) for n in range(panel_height)]
    return [glyphs.finish(fit_line(line, width)) for line in lines[:height]]


def pane_height(count: int, width: int, height: int) -> int:
    """The lines that :func:`trace_lines` can use for ``count`` panels, at most ``height``."""
    if not count or height < 1 or width < 12:
        return 0
    return min(height, -(-count // _pane_columns(count, width, height)) * TALLEST)


def _pane_columns(count: int, width: int, height: int) -> int:
    """The fewest columns that give every panel two lines; without a hole where that goes.

    A few panels stand in one row.
    """
    most = max(1, width // LEAST_PANEL)
    if count <= most:
        return count
    fits = [columns for columns in range(1, most + 1) if -(-count // columns) * 2 <= height]
    without_hole = [columns for columns in fits if count % columns == 0]
    return next(iter(without_hole + fits), most)


def _panel(
    history: History,
    gpu: Gpu,
    width: int,
    height: int,
    glyphs: Glyphs,
    metric: Metric,
    per_slot: int,
) -> list[Line]:
    """One trace: GPU, metric and newest value at the left, the trace beside them."""
    cells = width - LABEL
    limits = scale(metric, gpu)
    if height == 1:
        value = _value(history, gpu, metric, 6)
        # One line has the number of the GPU and the value in the same cells.
        text = spark(history, gpu.index, metric, max(1, cells - 1), glyphs, limits, per_slot)
        return [(((f"{gpu.index:>3} "), "label"), (value, ""), text)]
    drawn = area(history, gpu.index, metric, cells, height, glyphs, limits, per_slot)
    texts: list[Span] = [(pad(f" {gpu.index} {SHORT[metric]}", LABEL), "label")]
    texts += [(pad(f" {_value(history, gpu, metric, 0)}", LABEL), "")]
    texts += [(" " * LABEL, "")] * (height - 2)
    return [(text, (line, "bar")) for text, line in zip(texts, drawn, strict=True)]


def _value(history: History, gpu: Gpu, metric: Metric, width: int) -> str:
    value = history.latest(gpu.index, metric)
    text = "–" if value is None else f"{value:.0f}{_UNITS[metric]}"
    return f"{text + ' ':>{width}}" if width else text
