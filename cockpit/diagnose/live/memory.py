"""GPU memory that will not last: a leak and the time until full, fragmentation, retries.

Attached runs are judged by their allocator, others by what the driver sees, with less confidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.past import utilization
from cockpit.diagnose.live.view import SERVERS, View
from cockpit.model.finding import Evidence
from cockpit.model.gpu import Gpu
from cockpit.model.process import DeviceUse, Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.run_history import LEAST_SAMPLES, Trend, robust_slope
from cockpit.model.text import GIB, MIB, size

SOON_S = 600.0
"""Full within so long is an error, not a warning."""
LEAST_STEPS = 8
LEAST_PER_STEP_BYTES = 64 << 10
SLOWEST_S = 8 * 3600.0
"""A rise that fills the card later than this may well be a cache that ends."""
STUCK_SHARE = 0.15
NEARLY_FULL = 0.9
RETRIES_PER_MIN = 3.0
WARM_UP_S = 5.0
"""Of a process's memory as the driver sees it: contexts, libraries, the first activations."""
WATCHED_S = 12.0
FEWEST_CHANGES = 12
BIN_S = 1.0
RISING = 0.7
"""Share of the last seconds, or ticks, in which the driver's number rose."""
BUSY_PCT = 15.0
_RUN = "attached run"


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    for run in view.runs.values():
        for device in run.devices:
            yield from _of_run(view, run, device)
    for process in view.snapshot.processes:
        if process.pid not in view.runs and process.framework not in SERVERS:
            for use in process.devices:
                yield from _seen_by_driver(view, process, use)


def _of_run(view: View, run: Run, device: RunDevice) -> Iterator[Claim]:
    gpu = view.gpus.get(device.gpu)
    if _still_rises(view, run, device):
        trend = view.history.trend(run.pid, device.gpu, "allocated")
        if trend is not None and _leaks(gpu, device, trend):
            yield _growth(run, device, gpu, trend)
    stuck = _stuck_bytes(device)
    if stuck is not None and _is_nearly_full(gpu, device):
        yield _fragmented(run, device, stuck)
    rate = view.history.per_minute(run.pid, device.gpu) if device.alloc_retries else None
    if rate is not None and rate >= RETRIES_PER_MIN:
        yield _retries(run, device, rate)


# -- growth


def _still_rises(view: View, run: Run, device: RunDevice) -> bool:
    """Cheap, before any statistics: the last third is above what was before it."""
    values = view.history.values(run.pid, device.gpu, "allocated")
    known = [value for value in values if value is not None]
    third = len(known) // 3
    return third >= LEAST_SAMPLES // 3 and max(known[-third:]) > max(known[third:-third])


def _leaks(gpu: Gpu | None, device: RunDevice, trend: Trend) -> bool:
    """It rises over steps, and would fill the card in a time that matters."""
    if trend.steady or trend.bytes_per_s <= 0.0:
        return False
    if trend.steps is not None and trend.steps < LEAST_STEPS:
        return False
    if trend.bytes_per_step is not None and trend.bytes_per_step < LEAST_PER_STEP_BYTES:
        return False
    full_s = _full_in_s(gpu, device, trend)
    return full_s is None or full_s <= SLOWEST_S


def _full_in_s(gpu: Gpu | None, device: RunDevice, trend: Trend) -> float | None:
    """Allocated may grow into the cache before the card is asked for more."""
    if gpu is None or gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    free = max(0, gpu.memory_total_bytes - gpu.memory_used_bytes)
    cache = max(0, (device.reserved_bytes or 0) - (device.allocated_bytes or 0))
    return trend.full_in_s(free + cache)


def _growth(run: Run, device: RunDevice, gpu: Gpu | None, trend: Trend) -> Claim:
    full_s = _full_in_s(gpu, device, trend)
    per_step = trend.bytes_per_step
    over = f"{trend.steps} steps" if trend.steps else f"{trend.span_s:.0f} s"
    words = f"Allocated memory rose by {rate_words(trend.bytes_per_s, per_step)} over {over}"
    says = [said(f"{words}, to {size(device.allocated_bytes)}.", _RUN)]
    says += _full_words(gpu, full_s)
    return _growth_claim(
        pid=run.pid,
        gpu=device.gpu,
        rate=f"+{_step_words(per_step)}" if per_step else f"+{size(trend.bytes_per_s * 60)}/min",
        full_s=full_s,
        says=tuple(says),
        confidence=0.9 if per_step else 0.75,
        facts={"bytes_per_step": per_step, "bytes_per_min": trend.bytes_per_s * 60},
    )


def _growth_claim(
    *,
    pid: int,
    gpu: int,
    rate: str,
    full_s: float | None,
    says: tuple[Evidence, ...],
    confidence: float,
    facts: dict[str, float | None],
    hold_s: float = 4.0,
) -> Claim:
    until = f", full in {duration(full_s)}" if full_s is not None else ""
    soon = full_s is not None and full_s < SOON_S
    rounded = {name: round(value) for name, value in facts.items() if value is not None}
    return Claim(
        cause="oom_growth",
        title=f"GPU {gpu}: pid {pid} {rate}{until}",
        says=says,
        confidence=confidence,
        gpu=gpu,
        pid=pid,
        severity="error" if soon else "warning",
        facts={**rounded, "full_in_s": None if full_s is None else round(full_s)},
        not_=("not the warm-up: the first steps were left out",),
        hold_s=hold_s,
        clear_s=20.0,
    )


def _full_words(gpu: Gpu | None, full_s: float | None) -> list[Evidence]:
    if gpu is None or full_s is None:
        return []
    used, total = size(gpu.memory_used_bytes), size(gpu.memory_total_bytes)
    words = f"GPU {gpu.index} has {used} of {total} in use: full in about {duration(full_s)}."
    return [said(words)]


def rate_words(bytes_per_s: float, bytes_per_step: float | None) -> str:
    """``52 MiB a step (3.1 GiB a minute)``."""
    minute = f"{size(bytes_per_s * 60)} a minute"
    return minute if bytes_per_step is None else f"{size(bytes_per_step)} a step ({minute})"


def _step_words(bytes_per_step: float) -> str:
    return f"{size(bytes_per_step)}/step"


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``2 h``: no more than a title needs."""
    if seconds < 100:
        return f"{max(seconds, 0.0):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


# -- growth as the driver sees it


def _seen_by_driver(view: View, process: Process, use: DeviceUse) -> Iterator[Claim]:
    rise = view.past.rise(process.pid, use.gpu)
    if rise is None or len(rise.changes) < FEWEST_CHANGES or use.mig_instance is not None:
        return
    interval_s = max(view.snapshot.sampler.interval_s, BIN_S)
    watched_s = max(WATCHED_S, FEWEST_CHANGES * interval_s)
    begin_s = view.now_s - watched_s
    if rise.changes[1][0] > begin_s - WARM_UP_S:
        return
    recent = [one for one in rise.changes if one[0] >= begin_s]
    rising = {int((at - begin_s) / interval_s) for at, _ in recent}
    falls = any(later[1] < one[1] for one, later in pairwise(recent))
    if falls or len(rising) < RISING * watched_s / interval_s:
        return
    # Loading a checkpoint fills a card as evenly, but computes nothing.
    if (view.past.mean(use.gpu, utilization, watched_s) or 0.0) < BUSY_PCT:
        return
    slope, steady = robust_slope([(at - begin_s, float(held)) for at, held in recent])
    if not steady and slope > MIB:
        yield _driver_growth(view.gpus.get(use.gpu), process, use, slope)


def _driver_growth(gpu: Gpu | None, process: Process, use: DeviceUse, slope: float) -> Claim:
    full_s = None
    if gpu is not None and gpu.memory_total_bytes and gpu.memory_used_bytes is not None:
        full_s = max(0, gpu.memory_total_bytes - gpu.memory_used_bytes) / slope
    words = f"Its GPU memory rose without a pause by {rate_words(slope, None)}, to"
    return _growth_claim(
        pid=process.pid,
        gpu=use.gpu,
        rate=f"+{size(slope * 60)}/min",
        full_s=full_s,
        says=(said(f"{words} {size(use.vram_bytes)}."), *_full_words(gpu, full_s)),
        confidence=0.6,
        facts={"bytes_per_min": slope * 60},
        # What fills the card slowly may as well be a cache that ends.
        hold_s=4.0 if full_s is not None and full_s < SOON_S else 30.0,
    )


# -- a card that is full


def _is_nearly_full(gpu: Gpu | None, device: RunDevice) -> bool:
    """Where memory is plentiful a fragmented cache hurts nobody."""
    if gpu is None or gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return bool(device.ooms)
    return gpu.memory_used_bytes > NEARLY_FULL * gpu.memory_total_bytes or bool(device.ooms)


def _stuck_bytes(device: RunDevice) -> int | None:
    """Reserved beyond what was ever alive at once, and split so that it cannot be given back.

    Between two steps live tensors are few and the cache is large: that is no fragmentation.
    """
    reserved, peak = device.reserved_bytes, device.allocated_peak_bytes
    split = device.inactive_split_bytes
    if reserved is None or peak is None or split is None:
        return None
    stuck = min(reserved - peak, split)
    return stuck if stuck >= max(GIB, STUCK_SHARE * reserved) else None


def _fragmented(run: Run, device: RunDevice, stuck: int) -> Claim:
    reserved, peak = size(device.reserved_bytes), size(device.allocated_peak_bytes)
    words = f"{reserved} are reserved, although no more than {peak} were ever allocated at once."
    split = f"{size(device.inactive_split_bytes)} lie in split blocks, which empty_cache keeps."
    block = device.largest_free_block_bytes
    largest = (said(f"The largest free block has {size(block)}.", _RUN),) if block else ()
    return Claim(
        cause="oom_fragmentation",
        title=f"GPU {device.gpu}: fragmented, {size(stuck)} stuck",
        says=(said(words, _RUN), said(split, _RUN), *largest),
        confidence=0.85 if device.ooms or device.alloc_retries else 0.75,
        gpu=device.gpu,
        pid=run.pid,
        severity="warning",
        facts={"stuck_bytes": stuck, "torch_version": run.torch_version},
        hold_s=8.0,
        clear_s=30.0,
        at_once=True,
    )


def _retries(run: Run, device: RunDevice, rate: float) -> Claim:
    words = f"The allocator found the card full {rate:.0f} times in the last minute, flushed its"
    return Claim(
        cause="alloc_retries",
        title=f"GPU {device.gpu}: {rate:.0f} allocator retries/min",
        says=(
            said(f"{words} cache and asked again ({device.alloc_retries} times in all).", _RUN),
            said(f"Reserved: {size(device.reserved_bytes)}.", _RUN),
        ),
        confidence=0.88,
        gpu=device.gpu,
        pid=run.pid,
        facts={"retries_per_min": round(rate, 1), "retries": device.alloc_retries},
        hold_s=5.0,
        clear_s=30.0,
    )
