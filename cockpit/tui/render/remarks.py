"""The word behind a GPU row: what a person should know about this GPU now, worst first.

A sign (``!``) and a word, never a colour alone. What is normal is dim; what is nothing is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cockpit.model.event import Severity
from cockpit.model.finding_subject import gpus_of
from cockpit.model.gpu import Gpu
from cockpit.model.history import History
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import gib
from cockpit.model.time import moment
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import join, line_width
from cockpit.tui.render.finding_words import ROLES, cause_word

HEAT = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
POWER_BRAKE = "hw_power_brake_slowdown"
BUSY_PCT = 20.0
FULL_SHARE = 0.97
XID_FOR_S = 600.0

THROTTLE_WORDS: dict[str, tuple[str, str]] = {
    "gpu_idle": ("idle", "nothing to do: clocks are down"),
    "applications_clocks_setting": ("set clocks", "held at the application clocks somebody set"),
    "sw_power_cap": ("power cap", "at its power limit: normal under full load"),
    "hw_slowdown": ("hardware slowdown", "the board slows down: heat, power brake or power loss"),
    "sync_boost": ("sync boost", "kept at the clock of the slowest GPU of its group"),
    "sw_thermal_slowdown": ("heat", "too hot: the driver lowers the clocks"),
    "hw_thermal_slowdown": ("heat, hard", "much too hot: the hardware halves the clocks or more"),
    "hw_power_brake_slowdown": ("power brake", "the server's power supply asks for less power"),
    "display_clock_setting": ("display clocks", "held by the display's clock setting"),
}
"""Throttle reason → short word, and what it means."""

_FINDING_WEIGHTS: dict[Severity, int] = {"error": 88, "warning": 63, "info": 10}
"""Below a lost GPU and a fresh Xid; errors above what slows, warnings above a slow link."""


class Remark(NamedTuple):
    """One remark; of several the highest weight comes first."""

    weight: int
    text: str
    role: Role


def is_hot(gpu: Gpu) -> bool:
    """Slowed by heat, or within 5 °C of the temperature where that starts."""
    if HEAT & set(gpu.throttle_reasons or ()):
        return True
    limit = gpu.temperature_slowdown_c or 90
    return gpu.temperature_c is not None and gpu.temperature_c >= limit - 5


def is_idle(gpu: Gpu, history: History | None = None) -> bool:
    """Nothing ran in the last 5 samples: one quiet sample between two steps is not idle."""
    if gpu.state != "ok" or gpu.utilization_pct is None or gpu.utilization_pct >= 1.0:
        return False
    recent = history.values(gpu.index, "util", 5) if history else []
    return all(value is None or value < 1.0 for value in recent)


def is_busy(gpu: Gpu) -> bool:
    """Busy enough for its links to run at full width."""
    return gpu.utilization_pct is not None and gpu.utilization_pct >= BUSY_PCT


def full_share(gpu: Gpu) -> float | None:
    """Used share of the memory, 0 to 1."""
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_total_bytes


def is_limited(gpu: Gpu) -> bool:
    """Somebody lowered the power limit below the board's default."""
    limit, default = gpu.power_limit_w, gpu.power_default_limit_w
    return limit is not None and default is not None and limit < default - 0.5


def slow_link(gpu: Gpu) -> str | None:
    """``x4`` or ``gen1``: a PCIe link below its best while busy (idle links rest)."""
    if not is_busy(gpu):
        return None
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        return f"x{gpu.pcie_width}"
    generation, best = gpu.pcie_generation, gpu.pcie_generation_max
    return f"gen{generation}" if generation and best and generation < best else None


def gpu_remarks(gpu: Gpu, idle: bool = False) -> list[Remark]:
    """What the readings of this GPU alone say, worst first."""
    if gpu.state == "lost":
        return [Remark(100, "! lost", "error")]
    found = [*_state(gpu), *_health(gpu), *_throttle(gpu), *_modes(gpu)]
    if idle:
        found.append(Remark(5, "idle", "dim"))
    return sorted(found, key=lambda remark: -remark.weight)


def _state(gpu: Gpu) -> Iterable[Remark]:
    if gpu.state == "stale":
        yield Remark(95, f"! stale {gpu.age_s:.0f}s", "warn")
    if (link := slow_link(gpu)) is not None:
        yield Remark(60, f"! PCIe {link}", "warn")
    if (full_share(gpu) or 0.0) > FULL_SHARE:
        yield Remark(50, "full", "warn")


def _health(gpu: Gpu) -> Iterable[Remark]:
    if gpu.ecc_uncorrected:
        yield Remark(85, f"! ECC {gpu.ecc_uncorrected}", "error")
    if gpu.remapped_rows_failed:
        yield Remark(84, "! remap failed", "error")
    elif gpu.remapped_rows_pending:
        yield Remark(70, "! remap", "warn")


def _throttle(gpu: Gpu) -> Iterable[Remark]:
    reasons = set(gpu.throttle_reasons or ())
    if reasons & HEAT:
        yield Remark(80, "! heat", "error")
    if POWER_BRAKE in reasons:
        yield Remark(79, "! power brake", "error")
    if "hw_slowdown" in reasons and not reasons & {*HEAT, POWER_BRAKE}:
        yield Remark(78, "! hw slowdown", "error")
    if is_limited(gpu):
        capped = "sw_power_cap" in reasons
        yield Remark(40, f"limit {gpu.power_limit_w:.0f} W", "warn" if capped else "")
    elif "sw_power_cap" in reasons:
        yield Remark(4, "cap", "dim")
    if "applications_clocks_setting" in reasons:
        yield Remark(20, "set clocks", "")


def _modes(gpu: Gpu) -> Iterable[Remark]:
    if gpu.mig_enabled:
        yield Remark(30, f"MIG {len(gpu.mig_instances)}", "")
    if gpu.unified_memory:
        yield Remark(29, "unified", "dim")
    if gpu.compute_mode == "prohibited":
        yield Remark(28, "prohibited", "")
    elif gpu.compute_mode == "exclusive_process":
        yield Remark(27, "exclusive", "dim")


def snapshot_remarks(snapshot: Snapshot) -> dict[int, list[Remark]]:
    """What the rest of the snapshot says about each GPU: strays, Xids of ten minutes, findings."""
    found: dict[int, list[Remark]] = {}
    for gpu, held in _stray_bytes(snapshot).items():
        words = f"! stray {gib(held, 0)}G" if held else "! stray"
        found.setdefault(gpu, []).append(Remark(65, words, "warn"))
    for gpu, xid in recent_xids(snapshot).items():
        found.setdefault(gpu, []).append(Remark(90, f"! Xid {xid}", "error"))
    for finding in snapshot.findings:
        sign = "" if finding.severity == "info" else "! "
        words = f"{sign}{cause_word(finding)}"
        remark = Remark(_FINDING_WEIGHTS[finding.severity], words, ROLES[finding.severity])
        for gpu in gpus_of(finding, snapshot.processes):
            found.setdefault(gpu, []).append(remark)
    return found


def _stray_bytes(snapshot: Snapshot) -> dict[int, int]:
    held: dict[int, int] = {}
    for process in snapshot.processes:
        for use in process.devices if process.stray else ():
            held[use.gpu] = held.get(use.gpu, 0) + (use.vram_bytes or 0)
    return held


def recent_xids(snapshot: Snapshot) -> dict[int, int]:
    """GPU → its newest Xid of the last ten minutes."""
    now = moment(snapshot.taken_at) or 0.0
    return {
        event.gpu: event.xid
        for event in snapshot.events
        if event.gpu is not None
        and event.xid is not None
        and now - (moment(event.at) or 0.0) <= XID_FOR_S
    }


def all_remarks(gpu: Gpu, idle: bool, others: Sequence[Remark] = ()) -> list[Remark]:
    """Both kinds together, worst first, each said once."""
    kept: dict[str, Remark] = {}
    for one in [*gpu_remarks(gpu, idle), *others]:
        same = one.text.removeprefix("! ").partition(" ")[0]
        kept[same] = _joined(kept[same], one) if same in kept else one
    return sorted(kept.values(), key=lambda remark: -remark.weight)


def _joined(one: Remark, other: Remark) -> Remark:
    """``! heat`` of a reading and of a finding, ``limit 500 W`` and ``! limit``: the longer words,
    the graver sign."""
    grave, light = (one, other) if one.weight >= other.weight else (other, one)
    words = max(one.text.removeprefix("! "), other.text.removeprefix("! "), key=len)
    sign = "! " if "! " in (grave.text[:2], light.text[:2]) else ""
    return Remark(grave.weight, f"{sign}{words}", grave.role or light.role)


def remark_line(remarks: Sequence[Remark], width: int) -> Line:
    """As many whole remarks as fit, one sign in front of them all.

    The first one loses words from its end rather than letters: ``! stray`` of ``! stray 38G``.
    """
    if not remarks:
        return ()
    line: Line = ((_whole_words(remarks[0].text, width), remarks[0].role),)
    for _, text, role in remarks[1:]:
        longer = join((line, ((text.removeprefix("! "), role),)), separator=" · ")
        if line_width(longer) > width:
            break
        line = longer
    return line


def _whole_words(text: str, width: int) -> str:
    while len(text) > width and " " in text[2:]:
        text = text.rpartition(" ")[0]
    return text
