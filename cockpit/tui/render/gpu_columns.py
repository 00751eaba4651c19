"""The columns of the GPU table and what stands in their cells. The layout of rows is elsewhere.

What moves stands side by side (utilisation, trace, clock, temperature, power): a terminal pays six
bytes for every jump to another field. Memory, which rests, stands next to the remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cockpit.model.gpu import Gpu
from cockpit.model.history import History
from cockpit.model.text import gib, rate
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import merged
from cockpit.tui.render.columns import REST, Column, Table, lay_out
from cockpit.tui.render.glyphs import Glyphs, bar
from cockpit.tui.render.remarks import FULL_SHARE, Remark, full_share, is_hot, remark_line
from cockpit.tui.render.trace import spark

_DASH = "–"
_LAST = "last"


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU with what its cells need."""

    gpu: Gpu
    history: History
    glyphs: Glyphs
    idle: bool
    remarks: Sequence[Remark]


def gpu_table(seen: Sequence[SeenGpu], width: int, interval_s: float = 1.0) -> Table[SeenGpu]:
    """The columns that fit; optional ones only where some GPU of this machine has the value."""
    gpus = [one.gpu for one in seen]
    columns = _short_columns() if width < 72 else _long_columns(gpus)
    known = [c for c in columns if not c.needs or _known(gpus, c.needs)]
    table = lay_out(known, width)
    return Table(
        tuple((_named(c, cells, seen, interval_s), cells) for c, cells in table.columns), width
    )


def _named(
    column: Column[SeenGpu], cells: int, seen: Sequence[SeenGpu], interval_s: float
) -> Column[SeenGpu]:
    """The trace says how far it reaches: one cell is the gap before the beam."""
    if column.title != _LAST or not seen:
        return column
    reach_s = seen[0].history.reach_s(cells - 1, interval_s)
    return replace(column, title=f"last {reach_s:.0f} s")


def _known(gpus: Sequence[Gpu], field: str) -> bool:
    return any(getattr(gpu, field) is not None for gpu in gpus)


def _short_columns() -> list[Column[SeenGpu]]:
    return [
        Column("GPU", 3, _index),
        Column("UTIL", 4, _percent("utilization_pct")),
        Column("", 5, _spark, "left", 3),
        Column("°C", 3, _temperature, priority=1),
        Column("W", 4, _watts, priority=2),
        Column("VRAM", 4, _vram_percent),
        Column("", 7, _remark, "left", gap=1, grow=REST),
    ]


def _long_columns(gpus: Sequence[Gpu]) -> list[Column[SeenGpu]]:
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


def _index(one: SeenGpu, _: int) -> Line:
    return _text(str(one.gpu.index))


def _percent(field: str) -> Callable[[SeenGpu, int], Line]:
    def cell(one: SeenGpu, _: int) -> Line:
        value: float | None = getattr(one.gpu, field)
        return _text(_DASH if value is None else f"{value:.0f}%")

    return cell


def _spark(one: SeenGpu, width: int) -> Line:
    if one.gpu.state == "lost":
        return _text("lost", "error")
    return (spark(one.history, one.gpu.index, "util", width, one.glyphs),)


def _clock(one: SeenGpu, _: int) -> Line:
    return _text(_DASH if one.gpu.sm_clock_mhz is None else str(one.gpu.sm_clock_mhz))


def _temperature(one: SeenGpu, _: int) -> Line:
    value = one.gpu.temperature_c
    return _text(_DASH if value is None else str(value), "warn" if is_hot(one.gpu) else "")


def _memory_temperature(one: SeenGpu, _: int) -> Line:
    value = one.gpu.memory_temperature_c
    return _text(_DASH if value is None else str(value), "warn" if (value or 0) >= 95 else "")


def _watts(one: SeenGpu, _: int) -> Line:
    return _text(_DASH if one.gpu.power_w is None else f"{one.gpu.power_w:.0f}")


def _power(one: SeenGpu, width: int) -> Line:
    limit = one.gpu.power_limit_w
    used = _watts(one, width)
    return used if limit is None else merged((*used, (f"/{limit:.0f}", "dim")))


def _pcie(one: SeenGpu, _: int) -> Line:
    return _text(_both(one.gpu.pcie_rx_bytes_per_s, one.gpu.pcie_tx_bytes_per_s))


def _nvlink(one: SeenGpu, _: int) -> Line:
    return _text(_both(one.gpu.nvlink_rx_bytes_per_s, one.gpu.nvlink_tx_bytes_per_s))


def _both(rx: float | None, tx: float | None) -> str:
    return _DASH if rx is None and tx is None else f"{rate(rx)}/{rate(tx)}"


def _bar(one: SeenGpu, width: int) -> Line:
    return bar(full_share(one.gpu), width, one.glyphs)


def _vram_percent(one: SeenGpu, _: int) -> Line:
    share = full_share(one.gpu)
    if share is None:
        return _text(_DASH)
    return _text(f"{100 * share:.0f}%", "warn" if share > FULL_SHARE else "")


def _used(one: SeenGpu, _: int) -> Line:
    return _text(gib(one.gpu.memory_used_bytes))


def _total(one: SeenGpu, _: int) -> Line:
    return _text(gib(one.gpu.memory_total_bytes), "dim")


def _remark(one: SeenGpu, width: int) -> Line:
    return remark_line(one.remarks, width)
