"""Everything about one GPU: all fields in groups, with units, or the reason why one is missing."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.gpu import Gpu, MigInstance
from cockpit.model.text import rate, size
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import ends, fit_line, foreign, join, wrapped
from cockpit.tui.render.facts import Block, Fact, block_lines, column_width, fact_line, in_columns
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.glyphs import Glyphs, bar
from cockpit.tui.render.remarks import (
    THROTTLE_WORDS,
    Remark,
    all_remarks,
    full_share,
    is_hot,
    is_idle,
    is_limited,
    remark_line,
    slow_link,
)


def gpu_title(gpu: Gpu, width: int, glyphs: Glyphs, others: Sequence[Remark] = ()) -> Line:
    """Number, model and what is the matter with it."""
    name = ((f" GPU {gpu.index}  ", "title"), (foreign(gpu.name or "?"), "strong"))
    remarks = remark_line(all_remarks(gpu, is_idle(gpu), others), max(0, width // 2))
    return glyphs.finish(ends(name, (*remarks, (" ", "")), width))  # type: ignore[arg-type]


def gpu_page(gpu: Gpu, width: int, glyphs: Glyphs) -> list[Line]:
    """All fields in one to three columns, throttle reasons with their meaning, MIG instances."""
    each = column_width(width)
    stale = gpu.state != "ok"
    blocks = [block_lines(block, gpu.gaps, each, stale) for block in _blocks(gpu)]
    # The UUID is there to be copied, so it is the one field that must not be cropped.
    uuid = fact_line(Fact("UUID", gpu.uuid, "uuid"), gpu.gaps, width)
    lines = [*_state_lines(gpu, width), uuid, *in_columns(blocks, width)]
    lines += [(), *_throttle_lines(gpu, width)]
    if gpu.mig_enabled:
        lines += [(), *_mig_lines(gpu, width, glyphs)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _state_lines(gpu: Gpu, width: int) -> list[Line]:
    if gpu.state == "lost":
        words = "The GPU is lost: the driver cannot reach it any more. Values are gone with it."
        return [*(((f" {t}", "error"),) for t in wrapped(f"! {words}", width - 2)), ()]
    if gpu.state == "stale":
        words = f"! The driver does not answer: these values are {gpu.age_s:.0f} s old."
        return [*(((f" {t}", "warn"),) for t in wrapped(words, width - 2)), ()]
    return []


def _blocks(gpu: Gpu) -> list[Block]:
    return [
        Block("Identity", _identity(gpu)),
        Block("Activity", _activity(gpu)),
        Block("Memory", _memory(gpu)),
        Block("Power and heat", _power(gpu)),
        Block("Clocks", _clocks(gpu)),
        Block("Links", _links(gpu)),
        Block("Health", _health(gpu)),
        Block("Modes", _modes(gpu)),
    ]


def _number(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f} {unit}"


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _size(value: int | None) -> str | None:
    return None if value is None else size(value)


def _rate(value: float | None) -> str | None:
    if value is None:
        return None
    short = rate(value)
    number = short.rstrip("GMk")
    return f"{number} {short[len(number) :]}B/s"


def _identity(gpu: Gpu) -> list[Fact]:
    node = None if gpu.numa_node is None else str(gpu.numa_node)
    return [
        Fact("name", gpu.name, "name"),
        Fact("PCI bus", gpu.pci_bus_id, "pci_bus_id"),
        Fact("NUMA node", node, "numa_node"),
        Fact("compute capab.", gpu.compute_capability, "compute_capability"),
    ]


def _activity(gpu: Gpu) -> list[Fact]:
    """The first two are shares of time; those of GPM say how full the GPU is."""
    return [
        _share("utilisation", gpu.utilization_pct, "utilization_pct", "any kernel ran"),
        _share("memory busy", gpu.memory_utilization_pct, "memory_utilization_pct", "of the time"),
        _share("SM active", gpu.sm_active_pct, "sm_active_pct"),
        _share("SM occupancy", gpu.sm_occupancy_pct, "sm_occupancy_pct"),
        _share("tensor active", gpu.tensor_active_pct, "tensor_active_pct"),
        _share("DRAM active", gpu.dram_active_pct, "dram_active_pct"),
        _share("encoder", gpu.encoder_pct, "encoder_pct"),
        _share("decoder", gpu.decoder_pct, "decoder_pct"),
    ]


def _share(label: str, value: float | None, field: str, aside: str = "") -> Fact:
    return Fact(label, _number(value, "%"), field, aside=aside)


def _memory(gpu: Gpu) -> list[Fact]:
    share = full_share(gpu)
    aside = "" if share is None else f"{100 * share:.0f} %"
    return [
        Fact("used", _size(gpu.memory_used_bytes), "memory_used_bytes", aside=aside),
        Fact("total", _size(gpu.memory_total_bytes), "memory_total_bytes"),
        Fact("driver's reserve", _size(gpu.memory_reserved_bytes), "memory_reserved_bytes"),
    ]


def _power(gpu: Gpu) -> list[Fact]:
    hot: Role = "warn" if is_hot(gpu) else ""
    low: Role = "warn" if is_limited(gpu) else ""
    return [
        Fact("power", _number(gpu.power_w, "W"), "power_w"),
        Fact("limit", _number(gpu.power_limit_w, "W"), "power_limit_w", low),
        Fact("default limit", _number(gpu.power_default_limit_w, "W"), "power_default_limit_w"),
        Fact("energy", _energy(gpu.energy_j), "energy_j", aside="since driver load"),
        Fact("temperature", _number(gpu.temperature_c, "°C"), "temperature_c", hot),
        Fact("slows down at", _number(gpu.temperature_slowdown_c, "°C"), "temperature_slowdown_c"),
        Fact("memory temp.", _number(gpu.memory_temperature_c, "°C"), "memory_temperature_c"),
        Fact("fan", _number(gpu.fan_pct, "%"), "fan_pct"),
    ]


def _energy(joules: float | None) -> str | None:
    if joules is None:
        return None
    return f"{joules / 3.6e3:.0f} Wh" if joules < 3.6e6 else f"{joules / 3.6e6:.1f} kWh"


def _clocks(gpu: Gpu) -> list[Fact]:
    most = "" if gpu.sm_clock_max_mhz is None else f"of {gpu.sm_clock_max_mhz}"
    state = None if gpu.performance_state is None else f"P{gpu.performance_state}"
    return [
        Fact("SM clock", _number(gpu.sm_clock_mhz, "MHz"), "sm_clock_mhz", aside=most),
        Fact("memory clock", _number(gpu.memory_clock_mhz, "MHz"), "memory_clock_mhz"),
        Fact("state", state, "performance_state", aside="P0 is the fastest"),
    ]


def _links(gpu: Gpu) -> list[Fact]:
    generation = None if gpu.pcie_generation is None else f"gen {gpu.pcie_generation}"
    width = None if gpu.pcie_width is None else f"x{gpu.pcie_width}"
    slow: Role = "warn" if slow_link(gpu) else ""
    return [
        Fact("PCIe", generation, "pcie_generation", slow, _of(gpu.pcie_generation_max)),
        Fact("PCIe width", width, "pcie_width", slow, _of(gpu.pcie_width_max)),
        Fact("PCIe in", _rate(gpu.pcie_rx_bytes_per_s), "pcie_rx_bytes_per_s"),
        Fact("PCIe out", _rate(gpu.pcie_tx_bytes_per_s), "pcie_tx_bytes_per_s"),
        Fact("NVLink in", _rate(gpu.nvlink_rx_bytes_per_s), "nvlink_rx_bytes_per_s"),
        Fact("NVLink out", _rate(gpu.nvlink_tx_bytes_per_s), "nvlink_tx_bytes_per_s"),
    ]


def _of(best: int | None) -> str:
    return "" if best is None else f"of {best}"


def _health(gpu: Gpu) -> list[Fact]:
    bad: Role = "error" if gpu.ecc_uncorrected else ""
    pending: Role = "warn" if gpu.remapped_rows_pending else ""
    failed: Role = "error" if gpu.remapped_rows_failed else ""
    return [
        Fact("ECC uncorrected", _count(gpu.ecc_uncorrected), "ecc_uncorrected", bad),
        Fact("ECC corrected", _count(gpu.ecc_corrected), "ecc_corrected"),
        Fact("remap pending", _yes(gpu.remapped_rows_pending), "remapped_rows_pending", pending),
        Fact("remap failed", _yes(gpu.remapped_rows_failed), "remapped_rows_failed", failed),
    ]


def _count(value: int | None) -> str | None:
    return None if value is None else str(value)


def _modes(gpu: Gpu) -> list[Fact]:
    mode = None if gpu.compute_mode is None else gpu.compute_mode.replace("_", " ")
    unified = "unified: the host's" if gpu.unified_memory else "its own"
    return [
        Fact("MIG", _on(gpu.mig_enabled), "mig_enabled"),
        Fact("compute mode", mode, "compute_mode"),
        Fact("persistence", _on(gpu.persistence_mode), "persistence_mode"),
        Fact("memory is", unified),
    ]


def _on(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _throttle_lines(gpu: Gpu, width: int) -> list[Line]:
    """What holds the clocks back now, and what that means."""
    title: Line = ((" What holds the clocks", "strong"),)
    if gpu.throttle_reasons is None:
        reason = gap_words(gpu.gaps.get("throttle_reasons"))
        return [title, ((f" – {reason}", "dim"),)]
    if not gpu.throttle_reasons:
        return [title, ((" nothing: they are as high as they go", ""),)]
    lines = [title]
    for name in gpu.throttle_reasons:
        words, meaning = THROTTLE_WORDS.get(name, (foreign(name).replace("_", " "), ""))
        lines.append(join([((f" {words}", _tone(name)),), ((meaning, "dim"),)]))
    return [fit_line(line, width) for line in lines]


def _tone(reason: str) -> Role:
    harmless = {"gpu_idle", "sw_power_cap", "sync_boost", "display_clock_setting"}
    return "" if reason in harmless else "warn"


def _mig_lines(gpu: Gpu, width: int, glyphs: Glyphs) -> list[Line]:
    """One line an instance; NVML has no utilisation for them, and the page says so."""
    lines: list[Line] = [
        ((" MIG instances", "strong"), ("  NVML gives no utilisation for them", "dim"))
    ]
    for one in gpu.mig_instances:
        lines += _instance_lines(gpu.index, one, glyphs)
    if not gpu.mig_instances:
        lines.append(((" none yet: sudo nvidia-smi mig -cgi PROFILE -C makes them", "dim"),))
    return [fit_line(line, width) for line in lines]


def _instance_lines(gpu: int, one: MigInstance, glyphs: Glyphs) -> list[Line]:
    """Its UUID has a line of its own: it is what CUDA_VISIBLE_DEVICES takes."""
    used, total = one.memory_used_bytes, one.memory_total_bytes
    share = used / total if used is not None and total else None
    name = f" {gpu}:{one.index:<2} {foreign(one.profile or '–'):12} "
    text = f" {size(used):>9} of {size(total)}"
    ids = f"  GI {_or_dash(one.gpu_instance)}  CI {_or_dash(one.compute_instance)}"
    first: Line = ((name, ""), *bar(share, 12, glyphs), (text, ""), (ids, "dim"))
    return [first, ((f"      {foreign(one.uuid or '–')}", "dim"),)]


def _or_dash(number: int | None) -> str:
    return "–" if number is None else str(number)
