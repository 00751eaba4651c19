"""Opens NVML in a thread, keeps it open, and opens it again when the driver went away."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace

import msgspec

from cockpit.collect import driver_advice, nvml
from cockpit.collect.driver_files import in_wsl, read_facts
from cockpit.collect.gpu_events import EventWatcher
from cockpit.collect.gpu_reader import GpuReader, Round
from cockpit.collect.nvml import NvmlError
from cockpit.collect.nvml_topology import read_topology
from cockpit.model.gpu import Driver, DriverError, TopologyLink
from cockpit.model.text import gpus

_log = logging.getLogger(__name__)

RETRY_S = 2.0
_IDLE_POLL_S = 0.05
_TOPOLOGY_DELAY_S = 1.0
"""At most: the first readings come first."""


@dataclass(slots=True)
class Session:
    """One opening of the library, with everything that lives as long as it."""

    driver: Driver
    readers: tuple[GpuReader, ...]
    first: Round
    """The tick that every reader was given at once. The sampler's thread waits for it."""
    watcher: EventWatcher
    topology: tuple[TopologyLink, ...] | None = None
    """None: not read yet. Written by one thread, once."""
    gone: NvmlError | None = None
    """Why it is over. Written once, by the sampler's thread."""
    ended: threading.Event = field(default_factory=threading.Event)


class DriverKeeper:
    """The thread that opens and re-opens. Others look at ``session`` and ``driver``."""

    def __init__(self, only: tuple[int, ...] | None) -> None:
        self.session: Session | None = None
        """The newest opening, also when it is over. Written by the thread alone."""
        self.driver = Driver()
        """Of the newest attempt. Written by the thread alone."""
        self.settled = threading.Event()
        """Set when the first attempt has come to an answer."""
        self.started_s = time.monotonic()
        self._only = only
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-driver", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns at once."""
        self.started_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Asks all threads to end; waits for none."""
        self._stopping.set()
        session = self.session
        if session is not None:
            session.ended.set()
            _stop_threads(session)

    def report_gone(self, session: Session, error: NvmlError) -> None:
        """A reader was told that the driver is gone."""
        if session.gone is None:
            session.gone = error
            session.ended.set()

    def current_driver(self) -> Driver:
        """What to show as the driver now, its error included."""
        if not self.settled.is_set():
            return Driver(error=driver_advice.explain("timeout", read_facts()))
        session = self.session
        if session is not None and session.gone is not None and self.driver.error is None:
            return _failed_driver(session.gone.name, session.driver)
        return self.driver

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                session = self._open()
            except NvmlError as error:
                known = self.session.driver if self.session is not None else None
                self.driver = _failed_driver(error.name, known)
                session = None
            self.settled.set()
            if session is None:
                self._stopping.wait(RETRY_S)
                continue
            try:
                self._keep(session)
            except Exception:  # noqa: BLE001 - no thread to be had, say: the next session may have
                _log.exception("a session with the driver failed")
                _stop_threads(session)
                self._stopping.wait(RETRY_S)

    def _open(self) -> Session | None:
        """None: there is no device. Raises NvmlError."""
        nvml.open_library()
        driver = nvml.versions()
        count = nvml.device_count()
        indices = [i for i in range(count) if self._only is None or i in self._only]
        if not indices:
            nvml.close_library()
            self.driver = _without_devices(driver, count, self._only)
            return None
        session = _start_session(driver, indices)
        self.session, self.driver = session, driver
        return session

    def _wait_for_first_readings(self, session: Session) -> None:
        end_s = time.monotonic() + _TOPOLOGY_DELAY_S
        while any(reader.is_busy for reader in session.readers) and time.monotonic() < end_s:
            self._stopping.wait(_IDLE_POLL_S)

    def _keep(self, session: Session) -> None:
        self._wait_for_first_readings(session)
        threading.Thread(
            target=_read_topology, args=(session,), name="nvml-topology", daemon=True
        ).start()
        session.watcher.start()
        session.ended.wait()
        if self._stopping.is_set():
            return
        assert session.gone is not None
        self.driver = _failed_driver(session.gone.name, session.driver)
        _stop_threads(session)
        # nvmlShutdown under a call that is still on its way would pull the floor from under it
        while _is_in_use(session) and not self._stopping.is_set():
            self._stopping.wait(_IDLE_POLL_S)
        try:
            nvml.close_library()
        except NvmlError as error:
            self.driver = _failed_driver(error.name, session.driver)


def _start_session(driver: Driver, indices: list[int]) -> Session:
    wsl = in_wsl()
    readers = tuple(GpuReader(index, wsl) for index in indices)
    first = Round(len(readers))
    for reader in readers:
        reader.ask(first)
        reader.start()
    return Session(driver, readers, first, EventWatcher(tuple(indices)))


def _stop_threads(session: Session) -> None:
    session.watcher.stop()
    for reader in session.readers:
        reader.stop()


def _is_in_use(session: Session) -> bool:
    return session.watcher.is_alive or any(reader.is_alive for reader in session.readers)


def _read_topology(session: Session) -> None:
    session.topology = read_topology(tuple(reader.index for reader in session.readers))


def _failed_driver(code: str, known: Driver | None = None) -> Driver:
    """``known``: what it called itself when it last worked."""
    facts = replace(read_facts(), worked_before=known is not None)
    library = nvml.loaded_library_version()
    base = known or Driver(version=facts.module_version, nvml_version=library)
    return msgspec.structs.replace(base, error=driver_advice.explain(code, facts, library))


def _without_devices(driver: Driver, count: int, only: tuple[int, ...] | None) -> Driver:
    if count and only is not None:
        error = DriverError(
            code="no_such_gpu",
            message=f"There is no GPU {', '.join(map(str, only))}: "
            f"this machine has {gpus(range(count))}.",
            advice=("Leave out --only, or name GPUs that exist.",),
        )
    else:
        error = driver_advice.explain("no_devices", read_facts())
    return msgspec.structs.replace(driver, error=error)
