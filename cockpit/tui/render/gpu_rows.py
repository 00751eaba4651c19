"""The GPU table: one line a GPU, two columns of short ones, or idle ones collapsed.

What moves stands side by side (utilisation, trace, clock, temperature, power): a terminal pays six
bytes for every jump to another field. Memory, which rests, stands next to the remark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cockpit.model.gpu import Gpu
from cockpit.model.history import History
from cockpit.model.text import gib, rate
from cockpit.tui.line import Line, Role, Row
from cockpit.tui.render.cells import fit_line, merged, pad_line, toned_down
from cockpit.tui.render.columns import REST, Column, Table, lay_out
from cockpit.tui.render.glyphs import Glyphs, bar
from cockpit.tui.render.gpu_ranges import ranges
from cockpit.tui.render.remarks import (
    FULL_SHARE,
    Remark,
    all_remarks,
    full_share,
    is_hot,
    is_idle,
    remark_line,
)
from cockpit.tui.render.trace import spark

Remarks = Mapping[int, list[Remark]]

SHORT_WIDTH = 38
"""Cells of a short GPU; two of them and a gap fit 80."""
_DASH = "–"
_LAST = "last"


@dataclass(frozen=True, slots=True)
class _Seen:
    """One GPU with what its cells need."""

    gpu: Gpu
    history: History
    glyphs: Glyphs
    idle: bool
    remarks: Sequence[Remark]


def gpu_lines(
    gpus: Sequence[Gpu],
    history: History,
    width: int,
    height: int,
    glyphs: Glyphs,
    remarks: Remarks | None = None,
    interval_s: float = 1.0,
) -> list[Row]:
    """Header and GPUs in at most ``height`` rows. ``remarks`` come from ``snapshot_remarks``.

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


def _see(gpu: Gpu, history: History, glyphs: Glyphs, remarks: Remarks | None) -> _Seen:
    if gpu.state == "lost":  # whatever was read last is not true any more
        gpu = Gpu(index=gpu.index, state="lost", gaps=gpu.gaps)
    idle = is_idle(gpu, history)
    others = (remarks or {}).get(gpu.index, ())
    return _Seen(gpu, history, glyphs, idle, all_remarks(gpu, idle, others))


def _columns_needed(count: int, width: int, height: int) -> int | None:
    """The fewest columns in which all fit under a header; None: not even short ones do."""
    for columns in range(1, max(1, (width + 1) // (SHORT_WIDTH + 1)) + 1):
        if -(-count // columns) + 1 <= height:
            return columns
    return None


# -- layouts


def _single(seen: Sequence[_Seen], width: int, interval_s: float) -> list[Row]:
    table = gpu_table(seen, width, interval_s)
    rows = [Row(("gpus", "header", 0), table.header())]
    return rows + [Row(("gpu", one.gpu.index), _line(table, one)) for one in seen]


def _side_by_side(seen: Sequence[_Seen], width: int, columns: int, interval_s: float) -> list[Row]:
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


def _collapsed(seen: Sequence[_Seen], width: int, height: int, interval_s: float) -> list[Row]:
    """Troubled and busy ones a line each; the others share the last line."""
    if height <= 2:
        return [Row(("gpu", *(one.gpu.index for one in seen)), _summary(seen, width))]
    urgent = sorted(seen, key=_urgency)
    shown = sorted(urgent[: height - 2], key=lambda one: one.gpu.index)
    rest = sorted(urgent[height - 2 :], key=lambda one: one.gpu.index)
    last = Row(("gpu", *(one.gpu.index for one in rest)), _summary(rest, width))
    return [*_single(shown, width, interval_s), last]


def _urgency(one: _Seen) -> tuple[int, int]:
    if one.remarks and one.remarks[0].weight >= 60:
        return 0, one.gpu.index
    return (2 if one.idle else 1), one.gpu.index


def _summary(rest: Sequence[_Seen], width: int) -> Line:
    """`` 4-7 9  idle, 1.2 GiB in use``."""
    numbers = ranges([one.gpu.index for one in rest])
    quiet = all(one.idle for one in rest)
    used = sum(one.gpu.memory_used_bytes or 0 for one in rest)
    words = "idle" if quiet else f"{len(rest)} more"
    return fit_line(((f" {numbers}  {words}, {gib(used)} GiB in use", "dim"),), width)


def _line(table: Table[_Seen], one: _Seen) -> Line:
    line = table.row(one)
    # Old values and GPUs that rest: dim. The remark says the same in words.
    return toned_down(line) if one.idle or one.gpu.state != "ok" else line


# -- columns


def gpu_table(seen: Sequence[_Seen], width: int, interval_s: float = 1.0) -> Table[_Seen]:
    """The columns that fit; optional ones only where some GPU of this machine has the value."""
    gpus = [one.gpu for one in seen]
    columns = _short_columns() if width < 72 else _long_columns(gpus)
    known = [c for c in columns if not c.needs or _known(gpus, c.needs)]
    table = lay_out(known, width)
    return Table(tuple((_named(c, cells, interval_s), cells) for c, cells in table.columns), width)


def _named(column: Column[_Seen], cells: int, interval_s: float) -> Column[_Seen]:
    """The trace says how far it reaches: one cell is the gap before the beam."""
    if column.title != _LAST:
        return column
    return replace(column, title=f"last {(cells - 1) * interval_s:.0f} s")


def _known(gpus: Sequence[Gpu], field: str) -> bool:
    return any(getattr(gpu, field) is not None for gpu in gpus)


def _short_columns() -> list[Column[_Seen]]:
    return [
        Column("GPU", 3, _index),
        Column("UTIL", 4, _percent("utilization_pct")),
        Column("", 5, _spark, "left", 3),
        Column("°C", 3, _temperature, priority=1),
        Column("W", 4, _watts, priority=2),
        Column("VRAM", 4, _vram_percent),
        Column("", 7, _remark, "left", gap=1, grow=REST),
    ]


def _long_columns(gpus: Sequence[Gpu]) -> list[Column[_Seen]]:
    limits = [gpu.power_limit_w or 0.0 for gpu in gpus]
    watts = 9 if max(limits, default=0.0) >= 1000.0 else 7
    return [
        Column("GPU", 3, _index),
        Column("UTIL", 4, _percent("utilization_pct")),
        Column(_LAST, 9, _spark, "left", 2, grow=51),
        Column("SM%", 4, _percent("sm_active_pct"), priority=6, needs="sm_active_pct"),
        Column("TC%", 4, _percent("tensor_active_pct"), priority=7, needs="tensor_active_pct"),
        Column("OCC", 4, _percent("sm_occupancy_pct"), priority=14, needs="sm_occupancy_pct"),
        Column("DRAM", 4, _percent("dram_active_pct"), priority=13, needs="dram_active_pct"),
        Column("MEM%", 4, _percent("memory_utilization_pct"), priority=8),
        Column("MHz", 4, _clock, priority=2),
        Column("°C", 3, _temperature),
        Column("mem", 3, _memory_temperature, priority=5, needs="memory_temperature_c"),
        Column("POWER W", watts, _power, priority=1),
        Column("PCI rx/tx", 9, _pcie, priority=9, needs="pcie_rx_bytes_per_s"),
        Column("NVL rx/tx", 9, _nvlink, priority=10, needs="nvlink_rx_bytes_per_s"),
        Column("FAN", 4, _percent("fan_pct"), priority=11, needs="fan_pct"),
        Column("VRAM", 8, _bar, "left", 3, gap=2, grow=12),
        Column("", 4, _vram_percent),
        Column("GiB", 5, _used, priority=2),
        Column("of", 5, _total, priority=12),
        Column("", 18, _remark, "left", gap=2, grow=REST),
    ]


def _text(text: str, role: Role = "") -> Line:
    return ((text, role),)


def _index(one: _Seen, _: int) -> Line:
    return _text(str(one.gpu.index))


def _percent(field: str) -> Callable[[_Seen, int], Line]:
    def cell(one: _Seen, _: int) -> Line:
        value: float | None = getattr(one.gpu, field)
        return _text(_DASH if value is None else f"{value:.0f}%")

    return cell


def _spark(one: _Seen, width: int) -> Line:
    if one.gpu.state == "lost":
        return _text("lost", "error")
    return (spark(one.history, one.gpu.index, "util", width, one.glyphs),)


def _clock(one: _Seen, _: int) -> Line:
    return _text(_DASH if one.gpu.sm_clock_mhz is None else str(one.gpu.sm_clock_mhz))


def _temperature(one: _Seen, _: int) -> Line:
    value = one.gpu.temperature_c
    return _text(_DASH if value is None else str(value), "warn" if is_hot(one.gpu) else "")


def _memory_temperature(one: _Seen, _: int) -> Line:
    value = one.gpu.memory_temperature_c
    return _text(_DASH if value is None else str(value), "warn" if (value or 0) >= 95 else "")


def _watts(one: _Seen, _: int) -> Line:
    return _text(_DASH if one.gpu.power_w is None else f"{one.gpu.power_w:.0f}")


def _power(one: _Seen, width: int) -> Line:
    limit = one.gpu.power_limit_w
    used = _watts(one, width)
    return used if limit is None else merged((*used, (f"/{limit:.0f}", "dim")))


def _pcie(one: _Seen, _: int) -> Line:
    return _text(_both(one.gpu.pcie_rx_bytes_per_s, one.gpu.pcie_tx_bytes_per_s))


def _nvlink(one: _Seen, _: int) -> Line:
    return _text(_both(one.gpu.nvlink_rx_bytes_per_s, one.gpu.nvlink_tx_bytes_per_s))


def _both(rx: float | None, tx: float | None) -> str:
    return _DASH if rx is None and tx is None else f"{rate(rx)}/{rate(tx)}"


def _bar(one: _Seen, width: int) -> Line:
    return bar(full_share(one.gpu), width, one.glyphs)


def _vram_percent(one: _Seen, _: int) -> Line:
    share = full_share(one.gpu)
    if share is None:
        return _text(_DASH)
    return _text(f"{100 * share:.0f}%", "warn" if share > FULL_SHARE else "")


def _used(one: _Seen, _: int) -> Line:
    return _text(gib(one.gpu.memory_used_bytes))


def _total(one: _Seen, _: int) -> Line:
    return _text(gib(one.gpu.memory_total_bytes), "dim")


def _remark(one: _Seen, width: int) -> Line:
    return remark_line(one.remarks, width)
