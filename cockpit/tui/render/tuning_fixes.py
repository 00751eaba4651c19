"""Fixes with a value to choose: the allocator's thresholds, and a profile of some steps."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.memory import RunRequest
from cockpit.tui.render.fix import STEP, Choice, Fix

PROFILE_STEPS = (1, 3, 5, 10, 20)
"""The agent takes 20 at the most."""
GC_THRESHOLDS = (0.6, 0.7, 0.8, 0.9, "default")
MAX_SPLIT_MB = (64, 128, 256, 512, 1024, "default")
"""MiB; the agent takes more than 20."""


def profile(pid: int) -> Fix:
    """torch.profiler between two steps; CUDA only where the program uses it."""
    choices = tuple(
        Choice(f"{steps}", RunRequest(pid=pid, op="profile", steps=steps))
        for steps in PROFILE_STEPS
    )
    return Fix(
        "profile",
        "profile some steps",
        "where the time of a step goes",
        choices[1].request,
        (
            "torch.profiler records so many steps: data wait, forward, backward, optimizer, "
            "collectives, and the kernels that cost most.",
            "It starts and stops between two steps, on the training thread.",
        ),
        "speed while it records (each operation costs a few µs more), and up to a second at its "
        "end.",
        choices,
    )


def thresholds(pid: int) -> list[Fix]:
    """What torch's allocator takes while it runs."""
    collected = (
        "Cached blocks are given back, oldest first, before more is asked of the GPU once so much "
        "of the process's share is in use.",
        "Without effect unless the program has set a share (set_per_process_memory_fraction).",
        STEP,
    )
    unsplit = (
        "Blocks above this size (MiB) are not split any more; those that are split stay.",
        STEP,
    )
    return [
        _setting(
            pid,
            "garbage_collection_threshold",
            ("give back unused cache early", "collection threshold"),
            collected,
            "speed: what was given back is asked for again with cudaMalloc.",
            GC_THRESHOLDS,
            0.8,
        ),
        _setting(
            pid,
            "max_split_size_mb",
            ("do not split big blocks", "against split blocks"),
            unsplit,
            "memory, where a big block serves a smaller request whole.",
            MAX_SPLIT_MB,
            256,
        ),
    ]


def _setting(
    pid: int,
    name: str,
    words: tuple[str, str],
    happens: tuple[str, ...],
    loses: str,
    values: Sequence[float | str],
    first: float | str,
) -> Fix:
    requests = {value: RunRequest(pid=pid, op="set", name=name, value=value) for value in values}
    choices = tuple(Choice(str(value), request) for value, request in requests.items())
    title, aside = words
    named = (f"{name}: {happens[0]}", *happens[1:])
    return Fix(name, title, aside, requests[first], named, loses, choices)
