"""Reads one GPU: knows which questions are due and turns the answers into a Gpu. No thread here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cockpit.collect import nvml, nvml_fields, nvml_mig
from cockpit.collect.driver_files import host_memory, known_gpus
from cockpit.collect.nvml import Handle, NvmlError
from cockpit.collect.nvml_fields import (
    IDENTITY,
    MOVING,
    NAMES,
    NOT_ON_MIG,
    SELDOM,
    SLOW,
    Answers,
    Question,
    Silence,
)
from cockpit.collect.nvml_mig import Instance
from cockpit.collect.nvml_processes import Holding, Processes
from cockpit.collect.nvml_rates import GPM_FIELDS, Rates
from cockpit.collect.readings import MemoryReading, ProcessUse
from cockpit.model.gpu import Gpu, GpuState

SLOW_PERIOD_S = 5.0
SELDOM_PERIOD_S = 30.0
SLICE_S = 0.05
"""How long a slice of the slow tier may take; 30 ms is all of it on an H200."""
PATIENCE_WITH_UNKNOWN = 2
"""Ticks in a row in which nothing but an unexplained error came: then the GPU counts as lost."""

_NOT_READ = ("index", "state", "age_s", "mig_instances", "unified_memory", "gaps")
FIELDS = tuple(name for name in Gpu.__struct_fields__ if name not in _NOT_READ)
KEPT_WHEN_LOST = frozenset(
    (
        *(name for question in (*NAMES, *IDENTITY) for name in question.fields),
        "memory_total_bytes",
    )
)
_MEMORY_FIELDS = ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes")


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything about one GPU at one moment."""

    gpu: Gpu
    uses: tuple[ProcessUse, ...]
    memory: MemoryReading | None
    good_s: float
    """Monotonic time of the last answer that was good; 0: never."""
    complete: bool
    """Every tier was read, and the rates have had their two samples."""
    driver_error: NvmlError | None = None
    """The library has to be opened again."""


@dataclass(slots=True)
class _Parts:
    """What belongs to one handle."""

    handle: Handle
    rates: Rates
    processes: Processes
    rate_samples: int = 0
    slow_s: float = -SLOW_PERIOD_S
    seldom_s: float = -SELDOM_PERIOD_S
    due: list[_Step] = field(default_factory=list)
    """What is left of the slow tier."""
    has_all: bool = False
    """The slow tier was read to its end once, identity included."""


_Step = Callable[[_Parts], None]


class GpuProbe:
    """One GPU. Used from one thread."""

    def __init__(self, index: int, wsl: bool = False) -> None:
        self.index = index
        self._wsl = wsl
        self._silence = Silence()
        self._parts: _Parts | None = None
        self._values: dict[str, Any] = {}
        self._gaps = dict.fromkeys(FIELDS, "not_read_yet")
        self._mig: tuple[Instance, ...] = ()
        self._unified = False
        self._state: GpuState = "ok"
        self._failures = 0
        self._refused = False
        """The device is there and says why it does not answer; that may stay so."""
        self._good_s = 0.0
        self._uses: tuple[ProcessUse, ...] = ()
        self._memory: MemoryReading | None = None

    def identify(self) -> Reading | None:
        """Its names alone, when it was not opened yet: a slow GPU's row can say what it is."""
        if self._parts is not None:
            return None
        try:
            self._open()
        except NvmlError as error:
            return self._failed(error)
        return self._reading()

    def quick(self) -> Reading:
        """What moves. The first time: as much as a first screen needs, in 10 ms."""
        try:
            self._read_moving(self._parts or self._open(), first=not self._good_s)
        except NvmlError as error:
            return self._failed(error)
        self._state, self._failures, self._good_s = "ok", 0, time.monotonic()
        self._refused = False
        return self._reading()

    def rest(self) -> Reading | None:
        """A slice of what changes seldom; None: nothing was due.

        Where each call takes 300 ms the whole of it would hold up the moving values for seconds.
        """
        parts, now_s = self._parts, time.monotonic()
        if parts is None:
            return None
        if not parts.due:
            if now_s - parts.slow_s < SLOW_PERIOD_S:
                return None
            parts.slow_s = now_s
            parts.due = self._steps(parts, now_s)
        try:
            while parts.due and time.monotonic() - now_s < SLICE_S:
                parts.due.pop(0)(parts)
        except NvmlError as error:
            return self._failed(error)
        parts.has_all = parts.has_all or not parts.due
        return self._reading()

    def holding(self) -> Holding:
        """Memory and processes alone, for the proof of a kill. Raises NvmlError."""
        parts = self._parts or self._open()
        return parts.processes.read(time.monotonic(), time.time(), self._mig, shares=False)

    @property
    def has_more(self) -> bool:
        """A slice of the slow tier is left."""
        return self._parts is not None and bool(self._parts.due)

    # -- tiers

    def _open(self) -> _Parts:
        handle = nvml.device(self.index)
        parts = _Parts(
            handle,
            Rates(handle, self._silence),
            Processes(self.index, handle, self._silence, self._wsl),
        )
        now_s = time.monotonic()
        self._take(nvml_fields.put((*NAMES, SLOW[0]), handle, self._silence, now_s))
        self._read_mig(parts)
        self._parts = parts
        return parts

    def _read_moving(self, parts: _Parts, first: bool) -> None:
        now_s = time.monotonic()
        self._take(nvml_fields.put(MOVING, parts.handle, self._silence, now_s))
        if not first:
            self._read_rates(parts, now_s)
        holding = parts.processes.read(now_s, time.time(), self._mig, shares=not first)
        self._take_memory(holding)
        self._uses = holding.uses
        self._memory = holding.reading(self.index)

    def _steps(self, parts: _Parts, now_s: float) -> list[_Step]:
        first = not parts.has_all
        questions = [*SLOW, *IDENTITY] if first else [*SLOW]
        if now_s - parts.seldom_s >= SELDOM_PERIOD_S:
            parts.seldom_s = now_s
            questions += SELDOM
        steps: list[_Step] = [partial(self._read_one, question) for question in questions]
        return [self._read_first_rates, *steps] if first else [*steps, self._read_mig]

    def _read_one(self, question: Question, parts: _Parts) -> None:
        try:
            answers = nvml_fields.put((question,), parts.handle, self._silence, time.monotonic())
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                raise
            answers = Answers()
            answers.missing(question.fields, error.gap)
        if "numa_node" in answers.gaps and "pci_bus_id" in self._values:
            answers.known(numa_node=nvml_fields.numa_node_of_bus(self._values["pci_bus_id"]))
        self._take(answers)

    def _read_first_rates(self, parts: _Parts) -> None:
        if not parts.rate_samples:
            self._read_rates(parts, time.monotonic())

    def _read_rates(self, parts: _Parts, now_s: float) -> None:
        answers = parts.rates.read(now_s)
        if answers.values or answers.gaps:
            parts.rate_samples += 1
            self._take(answers)

    def _read_mig(self, parts: _Parts) -> None:
        enabled = nvml_mig.is_enabled(parts.handle)
        self._mig = nvml_mig.instances(parts.handle) if enabled else ()
        answers = Answers()
        answers.known(mig_enabled=enabled)
        self._take(answers)

    # -- what is known

    def _take(self, answers: Answers) -> None:
        for name, value in answers.values.items():
            self._values[name] = value
            self._gaps.pop(name, None)
        for name, reason in answers.gaps.items():
            self._forget(name, reason)

    def _forget(self, name: str, reason: str) -> None:
        self._values.pop(name, None)
        cut_up = reason == "not_supported" and self._values.get("mig_enabled")
        self._gaps[name] = "mig" if cut_up and name in (*NOT_ON_MIG, *GPM_FIELDS) else reason

    def _take_memory(self, holding: Holding) -> None:
        answers = Answers()
        memory = holding.memory
        if memory is not None:
            answers.known(memory_total_bytes=memory.total, memory_used_bytes=memory.used)
            if memory.reserved is None:
                answers.missing(("memory_reserved_bytes",), "driver_too_old")
            else:
                answers.known(memory_reserved_bytes=memory.reserved)
        else:
            answers.missing(_MEMORY_FIELDS, holding.memory_gap or "unknown")
        if holding.list_gap is not None:
            answers.gaps["processes"] = holding.list_gap
        else:
            self._gaps.pop("processes", None)
        self._take(answers)
        self._unified = holding.memory_gap == "not_supported" and not self._wsl
        if self._unified:
            self._use_host_memory()

    def _use_host_memory(self) -> None:
        """The values are the host's, and ``gaps`` says so although they are there."""
        self._gaps.update(dict.fromkeys(_MEMORY_FIELDS, "unified_memory"))
        found = host_memory()
        if found is not None:
            self._values["memory_total_bytes"], self._values["memory_used_bytes"] = found

    def _reading(self, driver_error: NvmlError | None = None) -> Reading:
        parts = self._parts
        over = self._state == "lost" or self._refused
        gpu = Gpu(
            index=self.index,
            state=self._state,
            mig_instances=tuple(instance.model for instance in self._mig),
            unified_memory=self._unified,
            gaps=dict(self._gaps),
            **self._values,
        )
        complete = parts is not None and parts.has_all and parts.rate_samples > 1
        return Reading(gpu, self._uses, self._memory, self._good_s, complete or over, driver_error)

    # -- failures

    def _failed(self, error: NvmlError) -> Reading:
        if error.is_driver_gone:
            self._state = "stale"
            return self._reading(driver_error=error)
        if error.is_refusal:
            self._state, self._refused = "stale", True
            if not self._good_s:
                self._drop(FIELDS, error.gap)
            return self._reading()
        self._failures += 1
        if error.is_lost or self._failures >= PATIENCE_WITH_UNKNOWN:
            self._state, self._parts = "lost", None  # a GPU that comes back has a new handle
            if "pci_bus_id" not in self._values:
                self._identify_lost()
            self._drop(FIELDS, error.gap)
        else:
            self._state = "stale"
        return self._reading()

    def _drop(self, names: Sequence[str], reason: str) -> None:
        for name in names:
            if name not in KEPT_WHEN_LOST or name not in self._values:
                self._values.pop(name, None)
                self._gaps[name] = reason
        self._mig, self._uses, self._memory = (), (), None

    def _identify_lost(self) -> None:
        """Lost before we started: the kernel module still knows what it had, in NVML's order."""
        known = known_gpus()
        try:
            if len(known) != nvml.device_count():
                return  # the orders need not be the same then
        except NvmlError:
            return
        gpu = known[self.index]
        answers = Answers()
        answers.known(name=gpu.name, uuid=gpu.uuid, pci_bus_id=gpu.bus_id)
        self._take(answers)
