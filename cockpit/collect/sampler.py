"""One tick of the live machine: asks every source, and builds the Snapshot."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Sequence

from cockpit.collect.gpus import GpuSource
from cockpit.collect.holders import Holders, HolderScan, device_minors, scan
from cockpit.collect.host import HostSource
from cockpit.collect.last_holders import LastHolders
from cockpit.collect.ledger import build_ledger
from cockpit.collect.process_table import ProcessTable
from cockpit.collect.readings import GpuReadings, ProcessUse
from cockpit.collect.turnover import ProcessReading
from cockpit.model.event import Event, EventKind
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process, Relative
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import clean_command, size
from cockpit.model.time import iso
from cockpit.procfs import in_initial_namespace

KEPT_EVENTS = 100
PATIENCE_SHARE = 0.4
"""Share of the interval that a tick waits for a late GPU."""
LONGEST_PATIENCE_S = 0.4
COMPLETE_PATIENCE_S = 2.3
"""One-shot commands promise an answer within 3 s."""
COMPLETE_PAUSE_S = 0.25


class Sampler:
    """Holds the sources and what has to be remembered between ticks. Used from one thread."""

    def __init__(self, only: tuple[int, ...] | None, *, complete: bool = False) -> None:
        self.gpus = GpuSource(only)
        self._table = ProcessTable()
        self._host = HostSource()
        self._holders = HolderScan()
        self._last = LastHolders()
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._noted: deque[Event] = deque()
        self._complete = complete
        self._contained = not in_initial_namespace("/proc")
        self._minors = device_minors()
        self._own_cpu = _OwnCpu()

    def start(self) -> None:
        """Starts the readers; returns at once."""
        self.gpus.start()
        self._holders.start()

    def note(self, event: Event) -> None:
        """Add an event from any thread; it is in the next snapshot."""
        self._noted.append(event)

    def sample(self, interval_s: float, also: Collection[int] = ()) -> Snapshot:
        """One tick; ``also``: pids that get a row although they hold no GPU memory."""
        readings = self._read_gpus(interval_s)
        no_gpu = readings.driver.error is not None
        uses = self._last.fill(readings)
        table = self._read_processes(readings, uses, also)
        if self._complete:  # rates of CPU and disk are differences between two readings
            self._host.read()
            time.sleep(COMPLETE_PAUSE_S)
            table = self._read_processes(readings, uses, also)
        self._last.remember(readings, table.processes)
        now = time.time()
        ledger = build_ledger(
            readings.memory,
            readings.gpus,
            uses,
            table.processes,
            self._seen_holders(),
            contained=self._contained,
            minors=self._minors,
        )
        self._holders.want(no_gpu or any(_has_riddle(one) for one in ledger))
        self._events += readings.events
        self._events += process_events(table.started, table.ended, iso(now))
        while self._noted:
            self._events.append(self._noted.popleft())
        return Snapshot(
            taken_at=iso(now),
            host=self._host.read(),
            driver=readings.driver,
            topology=readings.topology,
            gpus=readings.gpus,
            processes=table.processes,
            ledger=ledger,
            events=tuple(self._events),
            sampler=self._own_cpu.status(interval_s),
        )

    def relatives(self, snapshot: Snapshot) -> tuple[Relative, ...]:
        """Ancestors without VRAM of the snapshot's processes."""
        return self._table.relatives(snapshot.processes)

    def _seen_holders(self) -> Holders | None:
        """Who has device files open: a one-shot looks now, others in the background."""
        return scan(skip=(os.getpid(),)) if self._complete else self._holders.holders()

    def _read_processes(
        self, readings: GpuReadings, uses: Sequence[ProcessUse], also: Collection[int]
    ) -> ProcessReading:
        return self._table.read(
            uses,
            time.monotonic(),
            gpus=readings.gpus,
            fallback=readings.driver.error is not None and not self._last.had_driver,
            holders=self._holders.latest(),
            complete=self._complete,
            also=also,
        )

    def _read_gpus(self, interval_s: float) -> GpuReadings:
        if self._complete:
            return self.gpus.read(COMPLETE_PATIENCE_S, complete=True)
        return self.gpus.read(min(interval_s * PATIENCE_SHARE, LONGEST_PATIENCE_S))


def _has_riddle(ledger: Ledger) -> bool:
    return any(one.kind in ("none_found", "device_holders") for one in ledger.explanations)


def process_events(started: Sequence[Process], ended: Sequence[Process], at: str) -> list[Event]:
    """Who began to hold GPU memory, and who let go of it."""
    return [
        *(_event(at, one, "process_started", "began to use") for one in started),
        *(
            _event(at, one, "process_ended", f"let go of {size(one.vram_bytes)} on")
            for one in ended
        ),
    ]


def _event(at: str, process: Process, kind: EventKind, what: str) -> Event:
    gpus = [use.gpu for use in process.devices]
    command = clean_command(process.command, process.name)[:60]
    where = f"GPU{'s' * (len(gpus) > 1)} {', '.join(map(str, gpus))}" if gpus else "no GPU"
    return Event(
        at=at,
        gpu=gpus[0] if len(gpus) == 1 else None,
        kind=kind,
        sentence=f"pid {process.pid} {what} {where}: {command}",
        severity="info",
    )


class _OwnCpu:
    """The engine's own cost between two ticks."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def status(self, interval_s: float) -> SamplerStatus:
        wall, cpu = time.monotonic(), time.process_time()
        spent = wall - self._wall
        share = round(100 * (cpu - self._cpu) / spent, 2) if spent > 0.05 else None
        self._wall, self._cpu = wall, cpu
        return SamplerStatus(interval_s=interval_s, cpu_pct=share, rss_bytes=_own_rss_bytes())


def _own_rss_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
