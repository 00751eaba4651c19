"""Large plots by plotext: values over time → lines. The only module that imports plotext.

plotext costs 90 ms to import, so it is imported when the first plot is drawn. Its figure is one
global object: use this from the UI's thread only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cockpit.tui.line import Line, Role
from cockpit.tui.render.glyphs import Glyphs

_ASCII_AXES = str.maketrans("┤├│└┘┐┌┬┴┼─", "|||+++++++-")
SMALLEST = (24, 5)
"""Below this many columns and lines a plot says nothing."""


def plot(
    values: Sequence[float | None],
    width: int,
    height: int,
    *,
    title: str,
    top: float,
    seconds: float,
    glyphs: Glyphs,
    role: Role = "bar",
) -> list[Line]:
    """One series, oldest first, over the last ``seconds``; None leaves a gap.

    ``top`` is the upper end of the y axis (100 %, the power limit). The title takes a line of its
    own. Too small a place gives the title alone.
    """
    head: Line = ((title, "label"),)
    if width < SMALLEST[0] or height - 1 < SMALLEST[1]:
        return [head]
    text = _draw(values, width, height - 1, top, seconds, glyphs)
    lines = [line.rstrip() for line in text.split("\n")]
    if glyphs.ascii_only:
        lines = [line.translate(_ASCII_AXES) for line in lines]
    return [head, *(((line[:width], role),) for line in lines[: height - 1])]


def _draw(
    values: Sequence[float | None],
    width: int,
    height: int,
    top: float,
    seconds: float,
    glyphs: Glyphs,
) -> str:
    import plotext

    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    marker = "braille" if glyphs.braille and not glyphs.ascii_only else "*"
    step = seconds / max(1, len(values) - 1)
    for xs, ys in _runs(values, -seconds, step):
        figure.draw(figure.signal(xs, ys, marker=marker).lines(True))
    figure.axes(False, axis="x", side=1)
    figure.axes(False, axis="y", side=1)
    _label(figure, top, seconds)
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
    values: Sequence[float | None], start: float, step: float
) -> list[tuple[list[float], list[float]]]:
    """Stretches of known values with their x; a lone value is a stretch as well."""
    runs: list[tuple[list[float], list[float]]] = []
    open_run = False
    for number, value in enumerate(values):
        if value is None or not math.isfinite(value):
            open_run = False
            continue
        if not open_run:
            runs.append(([], []))
            open_run = True
        runs[-1][0].append(start + number * step)
        runs[-1][1].append(value)
    return runs


def _tick(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
