"""A training that computes on the CPU although a GPU has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.look import CpuRun, LookFrame
from cockpit.diagnose.live.past import utilization
from cockpit.diagnose.live.view import View
from cockpit.diagnose.live.where import doing, most_common_frame, own_frame, place, short_place
from cockpit.model.run import Run
from cockpit.model.text import clean

IDLE_PCT = 5.0
IDLE_MEMORY_SHARE = 0.5
WINDOW_S = 10.0
LEAST_CPU_S = 60.0
LEAST_CPU_PCT = 80.0
LEAST_STEPS = 20
LEAST_LOOKS = 4
MOST = 0.6


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    idle = _idle_gpu(view)
    if idle is None:
        return
    for run in view.runs.values():
        if run.cuda_initialized is False and (run.step or 0) >= LEAST_STEPS and run.steps_per_s:
            yield _attached(run, idle)
    busy_elsewhere = {process.pid for process in view.snapshot.processes if process.devices}
    for found in view.looks.cpu_runs():
        family = {found.pid, found.ppid}
        if not family & busy_elsewhere and found.pid not in view.runs:
            yield from _seen(view, found, idle)


def _idle_gpu(view: View) -> int | None:
    """One that nobody computes on, and whose memory is not taken."""
    for gpu in view.gpus.values():
        util = view.past.mean(gpu.index, utilization, WINDOW_S)
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if util is None or util >= IDLE_PCT or used is None or not total:
            continue
        if used < IDLE_MEMORY_SHARE * total and gpu.compute_mode != "prohibited":
            return gpu.index
    return None


def _attached(run: Run, idle: int) -> Claim:
    words = f"CUDA was never initialised in this process, which is at step {run.step}"
    return _claim(
        run.pid,
        idle,
        (f"{words} ({run.steps_per_s:.2g} a second).", "attached run"),
        0.93,
        None,
    )


def _seen(view: View, found: CpuRun, idle: int) -> Iterator[Claim]:
    if found.cpu_s < LEAST_CPU_S or found.cpu_pct < LEAST_CPU_PCT:
        return
    seen = view.looks.want(found.pid, found.start_ticks)
    looks = [look for look in seen if look.frames]
    if len(looks) < LEAST_LOOKS:
        return
    # Preparing data with torch imported is no training: its modules have to be at work.
    trains = [look for look in looks if doing(look.frames) == "dispatch"]
    if len(trains) < MOST * len(looks) or any(doing(one.frames) == "loading" for one in looks):
        return
    words = f"It has used {found.cpu_s:.0f} s of CPU time, {found.cpu_pct:.0f} % of a core now, and"
    frame = most_common_frame(looks, "dispatch") or own_frame(trains[-1].frames)
    text = f"{words} holds no GPU memory ({clean(found.command)[:60]})."
    yield _claim(found.pid, idle, (text, "/proc"), 0.75, frame)


def _claim(
    pid: int, idle: int, words: tuple[str, str], confidence: float, frame: LookFrame | None
) -> Claim:
    where = short_place(frame)
    seen = (said(f"It computes at {place(frame)}.", "stacks"),) if where else ()
    return Claim(
        cause="code_uses_cpu",
        title=f"pid {pid} trains on the CPU, GPU {idle} is idle",
        says=(said(*words), *seen, said(f"GPU {idle} has nothing to do.")),
        confidence=confidence,
        pid=pid,
        facts={"place": place(frame), "idle_gpu": idle},
        hold_s=10.0,
        clear_s=20.0,
    )
