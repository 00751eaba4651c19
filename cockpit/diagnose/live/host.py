"""The machine round the GPUs: host memory and /dev/shm nearly full."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.view import View
from cockpit.model.process import Process
from cockpit.model.text import clean_command, size

MEMORY_SHARE = 0.95
MEMORY_DIRE_SHARE = 0.98
ROOM_BYTES = 32 << 30
"""A machine with this much left is not nearly full, however large it is."""
SHM_SHARE = 0.9


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    yield from _memory(view)
    yield from _shared_memory(view)


def _memory(view: View) -> Iterator[Claim]:
    host = view.snapshot.host
    used, total = host.memory_used_bytes, host.memory_total_bytes
    if used is None or not total or used < MEMORY_SHARE * total or total - used > ROOM_BYTES:
        return
    share = used / total
    limited = host.gaps.get("memory_total_bytes") == "cgroup_limit"
    whose = "the container's limit" if limited else "this machine"
    words = f"{size(used)} of the {size(total)} of {whose} are in use: {size(total - used)} left."
    biggest = max(view.snapshot.processes, key=lambda p: p.rss_bytes or 0, default=None)
    swap = host.swap_used_bytes
    yield Claim(
        cause="host_oom",
        title=f"Host memory {100 * share:.0f} % full",
        says=(
            said(words, "/proc/meminfo"),
            *((said(f"{size(swap)} are swapped out.", "/proc/meminfo"),) if swap else ()),
            *((said(_biggest(biggest), "/proc"),) if biggest and biggest.rss_bytes else ()),
        ),
        confidence=0.8,
        severity="error" if share >= MEMORY_DIRE_SHARE else "warning",
        facts={"used_bytes": used, "total_bytes": total},
        hold_s=3.0,
        at_once=True,
    )


def _biggest(process: Process) -> str:
    command = clean_command(process.command, process.name)[:60]
    words = f"The GPU process with most of it: pid {process.pid}, {size(process.rss_bytes)}"
    return f"{words} ({command})."


def _shared_memory(view: View) -> Iterator[Claim]:
    host = view.snapshot.host
    used, total = host.shm_used_bytes, host.shm_total_bytes
    if used is None or not total or used < SHM_SHARE * total or total - used > ROOM_BYTES:
        return
    yield Claim(
        cause="shm_too_small",
        title=f"/dev/shm {100 * used / total:.0f} % full",
        says=(said(f"{size(used)} of {size(total)} are in use.", "/dev/shm"),),
        confidence=0.85,
        severity="warning",
        facts={"used_bytes": used, "total_bytes": total},
        hold_s=3.0,
        at_once=True,
    )
