"""Ranks of one job that do not keep step: one that stays away, one that is slow.

A rank that waits in NCCL shows 100 % utilisation at idle power and moves no memory; the one that
never came shows nothing at all. Unequal shares are shares.py's,
where the job lies on the machine placement.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.look import Look, LookFrame
from cockpit.diagnose.live.memory import duration
from cockpit.diagnose.live.past import clock_share, power_share, utilization
from cockpit.diagnose.live.view import View, main_gpu, number_of
from cockpit.diagnose.live.where import doing, own_frame, place, short_place
from cockpit.model.finding import Evidence
from cockpit.model.process import Process
from cockpit.model.text import clean

WINDOW_S = 6.0
SPIN_PCT = 95.0
SPIN_POWER = 0.35
SPIN_MEMORY_PCT = 5.0
AWAY_PCT = 10.0
SLOW_WINDOW_S = 20.0
PATIENT = ("save", "checkpoint", "serializ", "eval", "valid", "safetensors", "compile", "download")
"""Words in functions and files of work that one rank does alone now and then, for some minutes."""
PATIENCE_S = 180.0
HOLD_S = 6.0
UNSEEN_HOLD_S = 20.0
MOST_LOOKED_AT = 4


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    for job in view.jobs:
        gpus = [main_gpu(rank) for rank in job]
        if any(gpu not in view.gpus for gpu in gpus):
            continue
        spinning = [rank for rank in job if spins(view, rank)]
        away = [rank for rank in job if rank not in spinning and _is_away(view, rank)]
        if spinning and away and len(spinning) + len(away) == len(job):
            yield _behind(view, job, spinning, away)
        elif len(spinning) == len(job):
            yield from _all_wait(view, job)
        else:
            yield from _straggler(view, job)
    yield from _lone_ranks(view)


def spins(view: View, rank: Process) -> bool:
    """Waits in a collective: busy all the time, at idle power, without touching memory."""
    gpu = main_gpu(rank)
    if gpu is None or not view.past.covers(gpu, WINDOW_S - 1.0):
        return False
    util = view.past.mean(gpu, utilization, WINDOW_S)
    power = view.past.mean(gpu, power_share, WINDOW_S)
    memory = view.past.mean(gpu, lambda one: one.memory_utilization_pct, WINDOW_S)
    if util is None or power is None or util < SPIN_PCT or power > SPIN_POWER:
        return False
    return memory is None or memory <= SPIN_MEMORY_PCT


def _is_away(view: View, rank: Process) -> bool:
    gpu = main_gpu(rank)
    if gpu is None:
        return False
    util = view.past.mean(gpu, utilization, WINDOW_S)
    return util is not None and util < AWAY_PCT


# -- a rank that never came


def _behind(
    view: View, job: Sequence[Process], spinning: Sequence[Process], away: Sequence[Process]
) -> Claim:
    # One of those that wait says where they do.
    looks = {rank.pid: _looks(view, rank) for rank in (*away[:MOST_LOOKED_AT], spinning[0])}
    guilty = [rank for rank in away if not _is_in_collective(looks.get(rank.pid, []))] or away
    culprit = guilty[0]
    frame, steady = _stuck_at(looks.get(culprit.pid, []))
    where = short_place(frame)
    numbers = [number_of(rank) for rank in guilty]
    return Claim(
        cause="rank_behind",
        title=_behind_title(numbers) + (f": {where}" if where else ""),
        says=(
            *_waiting_words(view, spinning),
            *_away_words(view, guilty),
            *_stack_words(culprit, frame, looks),
            *_step_words(view, job),
            *_lost_words(view),
        ),
        confidence=0.93 if frame is not None and steady else 0.75,
        gpu=main_gpu(culprit),
        pid=culprit.pid,
        facts={
            "culprit_rank": numbers[0],
            "ranks": numbers,
            "rank_pids": [rank.pid for rank in guilty[:MOST_LOOKED_AT]],
            "place": place(frame),
            "waiting_ranks": [number_of(rank) for rank in spinning],
        },
        not_=("not the ranks at 100 %: they wait for this one",),
        hold_s=_hold_s(frame, steady, looks.get(culprit.pid, [])),
        share=0.7,
        clear_s=5.0,
    )


def _looks(view: View, rank: Process) -> list[Look]:
    return [look for look in view.looks.want(rank.pid, rank.start_ticks) if look.frames]


def _behind_title(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:4]))
    return f"Rank {listed} is behind" if len(numbers) == 1 else f"Ranks {listed} are behind"


def _is_in_collective(looks: Sequence[Look]) -> bool:
    inside = sum(1 for look in looks if doing(look.frames) == "collective")
    return len(looks) >= 2 and inside > len(looks) / 2


def _stuck_at(looks: Sequence[Look]) -> tuple[LookFrame | None, bool]:
    """The newest line of the user's own code, and whether it stays there."""
    frames = [frame for look in looks[-4:] if (frame := own_frame(look.frames)) is not None]
    if not frames:
        return None, False
    newest = frames[-1]
    same = sum(1 for one in frames if (one.file, one.line) == (newest.file, newest.line))
    return newest, len(frames) >= 2 and same >= 0.6 * len(frames)


def _hold_s(frame: LookFrame | None, steady: bool, looks: Sequence[Look]) -> float:
    frames = [one for look in looks[-2:] for one in look.frames]
    words = " ".join(f"{one.function} {one.file.rpartition('/')[2]}" for one in frames)
    if any(word in words.lower() for word in PATIENT):
        return PATIENCE_S
    return HOLD_S if frame is not None and steady else UNSEEN_HOLD_S


def _waiting_words(view: View, spinning: Sequence[Process]) -> Iterator[Evidence]:
    rank = spinning[0]
    gpu = view.gpus[main_gpu(rank) or 0]
    who = f"Rank {number_of(rank)}" if len(spinning) == 1 else f"{len(spinning)} ranks"
    wait = "waits" if len(spinning) == 1 else "wait"
    if gpu.power_w is not None and gpu.power_limit_w is not None:
        words = f"{gpu.utilization_pct:.0f} % utilisation at {gpu.power_w:.0f} of"
        yield said(f"{who} {wait} in a collective: {words} {gpu.power_limit_w:.0f} W.")
    else:
        yield said(f"{who} {wait} in a collective.")


def _away_words(view: View, guilty: Sequence[Process]) -> Iterator[Evidence]:
    for rank in guilty[:3]:
        gpu = main_gpu(rank)
        util = view.past.mean(gpu, utilization, WINDOW_S) if gpu is not None else None
        yield said(f"Rank {number_of(rank)} (pid {rank.pid}) uses {util or 0:.0f} % of GPU {gpu}.")


def _stack_words(
    culprit: Process, frame: LookFrame | None, looks: dict[int, list[Look]]
) -> Iterator[Evidence]:
    if frame is not None:
        text = f": {clean(frame.text.strip())[:60]}" if frame.text else ""
        where = f"{clean(place(frame) or '')} in {clean(frame.function)}"
        yield said(f"Rank {number_of(culprit)} is at {where}{text}.", "stacks")
    for pid, seen in looks.items():
        other = own_frame(seen[-1].frames) if pid != culprit.pid and seen else None
        if other is not None:
            yield said(f"pid {pid} waits at {clean(place(other) or '')}.", "stacks")
            return


def _step_words(view: View, job: Sequence[Process]) -> Iterator[Evidence]:
    known = [(number_of(one), view.runs[one.pid]) for one in job if one.pid in view.runs]
    parts = [
        f"rank {number}: step {run.step}, {duration(run.step_age_s)} ago"
        for number, run in known
        if run.step is not None and run.step_age_s is not None
    ]
    if parts:
        yield said(f"Last steps: {'; '.join(parts[:6])}.", "attached run")


# -- all wait, and nobody here is missing


def _all_wait(view: View, job: Sequence[Process]) -> Iterator[Claim]:
    """Transport, another node, or a rank that waits in another collective."""
    first = job[0]
    run = view.runs.get(first.pid)
    if run is not None and (run.step_age_s is None or run.step_age_s < 20.0):
        return
    looks = _looks(view, first)
    frame, steady = _stuck_at(looks)
    if looks and not steady:
        return
    count, size = len(job), first.world_size or 0
    all_of = f"{count} of {size}" if size > count else f"All {count}"
    who = f"{all_of} ranks wait" if count > 1 else f"Rank {number_of(first)} waits"
    where = f": {short_place(frame)}" if frame is not None else ""
    yield Claim(
        cause="collective_timeout",
        title=f"{who} in NCCL{where}",
        says=(
            *_waiting_words(view, job),
            *((said(f"Rank {number_of(first)} is at {place(frame)}.", "stacks"),) if frame else ()),
            *_step_words(view, job),
            *_lost_words(view),
        ),
        confidence=0.7 if looks else 0.55,
        gpu=main_gpu(first),
        pid=first.pid,
        severity="warning",
        facts={
            "place": place(frame),
            "ranks": [number_of(rank) for rank in job],
            "rank_pids": [rank.pid for rank in job[:MOST_LOOKED_AT]],
        },
        also=_also(view),
        hold_s=45.0,
        share=0.9,
    )


def _lost_gpus(view: View) -> str:
    lost = [gpu.index for gpu in view.snapshot.gpus if gpu.state == "lost"]
    are = "is" if len(lost) == 1 else "are"
    names = f"GPU{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
    return f"{names} {are} lost: a rank that ran there cannot come" if lost else ""


def _lost_words(view: View) -> Iterator[Evidence]:
    """Its process may have ended, and the others wait for it."""
    if words := _lost_gpus(view):
        yield said(f"{words}.")


def _also(view: View) -> tuple[tuple[str, str], ...]:
    if words := _lost_gpus(view):
        return (("gpu_off_bus", words),)
    return (("rank_behind", "the missing rank may be on another node"),)


def _lone_ranks(view: View) -> Iterator[Claim]:
    """Ranks of a job whose others are on other nodes."""
    grouped = {rank.pid for job in view.jobs for rank in job}
    for process in view.ranks:
        alone = process.pid not in grouped
        if alone and (process.world_size or 1) > 1 and spins(view, process):
            yield from _all_wait(view, (process,))


# -- a slow rank


def _straggler(view: View, job: Sequence[Process]) -> Iterator[Claim]:
    values = []
    for rank in job:
        gpu = main_gpu(rank)
        assert gpu is not None
        if not view.past.covers(gpu, SLOW_WINDOW_S - 5.0):
            return
        util = view.past.mean(gpu, utilization, SLOW_WINDOW_S)
        clock = view.past.mean(gpu, clock_share, SLOW_WINDOW_S)
        if util is None:
            return
        values.append((rank, gpu, util, clock))
    slowest = min(values, key=lambda one: one[2])
    others = [one for one in values if one is not slowest]
    if AWAY_PCT <= slowest[2] < 75.0 and all(one[2] > 93.0 for one in others):
        yield _slow_rank(view, slowest[0], slowest[1], slowest[2], len(job))
    yield from _slow_clock(values)


def _slow_rank(view: View, rank: Process, gpu: int, util: float, count: int) -> Claim:
    number = number_of(rank)
    looks = _looks(view, rank)
    frame, _ = _stuck_at(looks)
    seen = f"It was seen at {clean(place(frame) or '')}." if frame is not None else ""
    return Claim(
        cause="straggler",
        title=f"Rank {number} slows the job (GPU {gpu} at {util:.0f} %)",
        says=(
            said(f"GPU {gpu} of rank {number} was {util:.0f} % busy over {SLOW_WINDOW_S:.0f} s."),
            said(f"The GPUs of the other {count - 1} were busy all the time: they wait in NCCL."),
            *((said(seen, "stacks"),) if seen else ()),
        ),
        confidence=0.65,
        gpu=gpu,
        pid=rank.pid,
        facts={
            "rank": number,
            "culprit_rank": number,
            "place": place(frame),
        },
        hold_s=15.0,
        share=0.8,
        clear_s=20.0,
    )


def _slow_clock(
    values: Sequence[tuple[Process, int, float, float | None]],
) -> Iterator[Claim]:
    known = [(clock, rank, gpu) for rank, gpu, _, clock in values if clock is not None]
    if len(known) < len(values) or any(util < 50.0 for _, _, util, _ in values):
        return
    clock, rank, gpu = min(known, key=lambda one: one[0])
    others = median(one[0] for one in known if one[1] is not rank)
    if clock >= 0.85 * others:
        return
    number = number_of(rank)
    words = f"GPU {gpu} of rank {number} runs at {clock:.0%} of its clock, the others at"
    yield Claim(
        cause="straggler",
        title=f"Rank {number} slows the job (GPU {gpu} clock {clock:.0%})",
        says=(said(f"{words} {others:.0%}."),),
        confidence=0.75,
        gpu=gpu,
        pid=rank.pid,
        facts={"rank": number, "culprit_rank": number},
        hold_s=15.0,
        share=0.8,
        clear_s=20.0,
    )
