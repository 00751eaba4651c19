"""Large plots by plotext: values over time → lines. The only module that imports plotext.

plotext costs 90 ms to import, so it is imported when the first plot is drawn. Its figure is one
global object: use this from the UI's thread only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from cockpit.model.gpu import Gpu
from cockpit.model.history import History, Metric
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import merged, pad_line
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.trace import TITLES, scale

_ASCII_AXES = str.maketrans("┤├│└┘┐┌┬┴┼─", "|||+++++++-")
LEAST_SPAN_S = 10.0
LEAST_WIDTH = 38
"""Plots are put side by side when each of them gets this many columns."""
SECOND_SIGN = "="
SMALLEST = (24, 5)
"""Below this many columns and lines a plot says nothing."""


def plot(
    values: Sequence[float | None],
    width: int,
    height: int,
    *,
    title: str,
    top: float,
    ages: Sequence[float],
    glyphs: Glyphs,
    role: Role = "bar",
    second: Sequence[float | None] | None = None,
    second_role: Role = "bar2",
) -> list[Line]:
    """One series, oldest first; None leaves a gap. ``ages``: seconds after the newest, at most 0.

    ``top`` is the upper end of the y axis (100 %, the power limit). The title takes a line of its
    own. Too small a place gives the title alone. A ``second`` series of the same length is drawn
    in :data:`SECOND_SIGN`, so that the two differ without colours as well.
    """
    head: Line = ((title, "label"),)
    if width < SMALLEST[0] or height - 1 < SMALLEST[1]:
        return [head]
    text = _draw(values, width, height - 1, top, ages, glyphs, second)
    lines = [line.rstrip() for line in text.split("\n")]
    if glyphs.ascii_only:
        lines = [line.translate(_ASCII_AXES) for line in lines]
    shown = [line[:width] for line in lines[: height - 1]]
    if second is None:
        return [head, *(((line, role),) for line in shown)]
    return [head, *(_two_roles(line, role, second_role) for line in shown)]


def _two_roles(line: str, role: Role, second_role: Role) -> Line:
    parts = re.split(f"({re.escape(SECOND_SIGN)}+)", line)
    return merged((part, second_role if n % 2 else role) for n, part in enumerate(parts))


def _draw(
    values: Sequence[float | None],
    width: int,
    height: int,
    top: float,
    ages: Sequence[float],
    glyphs: Glyphs,
    second: Sequence[float | None] | None = None,
) -> str:
    import plotext

    # It would cut every plot to the terminal that it finds, 80 columns where there is none.
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    marker = "braille" if glyphs.braille and not glyphs.ascii_only else "*"
    for xs, ys in _runs(second or (), ages):
        figure.draw(figure.signal(xs, ys, marker=SECOND_SIGN).lines(True))
    for xs, ys in _runs(values, ages):
        figure.draw(figure.signal(xs, ys, marker=marker).lines(True))
    figure.axes(False, axis="x", side=1)
    figure.axes(False, axis="y", side=1)
    _label(figure, top, max(LEAST_SPAN_S, -ages[0] if ages else 0.0))
    return str(plotext.uncolorize(str(figure.build())))


def _label(figure: Any, top: float, seconds: float) -> None:
    middle, upper = _tick(top / 2), _tick(top)
    figure.ruler("y").lim(0, top)
    figure.ruler("y").ticks([0, top / 2, top], ["0", middle, upper])
    figure.ruler("x").lim(-seconds, 0)
    figure.ruler("x").ticks(
        [-seconds, -seconds / 2, 0], [f"-{_span(seconds)}", f"-{_span(seconds / 2)}", "now"]
    )


def _runs(
    values: Sequence[float | None], ages: Sequence[float]
) -> list[tuple[list[float], list[float]]]:
    """Stretches of known values with their x (0 is now); a lone value is a stretch as well."""
    runs: list[tuple[list[float], list[float]]] = []
    open_run = False
    for age, value in zip(ages, values, strict=False):  # of no second series there is none
        if value is None or not math.isfinite(value):
            open_run = False
            continue
        if not open_run:
            runs.append(([], []))
            open_run = True
        runs[-1][0].append(age)
        runs[-1][1].append(value)
    return runs


def _tick(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def plots(
    history: History,
    gpu: Gpu,
    metrics: Sequence[Metric],
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Line]:
    """One plot a metric, as many side by side as are readable; the whole history that there is."""
    most = max(1, width // LEAST_WIDTH)
    columns = max(n for n in range(1, len(metrics) + 1) if n <= most and len(metrics) % n == 0)
    each = width // columns - 1
    drawn = [_metric_plot(history, gpu, metric, each, height, glyphs) for metric in metrics]
    lines: list[Line] = []
    for first in range(0, len(drawn), columns):
        lines += side_by_side(drawn[first : first + columns], each + 1)
    return lines


def _metric_plot(
    history: History,
    gpu: Gpu,
    metric: Metric,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Line]:
    values = history.values(gpu.index, metric, history.size)
    known = [value for value in values if value is not None]
    now = f"{known[-1]:.0f}" if known else "–"
    return plot(
        values,
        width,
        height,
        title=f" {TITLES[metric]}  {now}",
        top=scale(metric, gpu)[1],
        ages=history.ages(history.size),
        glyphs=glyphs,
    )


def side_by_side(blocks: Sequence[Sequence[Line]], each: int) -> list[Line]:
    """Blocks of equal height next to each other, each padded to ``each`` cells."""
    height = max(len(block) for block in blocks)
    filled = [[*block, *[()] * (height - len(block))] for block in blocks]
    return [
        merged(span for line in lines for span in pad_line(line, each))
        for lines in zip(*filled, strict=True)
    ]
