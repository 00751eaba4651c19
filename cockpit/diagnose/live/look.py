"""What a look at one process tells beyond the snapshot: where its main thread is, its workers.

The rules ask for looks through :class:`Looks`; who takes them (the engine) is no matter here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class LookFrame(NamedTuple):
    """One Python frame."""

    file: str
    line: int
    function: str
    text: str | None = None
    """The source line, where it could be read (of the innermost frames only)."""


class Worker(NamedTuple):
    """A child process that loads data."""

    pid: int
    state: str
    """One letter as in /proc/PID/stat."""
    cpu_pct: float | None
    """Percent of one core since the look before; None at the first."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One process at one moment. All of it is data from outside."""

    at_s: float
    """Seconds since the epoch."""
    frames: tuple[LookFrame, ...] = ()
    """The training thread, innermost first; empty: it could not be read."""
    main_cpu_pct: float | None = None
    main_state: str | None = None
    workers: tuple[Worker, ...] = ()
    cpus: int | None = None
    """How many it may run on."""
    throttled_pct: float | None = None
    """Share of the time since the look before in which the cgroup's CPU limit stopped it."""
    failure: str | None = None
    """Why there are no frames, as a sentence."""


class CpuRun(NamedTuple):
    """A Python process that has torch loaded, computes, and holds no GPU memory that we know of."""

    pid: int
    start_ticks: int
    command: str
    cpu_s: float
    """User and system time of its life."""
    cpu_pct: float
    """Percent of one core, since the scan before."""
    ppid: int


class Looks(Protocol):
    """Takes wishes, and hands out what has been seen so far. Must return at once."""

    def want(self, pid: int, start_ticks: int | None) -> tuple[Look, ...]:
        """Wish for looks at a process; the answer is those of the last minute, oldest first."""

    def cpu_runs(self) -> tuple[CpuRun, ...]:
        """Wish for a scan of processes that train on the CPU; the answer is the last scan's."""


class NoLooks:
    """For recordings, demos and one-shots: nothing can be looked at."""

    def want(self, pid: int, start_ticks: int | None) -> tuple[Look, ...]:  # noqa: ARG002
        """Nothing."""
        return ()

    def cpu_runs(self) -> tuple[CpuRun, ...]:
        """Nothing."""
        return ()
