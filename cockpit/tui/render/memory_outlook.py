"""Where the memory of a run is going, how it is fragmented, and what may be said about it.

A sentence of advice stands there only when the numbers of this run carry it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.run import RunDevice
from cockpit.model.run_history import Trend
from cockpit.model.text import GIB, MIB, gib, size
from cockpit.tui.line import Line, Role, Span
from cockpit.tui.render.cells import line_width, merged
from cockpit.tui.render.memory_bar import Place, Slice, amount
from cockpit.tui.render.memory_subject import OTHERS, Subject

STUCK_BYTES, STUCK_SHARE = GIB, 0.10
"""From here on split blocks are worth a sentence."""
ROUNDING_BYTES, ROUNDING_SHARE = GIB, 0.10
FULL_SHARE = 0.92
"""A GPU this full makes returnable cache worth a sentence."""


def packed(parts: Sequence[Line], width: int) -> list[Line]:
    """Parts side by side with the wrap between them, never inside."""
    lines: list[Line] = []
    for part in parts:
        if lines and line_width(lines[-1]) + line_width(part) + 3 <= width:
            lines[-1] = merged((*lines[-1], ("   ", ""), *part))
        else:
            lines.append(part if not lines else merged(((" ", ""), *part)))
    return lines


def trend_lines(subject: Subject, device: RunDevice, place: Place, width: int) -> list[Line]:
    """Allocated by step, reserved by minute, and when it is full."""
    history, pid, gpu = subject.history, subject.pid, device.gpu
    allocated = history.trend(pid, gpu, "allocated")
    reserved = history.trend(pid, gpu, "reserved")
    head: Span = (" trend     ", "label")
    if allocated is None or reserved is None:
        return [(head, ("watching: a trend needs some samples", "dim"))]
    parts: list[Line] = [(head, *_trend_words("allocated", allocated))]
    parts.append(_trend_words("reserved", reserved))
    ends_in = time_until_full(allocated, reserved, device, place)
    if ends_in is not None:
        role: Role = "error" if ends_in < 600 else "warn"
        parts.append((("full in about ", role), (long_duration(ends_in), role)))
    return packed(parts, width)


def _trend_words(name: str, trend: Trend) -> Line:
    """``allocated +0.0 MiB/step (steady)``, ``reserved +412 MiB/min``."""
    if trend.steady:
        return ((f"{name} ", "label"), ("steady", ""))
    if trend.bytes_per_step is not None and name == "allocated":
        text = f"{_signed(trend.bytes_per_step)}/step"
    else:
        text = f"{_signed(trend.bytes_per_s * 60)}/min"
    return ((f"{name} ", "label"), (text, "warn" if trend.bytes_per_s > 0 else ""))


def _signed(bytes_: float) -> str:
    sign = "+" if bytes_ >= 0 else "−"
    value = abs(bytes_)
    if value >= 10 * GIB:
        return f"{sign}{value / GIB:.0f} GiB"
    return f"{sign}{value / MIB:.{1 if value < 100 * MIB else 0}f} MiB"


def time_until_full(
    allocated: Trend, reserved: Trend, device: RunDevice, place: Place
) -> float | None:
    """At this slope; allocated may still grow into the cache before the GPU is asked for more."""
    if place.total_bytes is None or place.used_bytes is None:
        return None
    free = max(0, place.total_bytes - place.used_bytes)
    times = [reserved.full_in_s(free)]
    if reserved.steady:
        cache = (device.reserved_bytes or 0) - (device.allocated_bytes or 0)
        times.append(allocated.full_in_s(free + max(0, cache)))
    known = [one for one in times if one is not None]
    return min(known) if known else None


def long_duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``2 h 08 min``, ``3 d``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d"


def fragmentation_lines(device: RunDevice, slices: Sequence[Slice], width: int) -> list[Line]:
    """The share of reserved that is free but stuck, and the largest request that still fits."""
    stuck, reserved = amount(slices, "stuck"), device.reserved_bytes
    if stuck is None or not reserved:
        return []
    role: Role = "warn" if is_much_stuck(device, slices) else ""
    parts: list[Line] = [((" fragmentation ", "label"), (f"{100 * stuck / reserved:.0f} %", role))]
    if device.largest_free_block_bytes is not None:
        block = size(device.largest_free_block_bytes)
        words = ": larger ones go to the driver"
        parts.append((("largest free block ", "label"), (block, ""), (words, "dim")))
    return packed(parts, width)


def is_much_stuck(device: RunDevice, slices: Sequence[Slice]) -> bool:
    """Split blocks hold enough to matter."""
    stuck, reserved = amount(slices, "stuck") or 0, device.reserved_bytes or 0
    return stuck >= STUCK_BYTES and stuck >= STUCK_SHARE * reserved


def advice_of(
    subject: Subject, device: RunDevice, slices: Sequence[Slice], place: Place
) -> list[tuple[str, Role]]:
    """Sentences that these numbers carry, the most pressing first."""
    history, pid, gpu = subject.history, subject.pid, device.gpu
    texts: list[tuple[str, Role]] = []
    if device.ooms:
        times = "once" if device.ooms == 1 else f"{device.ooms} times"
        texts.append((f"It has run out of memory {times} and went on.", "error"))
    trend = history.trend(pid, gpu, "allocated")
    if trend is not None and not trend.steady and trend.bytes_per_s > 0:
        texts.append((_leak_words(trend, subject.key("census")), "warn"))
    stuck = amount(slices, "stuck") or 0
    if is_much_stuck(device, slices):
        words = f"{gib(stuck)} GiB cannot be given back by empty_cache. expandable_segments would"
        texts.append((f"{words} avoid it{_see_fixes(subject)}.", "warn"))
    texts += _cache_words(subject, device, slices, place)
    return texts


def _see_fixes(subject: Subject) -> str:
    return f": see {subject.key('fix')}" if subject.key("fix") else ""


def _leak_words(trend: Trend, key: str) -> str:
    over = f"{trend.steps:,} steps" if trend.steps else long_duration(trend.span_s)
    return (
        f"Live tensors grow without a pause over {over}: something keeps them, such as losses or "
        f"outputs in a list: see {key}."
    )


def _cache_words(
    subject: Subject, device: RunDevice, slices: Sequence[Slice], place: Place
) -> list[tuple[str, Role]]:
    texts: list[tuple[str, Role]] = []
    rate = subject.history.per_minute(subject.pid, device.gpu, "retries")
    if rate and rate >= 0.5:
        words = "Retries rise: the allocator finds the GPU full, flushes its cache and asks again"
        texts.append((f"{words}; each of them stalls the step.", "warn"))
    returnable = amount(slices, "returnable") or 0
    full = place.total_bytes and (place.used_bytes or 0) > FULL_SHARE * place.total_bytes
    if full and returnable >= GIB and subject.framework not in OTHERS:
        words = f"The GPU is almost full, and {gib(returnable)} GiB of it are cache that"
        texts.append((f"{words} empty_cache gives back{_see_fixes(subject)}.", "warn"))
    asked, allocated = device.requested_bytes, device.allocated_bytes or 0
    lost = allocated - asked if asked is not None else 0
    if lost >= ROUNDING_BYTES and lost >= ROUNDING_SHARE * allocated:
        texts.append((f"{gib(lost)} GiB are lost to rounding of sizes.", ""))
    return texts
