"""A thread that reads one GPU, so that a call that blocks delays this GPU and no other."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue

from cockpit.collect.gpu_probe import GpuProbe, Reading
from cockpit.collect.nvml import NvmlError
from cockpit.collect.nvml_processes import Holding

_log = logging.getLogger(__name__)


class Round:
    """One question to several readers. Who asks waits until all have answered, or no longer."""

    def __init__(self, readers: int) -> None:
        self._missing = readers
        self._arrivals: SimpleQueue[None] = SimpleQueue()
        self.given_up = False
        """Written by the asker alone: a reader that comes back late need not read for nobody."""

    def arrive(self) -> None:
        """A reader has answered. From any thread."""
        self._arrivals.put(None)

    def wait_for_one(self, timeout_s: float) -> bool:
        """True when one more has answered. From the asker's thread, like :meth:`wait`."""
        try:
            self._arrivals.get(timeout=max(0.0, timeout_s))
        except Empty:
            return False
        self._missing -= 1
        return True

    def wait(self, timeout_s: float) -> bool:
        """True when all have answered."""
        end_s = time.monotonic() + timeout_s
        while self._missing > 0:
            if not self.wait_for_one(end_s - time.monotonic()):
                return False
        return True


class HoldingRound(Round):
    """A round that asks for memory and processes alone."""

    def __init__(self, readers: int) -> None:
        super().__init__(readers)
        self.holdings: dict[int, Holding] = {}


class GpuReader:
    """The thread of one GPU, and the newest reading that it has published."""

    def __init__(self, index: int, wsl: bool = False) -> None:
        self.index = index
        self.started_s = time.monotonic()
        self.latest: Reading | None = None
        """Written by the thread alone."""
        self._probe = GpuProbe(index, wsl)
        self._questions: SimpleQueue[Round | None] = SimpleQueue()
        self._asked = 0
        self._answered = 0
        self._thread = threading.Thread(target=self._run, name=f"gpu-{index}", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end after the call that it is in."""
        self._questions.put(None)

    @property
    def is_alive(self) -> bool:
        """False: no call of this reader is under way any more."""
        return self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """The last tick was not answered yet."""
        return self._answered < self._asked

    def ask(self, round_: Round) -> None:
        """Ask for a tick. From one thread; not while the reader is busy."""
        self._asked += 1
        self._questions.put(round_)

    def ask_holding(self, round_: HoldingRound) -> None:
        """Ask for memory and processes. From any thread."""
        self._questions.put(round_)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            if isinstance(question, HoldingRound):
                self._answer_holding(question)
            else:
                self._answer(question)

    def _answer(self, question: Round) -> None:
        try:
            self._read_quick()
        except Exception:  # noqa: BLE001 - a surprise in one tick must not end the row for good
            _log.exception("reading GPU %d failed", self.index)
        self._answered += 1
        question.arrive()
        try:
            self._read_rest()
        except Exception:  # noqa: BLE001 - as above
            _log.exception("reading GPU %d failed", self.index)

    def _read_quick(self) -> None:
        names = self._probe.identify()
        if names is not None:
            self.latest = names
        if names is None or names.gpu.state == "ok":
            self.latest = self._probe.quick()

    def _read_rest(self) -> None:
        """One slice, and more for as long as nobody asks for anything."""
        while (rest := self._probe.rest()) is not None:
            self.latest = rest
            if not self._probe.has_more or not self._questions.empty():
                return

    def _answer_holding(self, question: HoldingRound) -> None:
        try:
            if not question.given_up:
                question.holdings[self.index] = self._probe.holding()
        except NvmlError as error:
            _log.debug("no memory reading of GPU %d: %s", self.index, error)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("reading the memory of GPU %d failed", self.index)
        finally:
            question.arrive()
