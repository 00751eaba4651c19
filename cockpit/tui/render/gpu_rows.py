"""The GPU table: one line a GPU, two columns of short ones, or idle ones collapsed.

The columns are those of :mod:`cockpit.tui.render.gpu_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cockpit.model.gpu import Gpu
from cockpit.model.history import History
from cockpit.model.text import gib
from cockpit.tui.line import Line, Row
from cockpit.tui.render.cells import fit_line, merged, pad_line, toned_down
from cockpit.tui.render.columns import Table
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_columns import SeenGpu, gpu_table
from cockpit.tui.render.gpu_ranges import ranges
from cockpit.tui.render.remarks import Remark, all_remarks, is_idle

Remarks = Mapping[int, list[Remark]]

SHORT_WIDTH = 38
"""Cells of a short GPU; two of them and a gap fit 80."""


def gpu_lines(
    gpus: Sequence[Gpu],
    history: History,
    width: int,
    height: int,
    glyphs: Glyphs,
    remarks: Remarks | None = None,
    interval_s: float = 1.0,
) -> list[Row]:
    """GPUs in at most ``height`` rows, under a header unless two rows are too few for it.
    ``remarks`` come from ``snapshot_remarks``.

    Keys: ``("gpus", "header", n)``, ``("gpu", index)``, ``("gpu", index, index …)`` where a row
    shows several.
    """
    if not gpus or height < 2:
        return []
    seen = [_see(gpu, history, glyphs, remarks) for gpu in gpus]
    columns = _columns_needed(len(gpus), width, height)
    if columns is None:
        rows = _collapsed(seen, width, height, interval_s)
    elif columns == 1:
        rows = _single(seen, width, interval_s)
    else:
        rows = _side_by_side(seen, width, columns, interval_s)
    return [Row(key, glyphs.finish(line)) for key, line in rows]


def _see(gpu: Gpu, history: History, glyphs: Glyphs, remarks: Remarks | None) -> SeenGpu:
    if gpu.state == "lost":  # whatever was read last is not true any more
        gpu = Gpu(index=gpu.index, state="lost", gaps=gpu.gaps)
    idle = is_idle(gpu, history)
    others = (remarks or {}).get(gpu.index, ())
    return SeenGpu(gpu, history, glyphs, idle, all_remarks(gpu, idle, others))


def _columns_needed(count: int, width: int, height: int) -> int | None:
    """The fewest columns in which all fit under a header; None: not even short ones do."""
    for columns in range(1, max(1, (width + 1) // (SHORT_WIDTH + 1)) + 1):
        if -(-count // columns) + 1 <= height:
            return columns
    return None


# -- layouts


def _single(seen: Sequence[SeenGpu], width: int, interval_s: float) -> list[Row]:
    table = gpu_table(seen, width, interval_s)
    rows = [Row(("gpus", "header", 0), table.header())]
    return rows + [Row(("gpu", one.gpu.index), _line(table, one)) for one in seen]


def _side_by_side(
    seen: Sequence[SeenGpu], width: int, columns: int, interval_s: float
) -> list[Row]:
    """Read downwards: GPU 0 to 7 at the left, 8 to 15 at the right."""
    each = (width - columns + 1) // columns
    table = gpu_table(seen, each, interval_s)
    height = -(-len(seen) // columns)
    header = _beside([table.header()] * columns, each)
    rows = [Row(("gpus", "header", 0), header)]
    for first in range(height):
        group = seen[first::height]
        line = _beside([_line(table, one) for one in group], each)
        rows.append(Row(("gpu", *(one.gpu.index for one in group)), line))
    return rows


def _beside(lines: Sequence[Line], each: int) -> Line:
    """Lines side by side, one blank cell between them."""
    padded = [pad_line(line, each) for line in lines[:-1]]
    return merged(
        span
        for n, line in enumerate([*padded, lines[-1]])
        for span in ((((" "), ""), *line) if n else line)
    )


def _collapsed(seen: Sequence[SeenGpu], width: int, height: int, interval_s: float) -> list[Row]:
    """Troubled and busy ones a line each; the others share the last line. Two lines: no header."""
    urgent = sorted(seen, key=_urgency)
    lines = max(1, height - 2)
    shown = sorted(urgent[:lines], key=lambda one: one.gpu.index)
    rest = sorted(urgent[lines:], key=lambda one: one.gpu.index)
    last = Row(("gpu", *(one.gpu.index for one in rest)), _summary(rest, width))
    return [*_single(shown, width, interval_s), last][-height:]


def _urgency(one: SeenGpu) -> tuple[int, int]:
    if one.remarks and one.remarks[0].weight >= 60:
        return 0, one.gpu.index
    return (2 if one.idle else 1), one.gpu.index


def _summary(rest: Sequence[SeenGpu], width: int) -> Line:
    """`` 4-7 9  idle, 1.2 GiB in use``."""
    numbers = ranges([one.gpu.index for one in rest])
    quiet = all(one.idle for one in rest)
    used = sum(one.gpu.memory_used_bytes or 0 for one in rest)
    words = "idle" if quiet else f"{len(rest)} more"
    return fit_line(((f" {numbers}  {words}, {gib(used)} GiB in use", "dim"),), width)


def _line(table: Table[SeenGpu], one: SeenGpu) -> Line:
    line = table.row(one)
    # Old values and GPUs that rest: dim. The remark says the same in words.
    return toned_down(line) if one.idle or one.gpu.state != "ok" else line
