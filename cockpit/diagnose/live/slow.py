"""Runs that leave their GPU waiting: for data, at a sync in each step, or for tiny launches.

NVML raises the suspicion; a few looks at the training thread's stack over some ten seconds decide.
A GPU near 100 % at high power whose run waits in ``.item()`` is healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cockpit.diagnose.live import data
from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.look import Look
from cockpit.diagnose.live.past import clock_share, power_share, utilization
from cockpit.diagnose.live.power import normal_cap
from cockpit.diagnose.live.ranks import spins
from cockpit.diagnose.live.view import SERVERS, View, is_rank, main_gpu
from cockpit.diagnose.live.where import Doing, doing, most_common_frame, place, short_place
from cockpit.model.finding import Evidence
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process

WINDOW_S = 12.0
SUSPICIOUS_AFTER_S = 5.0
STARVED_PCT = 80.0
GAPS_PCT = 85.0
LOW_POWER = 0.5
FULL_CLOCK = 0.85
FEW_SM_PCT = 35.0
TINY_SM_PCT = 15.0
MUCH_DRAM_PCT = 35.0
BUSY_CPU_PCT = 80.0
FLAT_PCT = 10.0
LEAST_LOOKS = 5
LEAST_SPAN_S = 9.0
"""The workers of a loader may take ten seconds to start, at the beginning of each epoch."""
MOST = 0.5
MOST_BUSY = 0.6
PER_GPU = 3
"""Of the processes on one GPU only so many are looked at."""


@dataclass(frozen=True)
class Case:
    """One process on its GPU, with what was seen of both."""

    gpu: Gpu
    process: Process
    util_pct: float
    power: float | None
    """Mean share of the limit."""
    looks: tuple[Look, ...]
    """Those with frames."""
    counts: Counter[Doing]

    def share(self, *kinds: Doing) -> float:
        """Of the looks that show one of these."""
        return sum(self.counts[kind] for kind in kinds) / len(self.looks)


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    for gpu in view.gpus.values():
        if gpu.mig_enabled or not view.past.covers(gpu.index, SUSPICIOUS_AFTER_S):
            continue
        util = view.past.mean(gpu.index, utilization, WINDOW_S)
        power = view.past.mean(gpu.index, power_share, WINDOW_S)
        if util is None or (util >= GAPS_PCT and not _works_little(view, gpu, power)):
            continue
        for process in _working(view, gpu, util):
            case = _case(view, gpu, process, util, power)
            if case is not None:
                yield from _judge(case, view)


def _works_little(view: View, gpu: Gpu, power: float | None) -> bool:
    """Kernels run without a pause, but small ones: GPM says so, or low power at full clock."""
    sm = view.past.mean(gpu.index, lambda one: one.sm_active_pct, WINDOW_S)
    dram = view.past.mean(gpu.index, lambda one: one.dram_active_pct, WINDOW_S)
    if sm is not None:
        return sm < FEW_SM_PCT and (dram or 0.0) < MUCH_DRAM_PCT
    full = clock_share(gpu)
    memory = gpu.memory_utilization_pct
    if power is None or full is None or (memory is not None and memory > MUCH_DRAM_PCT):
        return False
    return power < LOW_POWER and full >= FULL_CLOCK


def _working(view: View, gpu: Gpu, util: float) -> list[Process]:
    """Runs that do something: an idle notebook is not looked at."""
    here = [
        (process, use.sm_pct)
        for process, use in view.on_gpu.get(gpu.index, ())
        if process.visible and process.framework not in SERVERS and process.kind != "graphics"
    ]
    alone = len(here) == 1
    found = [
        (sm or 0.0, process)
        for process, sm in here
        if _works(view, process, sm, alone, util) and main_gpu(process) == gpu.index
    ]
    found.sort(key=lambda one: -one[0])
    return [process for _, process in found[:PER_GPU]]


def _works(view: View, process: Process, sm: float | None, alone: bool, util: float) -> bool:
    if process.stray is not None or process.state in ("T", "t", "Z", "X"):
        return False
    run = view.runs.get(process.pid)
    active = (sm or 0.0) >= 1.0 or view.past.was_active(process.pid)
    if not active and not (run and run.steps_per_s) and not (alone and util >= 1.0):
        return False
    # One that waits for another rank is for ranks.py.
    return not (is_rank(process) and spins(view, process))


def _case(view: View, gpu: Gpu, process: Process, util: float, power: float | None) -> Case | None:
    """Wishes for looks, and gathers those that there are; None until there are enough."""
    seen = view.looks.want(process.pid, process.start_ticks)
    looks = tuple(look for look in seen if look.frames)
    if len(looks) < LEAST_LOOKS or looks[-1].at_s - looks[0].at_s < LEAST_SPAN_S:
        return None
    counts = Counter(doing(look.frames) for look in looks)
    return Case(gpu, process, util, power, looks, counts)


def _judge(case: Case, view: View) -> Iterator[Claim]:
    if case.share("compile") > 0.3:
        return  # the first steps of torch.compile
    if case.util_pct < STARVED_PCT and case.share("loader", "loading") >= MOST:
        yield data.starved(view, case.gpu, case.process, case.util_pct, case.looks)
    elif _is_syncing(view, case):
        yield _sync(case)
    elif _is_launching(view, case):
        yield _launch(case)


def _not(case: Case) -> tuple[str, ...]:
    cap = normal_cap(case.gpu)
    return (cap,) if cap is not None else ()


def _gpu_words(case: Case) -> Evidence:
    words = f"GPU {case.gpu.index} was {case.util_pct:.0f} % busy over the last {WINDOW_S:.0f} s"
    if case.power is not None:
        words += f", at {100 * case.power:.0f} % of its power limit"
    return said(f"{words}.")


# -- sync


def _is_syncing(view: View, case: Case) -> bool:
    """Near 100 % a wait in ``.item()`` is healthy, unless next to nothing runs all the time."""
    if case.util_pct < GAPS_PCT:
        return case.share("sync") >= MOST
    sm = view.past.mean(case.gpu.index, lambda one: one.sm_active_pct, WINDOW_S)
    return sm is not None and sm < TINY_SM_PCT and case.share("sync") >= MOST_BUSY


def _sync(case: Case) -> Claim:
    frame = most_common_frame(case.looks, "sync")
    where = short_place(frame)
    text = f": {frame.text.strip()[:60]}" if frame is not None and frame.text else ""
    count, all_looks = case.counts["sync"], len(case.looks)
    seen = f"In {count} of {all_looks} looks the training thread read a value of the GPU"
    return Claim(
        cause="sync",
        title=f"GPU {case.gpu.index}: pid {case.process.pid} syncs at {where or 'each step'}",
        says=(_gpu_words(case), said(f"{seen}{f' at {where}' if where else ''}{text}.", "stacks")),
        confidence=0.65 + 0.25 * case.share("sync"),
        gpu=case.gpu.index,
        pid=case.process.pid,
        facts={"place": place(frame), "lines": [where] if where else None, "looks": all_looks},
        not_=(f"not data: the loader was seen in {case.counts['loader']} looks", *_not(case)),
        hold_s=3.0,
        clear_s=20.0,
    )


# -- launches


def _is_launching(view: View, case: Case) -> bool:
    """The CPU is the bottleneck: it launches without a pause, and the GPU has little to do."""
    if is_rank(case.process) and case.share("collective") > 0.2:
        return False
    cpu = case.process.cpu_pct
    if cpu is None or cpu < BUSY_CPU_PCT or case.util_pct < 15.0:
        return False
    kinds: tuple[Doing, ...] = ("dispatch", "own") if case.util_pct >= 50.0 else ("dispatch",)
    if case.share(*kinds) < MOST_BUSY:
        return False
    return _is_even(view, case.gpu) and _works_little(view, case.gpu, case.power)


def _is_even(view: View, gpu: Gpu) -> bool:
    """Launches trickle all the time; a checkpoint or an epoch's end leaves whole seconds empty."""
    known = [utilization(one) for one in view.past.window(gpu.index, WINDOW_S)]
    busy = sum(1 for one in known if one is not None and one >= FLAT_PCT)
    return busy >= 0.8 * len(known)


def _launch(case: Case) -> Claim:
    gpu = case.gpu
    frame = most_common_frame(case.looks, "dispatch") or most_common_frame(case.looks, "own")
    active = gpu.sm_active_pct
    sm = (
        (said(f"Only {active:.0f} % of the SM time was used (GPM)."),) if active is not None else ()
    )
    busy = case.counts["dispatch"] + case.counts["own"]
    seen = f"In {busy} of {len(case.looks)} looks the training thread was launching operations"
    return Claim(
        cause="launch_bound",
        title=f"GPU {gpu.index}: tiny kernels, pid {case.process.pid} launches",
        says=(
            _gpu_words(case),
            *sm,
            said(f"{seen}; its process uses {case.process.cpu_pct:.0f} % of a core.", "stacks"),
        ),
        confidence=0.85 if active is not None else 0.75,
        gpu=gpu.index,
        pid=case.process.pid,
        facts={"place": place(frame), "sm_active_pct": active, "looks": len(case.looks)},
        not_=_not(case),
        hold_s=3.0,
        clear_s=20.0,
    )
