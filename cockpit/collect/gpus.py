"""The GPU side as the sampler sees it: one call a tick, which never waits longer than told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cockpit.collect.gpu_changes import ChangeWatch
from cockpit.collect.gpu_driver import DriverKeeper, Session
from cockpit.collect.gpu_events import XidMerger, bus_text
from cockpit.collect.gpu_probe import FIELDS, KEPT_WHEN_LOST, Reading
from cockpit.collect.gpu_reader import GpuReader, HoldingRound, Round
from cockpit.collect.kernel_log import KernelLine, KernelLog, parse_bus
from cockpit.collect.readings import GpuReadings, ProcessUse
from cockpit.model.event import Event
from cockpit.model.gpu import DriverError, Gpu
from cockpit.model.time import iso

FIRST_DEADLINE_S = 0.5
"""How long the first call waits for the library to open and the first readings to come."""
_STAGGER_S = 0.004
"""The next reader is asked when one has answered or after this. Threads that run at once hand the
interpreter's lock to and fro around each call: that triples their CPU time (two cores, 16 GPUs)."""
_COMPLETE_PAUSE_S = 0.08


@dataclass(frozen=True, slots=True)
class VramReading:
    """Memory at one moment, for the proof of a kill. GPUs that did not answer are absent."""

    used_bytes: Mapping[int, int]
    """GPU → bytes in use."""
    process_bytes: Mapping[int, int | None]
    """pid → its bytes on the GPUs that answered; None: listed, but the amount is not known."""
    uses: tuple[ProcessUse, ...] = ()


class GpuSource:
    """All GPUs. ``read`` from one thread, ``vram`` from any."""

    def __init__(self, only: tuple[int, ...] | None = None) -> None:
        self._only = only
        self._keeper = DriverKeeper(only)
        self._kernel_log = KernelLog()
        self._xids = XidMerger(waits_for_kernel=self._kernel_log.gap is None)
        self._changes = ChangeWatch()
        self._first_read = True
        self._wants_log = False
        self._last_end_s = 0.0

    def start(self) -> None:
        """Starts the threads; never blocks."""
        self._keeper.start()

    def stop(self) -> None:
        """Asks the threads to end; waits for none of them."""
        self._keeper.stop()
        self._kernel_log.close()

    def read(
        self,
        deadline_s: float,
        *,
        complete: bool = False,
        first_deadline_s: float = FIRST_DEADLINE_S,
    ) -> GpuReadings:
        """One tick. Late GPUs keep their last values, as ``stale``.

        ``complete``: wait until every tier was read and rates have had two samples, at most
        ``deadline_s``. The first call may wait ``first_deadline_s`` if that is longer.
        """
        now_s = time.monotonic()
        # the log's first 4000 records cost 10 ms: not before the first screen
        self._wants_log = complete or not self._first_read
        if self._first_read:
            deadline_s = max(deadline_s, first_deadline_s)
        end_s = now_s + deadline_s
        if not self._keeper.settled.wait(deadline_s):
            return self._readings(None)
        session = self._keeper.session
        self._ask(session, end_s)
        while complete and session and not _is_complete(session) and time.monotonic() < end_s:
            time.sleep(_COMPLETE_PAUSE_S)
            self._ask(session, end_s)
        return self._readings(session)

    def vram(self, deadline_s: float) -> VramReading:
        """A fresh reading of memory and process lists."""
        session = self._keeper.session
        if session is None or session.gone is not None:
            return VramReading({}, {})
        round_ = HoldingRound(len(session.readers))
        for reader in session.readers:
            reader.ask_holding(round_)
        round_.wait(deadline_s)
        round_.given_up = True
        return _vram(round_)

    # -- one tick

    def _ask(self, session: Session | None, end_s: float) -> None:
        """Ask every reader that is not busy, and wait for them."""
        if session is None or session.gone is not None:
            return
        if self._first_read:  # the readers began by themselves
            self._first_read = False
            session.first.wait(end_s - time.monotonic())
        else:
            idle = [reader for reader in session.readers if not reader.is_busy]
            round_ = Round(len(idle))
            for reader in idle:
                reader.ask(round_)
                round_.wait_for_one(min(_STAGGER_S, end_s - time.monotonic()))
            round_.wait(end_s - time.monotonic())
        for reader in session.readers:
            if reader.latest is not None and reader.latest.driver_error is not None:
                self._keeper.report_gone(session, reader.latest.driver_error)

    def _readings(self, session: Session | None) -> GpuReadings:
        now_s = time.monotonic()
        driver = self._keeper.current_driver()
        if session is None:
            return GpuReadings(driver=driver, events=self._events((), None, now_s, driver.error))
        gone = driver.error.code if driver.error else None
        rows = tuple(self._row(reader, gone, now_s) for reader in session.readers)
        self._last_end_s = now_s
        latest = [] if gone else [r.latest for r in session.readers if r.latest is not None]
        return GpuReadings(
            driver=driver,
            gpus=rows,
            uses=tuple(use for reading in latest for use in reading.uses),
            memory=tuple(r.memory for r in latest if r.memory is not None),
            topology=session.topology or (),
            events=self._events(rows, session, now_s, driver.error),
        )

    def _row(self, reader: GpuReader, gone: str | None, now_s: float) -> Gpu:
        reading = reader.latest
        if reading is None:
            age_s = now_s - reader.started_s
            gaps = dict.fromkeys(FIELDS, gone or "timeout")
            return Gpu(index=reader.index, state="stale", age_s=age_s, gaps=gaps)
        if gone is not None:
            return _blank(reading, gone, now_s)
        if reading.gpu.state == "lost" or not (reader.is_busy or reading.gpu.state == "stale"):
            return reading.gpu
        age_s = round(now_s - (reading.good_s or reader.started_s), 3)
        # a reader that is slower than the wait, but gets round within the interval, is not stuck
        keeps_up = reading.gpu.state == "ok" and reading.good_s > self._last_end_s
        return msgspec.structs.replace(
            reading.gpu, state="ok" if keeps_up else "stale", age_s=age_s
        )

    # -- events

    def _events(
        self,
        rows: tuple[Gpu, ...],
        session: Session | None,
        now_s: float,
        error: DriverError | None,
    ) -> tuple[Event, ...]:
        at_s = time.time()
        timed: list[tuple[float, Event]] = []
        for event in session.watcher.new() if session else ():
            if event.xid is None:
                told = self._changes.double_bit_error(event.gpu, now_s, event.at_s)
                timed += [(event.at_s, told)] if told is not None else []
            else:
                self._xids.from_nvml(event.gpu, event.xid, event.at_s)
        if rows and self._wants_log:  # lines can be given to a GPU only when the bus ids are known
            timed += self._kernel_events(rows)
        timed += self._xids.ready(at_s)
        timed += [(at_s, event) for event in self._changes.look(rows, now_s, at_s, error)]
        return tuple(event for _, event in sorted(timed, key=lambda pair: pair[0]))

    def _kernel_events(self, rows: tuple[Gpu, ...]) -> list[tuple[float, Event]]:
        lines = self._kernel_log.read()
        if not lines:
            return []
        places = {parse_bus(gpu.pci_bus_id): gpu.index for gpu in rows if gpu.pci_bus_id}
        fallen = []
        for line in lines:
            gpu = places.get(line.bus)
            if gpu is None and self._only is not None:
                continue  # most likely one that the user did not ask for
            if line.xid is not None:
                self._xids.from_kernel(gpu, line)
            elif gpu is None:  # one of ours shows as lost by itself
                fallen.append((line.at_s, _fallen(line)))
        return fallen


def _is_complete(session: Session) -> bool:
    if session.gone is not None:
        return True
    readings = [reader.latest for reader in session.readers]
    return session.topology is not None and all(one and one.complete for one in readings)


def _blank(reading: Reading, reason: str, now_s: float) -> Gpu:
    """The driver is gone: what the GPU is called still holds, what it does does not."""
    gpu = reading.gpu
    values = {name: value for name in KEPT_WHEN_LOST if (value := getattr(gpu, name)) is not None}
    gaps = dict.fromkeys((name for name in FIELDS if name not in values), reason)
    age_s = round(now_s - reading.good_s, 3) if reading.good_s else 0.0
    return Gpu(index=gpu.index, state="stale", age_s=age_s, gaps=gaps, **values)


def _vram(round_: HoldingRound) -> VramReading:
    holdings = dict(round_.holdings)  # late readers may still add
    used = {gpu: one.memory.used for gpu, one in holdings.items() if one.memory is not None}
    uses = tuple(use for one in holdings.values() for use in one.uses)
    sums: dict[int, int | None] = {}
    for use in uses:
        had = sums.get(use.pid, 0)
        sums[use.pid] = None if had is None or use.vram_bytes is None else had + use.vram_bytes
    return VramReading(used, sums, uses)


def _fallen(line: KernelLine) -> Event:
    return Event(
        at=iso(line.at_s),
        gpu=None,
        kind="lost",
        sentence=f"GPU at {bus_text(line.bus)} has fallen off the bus: the driver does not show it",
        severity="error",
    )
