"""Ranks of one job with unequal shares: of memory, or of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.view import View, main_gpu, number_of
from cockpit.model.process import Process
from cockpit.model.run_history import NO_GPU
from cockpit.model.text import GIB, size


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    for job in view.jobs:
        if all(gpu in view.gpus for gpu in map(main_gpu, job)):
            yield from _uneven_memory(job)
            yield from _uneven_steps(view, job)


def _uneven_memory(job: Sequence[Process]) -> Iterator[Claim]:
    """All alike but one: a pipeline's stages differ among themselves and are meant to."""
    held = [(rank, rank.vram_bytes) for rank in job if rank.vram_bytes is not None]
    if len(held) < len(job) or len(job) < 2:
        return
    middle = median(size_ for _, size_ in held)
    odd = [(rank, size_) for rank, size_ in held if abs(size_ - middle) > 0.05 * middle]
    if len(job) == 2:
        odd = [max(held, key=lambda one: one[1])]
        middle = min(size_ for _, size_ in held)
    if len(odd) != 1 or abs(odd[0][1] - middle) < max(4 * GIB, 0.4 * middle):
        return
    rank, amount = odd[0]
    number, more = number_of(rank), "more" if amount > middle else "less"
    yield Claim(
        cause="uneven_inputs",
        title=f"Rank {number} holds {size(abs(amount - middle))} {more} than the others",
        says=(said(f"Rank {number} holds {size(amount)}, the others about {size(middle)} each."),),
        confidence=0.5,
        gpu=main_gpu(rank),
        pid=rank.pid,
        severity="info",
        facts={"rank": number, "bytes": amount, "others_bytes": round(middle)},
        hold_s=60.0,
        share=0.9,
        clear_s=30.0,
    )


def _uneven_steps(view: View, job: Sequence[Process]) -> Iterator[Claim]:
    """Attached ranks whose step counters move at different speeds."""
    done = {}
    for rank in job:
        if rank.pid not in view.runs:
            return
        known = view.history.values(rank.pid, NO_GPU, "step", 45)
        if len(known) < 30 or known[0] is None or known[-1] is None:
            return
        done[rank.pid] = known[-1] - known[0]
    most, least = max(done.values()), min(done.values())
    if least <= 0 or most - least < max(5.0, 0.1 * most):
        return
    slow = min(job, key=lambda rank: done[rank.pid])
    parts = [f"rank {number_of(rank)}: {done[rank.pid]:.0f}" for rank in job[:6]]
    yield Claim(
        cause="uneven_inputs",
        title=f"Ranks take different numbers of steps ({least:.0f} and {most:.0f})",
        says=(said(f"Steps in the same time: {', '.join(parts)}.", "attached run"),),
        confidence=0.7,
        gpu=main_gpu(slow),
        pid=slow.pid,
        severity="warning",
        facts={"rank": number_of(slow)},
        hold_s=10.0,
    )
