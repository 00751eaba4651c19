"""Errors that the driver reports: a thread on NVML's event set, and the merging of its Xids with
those of the kernel log, which name the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from cockpit.collect import nvml
from cockpit.collect.kernel_log import KernelLine
from cockpit.collect.nvml import EventSet, NvmlError, NvmlEvent
from cockpit.model import xid
from cockpit.model.event import Event
from cockpit.model.text import clean
from cockpit.model.time import iso

_log = logging.getLogger(__name__)

SAME_S = 2.0
"""Two reports of one code on one GPU within this are one event."""
KERNEL_PATIENCE_S = 1.0
"""How long an Xid without a process waits for the kernel's line about it."""
POLL_S = 1.0
_LONGEST_DETAIL = 160
_RECOMMENDATION = 154


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """One event of the set."""

    at_s: float
    gpu: int
    xid: int | None
    """None: a double-bit ECC error."""


class EventWatcher:
    """The thread that waits on the event set. Ends by itself when the driver is gone."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._events: SimpleQueue[DriverEvent] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end within a second."""
        self._stopping.set()

    @property
    def is_alive(self) -> bool:
        """A call on the set may be under way."""
        return self._thread.is_alive()

    def new(self) -> list[DriverEvent]:
        """Events since the last call."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except Empty:
                return found

    def _run(self) -> None:
        try:
            events = EventSet()
            handles = self._register(events)
            while handles and not self._stopping.wait(POLL_S):
                self._drain(events, handles)
            events.free()
        except NvmlError:
            return  # not supported (WSL, vGPU), or the driver is gone: the kernel log remains

    def _register(self, events: EventSet) -> dict[int, nvml.Handle]:
        handles = {}
        for index in self._indices:
            try:
                handle = nvml.device(index)
                events.watch(handle, nvml.EVENT_XID | nvml.EVENT_DOUBLE_BIT_ECC)
            except NvmlError as error:
                if error.is_driver_gone:
                    raise
                continue  # lost, or a kind of GPU without events
            handles[index] = handle
        return handles

    def _drain(self, events: EventSet, handles: dict[int, nvml.Handle]) -> None:
        """Without waiting inside the library: a call that is on its way holds up a re-opening."""
        try:
            while (event := events.wait(0)) is not None:
                self._publish(event, handles)
        except NvmlError as error:
            if error.is_driver_gone:
                raise
            _log.debug("no events: %s", error)  # a lost GPU fails every wait

    def _publish(self, event: NvmlEvent, handles: dict[int, nvml.Handle]) -> None:
        for index, handle in handles.items():
            if nvml.same_device(handle, event.handle):
                code = event.data if event.kind == nvml.EVENT_XID else None
                self._events.put(DriverEvent(time.time(), index, code))


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    pid: int | None


class XidMerger:
    """Makes one event of what NVML and the kernel log say about the same Xid."""

    def __init__(self, waits_for_kernel: bool) -> None:
        self._waits = waits_for_kernel
        self._pending: list[DriverEvent] = []
        self._seen: dict[tuple[int | None, int], list[_Seen]] = {}
        self._ready: list[tuple[float, Event]] = []

    def from_nvml(self, gpu: int, code: int, at_s: float) -> None:
        """Has no process. Waits for the kernel's line, where that can be read."""
        if self._was_seen(gpu, code, at_s, None):
            return
        if self._waits:
            self._pending.append(DriverEvent(at_s, gpu, code))
        else:
            self._tell(gpu, code, at_s, None)

    def from_kernel(self, gpu: int | None, line: KernelLine) -> None:
        """A line with ``xid``. ``gpu`` is None for a bus id that is not ours."""
        assert line.xid is not None
        self._pending = [
            one
            for one in self._pending
            if (one.gpu, one.xid) != (gpu, line.xid) or abs(one.at_s - line.at_s) > SAME_S
        ]
        if not self._was_seen(gpu, line.xid, line.at_s, line.pid):
            self._tell(gpu, line.xid, line.at_s, line)

    def ready(self, now_s: float) -> list[tuple[float, Event]]:
        """Events that nothing can be added to any more, with their times."""
        waiting = []
        for one in self._pending:
            if now_s - one.at_s < KERNEL_PATIENCE_S:
                waiting.append(one)
            elif one.xid is not None and not self._was_seen(one.gpu, one.xid, one.at_s, None):
                self._tell(one.gpu, one.xid, one.at_s, None)
        self._pending = waiting
        ready, self._ready = self._ready, []
        return ready

    def _was_seen(self, gpu: int | None, code: int, at_s: float, pid: int | None) -> bool:
        """The same Xid, told already: of this process, or by a source without processes."""
        known = self._seen.get((gpu, code), ())
        return any(
            abs(one.at_s - at_s) <= SAME_S and (pid is None or one.pid in (None, pid))
            for one in known
        )

    def _tell(self, gpu: int | None, code: int, at_s: float, line: KernelLine | None) -> None:
        seen = self._seen.setdefault((gpu, code), [])
        seen.append(_Seen(at_s, line.pid if line else None))
        del seen[:-8]
        event = Event(
            at=iso(at_s),
            gpu=gpu,
            kind="xid",
            sentence=_sentence(gpu, code, line),
            severity=xid.explain(code).severity,
            xid=code,
        )
        self._ready.append((at_s, event))


def _sentence(gpu: int | None, code: int, line: KernelLine | None) -> str:
    known = xid.explain(code)
    where = f"GPU {gpu}"
    if gpu is None:
        where = "a GPU that is not shown" if line is None else f"GPU at {bus_text(line.bus)}"
    hint = known.hint
    if code == _RECOMMENDATION and line is not None and line.text:
        hint = clean(line.text)[:_LONGEST_DETAIL]
    return f"{where}: Xid {code}, {known.meaning}: {hint}{_who(line)}"


def _who(line: KernelLine | None) -> str:
    if line is None or line.pid is None:
        return ""
    name = clean(line.name) if line.name else "a process"
    return f" ({name}, pid {line.pid})"


def bus_text(bus: tuple[int, int, int]) -> str:
    """``0000:1b:00``, as the kernel log has it."""
    return f"{bus[0]:04x}:{bus[1]:02x}:{bus[2]:02x}"
