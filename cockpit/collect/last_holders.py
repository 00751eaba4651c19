"""Who held memory on a GPU when it was last heard of.

A lost GPU, or a driver that went away, lists nobody; but the processes are still there, hold on to
the device and must end before it can be reset. They stay rows, their memory not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cockpit import procfs
from cockpit.collect.readings import GpuReadings, ProcessUse, by_gpu
from cockpit.model.process import Process
from cockpit.procfs import Stat


class LastHolders:
    """Remembers each GPU's last list between ticks. Used by one thread."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._uses: dict[int, tuple[ProcessUse, ...]] = {}
        self._rows: dict[int, Process] = {}
        self.had_driver = False
        """A GPU has answered in this engine's life."""

    def fill(self, readings: GpuReadings) -> tuple[ProcessUse, ...]:
        """The driver's list, and after it who is left of the lists that it gives no more."""
        kept = [
            replace(use, vram_bytes=None, sm_pct=None, gap=why)
            for gpu, why in self._silent(readings).items()
            for use in self._uses.get(gpu, ())
            if self._is_there(use.pid)
        ]
        return (*readings.uses, *kept)

    def remember(self, readings: GpuReadings, rows: Sequence[Process]) -> None:
        """After each tick, with the rows that were made of it."""
        if readings.driver.error is not None:
            return
        answering = {gpu.index for gpu in readings.gpus if gpu.state == "ok"}
        self.had_driver = self.had_driver or bool(answering)
        listed = by_gpu(readings.uses)
        self._uses.update((gpu, listed.get(gpu, ())) for gpu in answering)
        wanted = set(_pids(self._uses.values()))
        known = {**self._rows, **{row.pid: row for row in rows}}
        self._rows = {pid: known[pid] for pid in wanted if pid in known}

    def _silent(self, readings: GpuReadings) -> dict[int, str]:
        """GPU → why it lists nobody."""
        error = readings.driver.error
        if error is not None:
            return dict.fromkeys(self._uses, error.code)
        listing = {use.gpu for use in readings.uses}
        return {
            gpu.index: "gpu_lost" if gpu.state == "lost" else "timeout"
            for gpu in readings.gpus
            if gpu.state != "ok" and gpu.index not in listing
        }

    def _is_there(self, pid: int) -> bool:
        """The same process as then. One that never was in this /proc cannot be seen to end."""
        row = self._rows.get(pid)
        if row is None or (not row.visible and row.gaps.get("pid") != "gone"):
            return True
        stat = procfs.stat(self._root, pid)
        if not isinstance(stat, Stat) or stat.start_ticks != row.start_ticks:
            return False
        return not stat.dead or row.state in ("Z", "X")


def _pids(lists: Iterable[tuple[ProcessUse, ...]]) -> Iterable[int]:
    return (use.pid for uses in lists for use in uses)
