"""The only door to NVML: every call of the binding goes through here, and every error comes out as
:class:`NvmlError` with its name and the gap it leaves. No thread, no cache, no meaning of values.

Most calls use the binding's own functions. Three kinds are made on the C symbols with buffers that
are kept (:mod:`nvml_lists`): the binding asks twice for each list (once for its length; 2.2 ms each
for the utilisation of processes on an H200) and knows only the newest struct versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ctypes import c_uint
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pynvml

from cockpit.model.gpu import Driver

Handle = Any
"""A device of the binding: an opaque pointer."""

ALL_LINKS = 0xFFFFFFFF
"""Scope of the NVLink fields: sum over all links."""
EVENT_XID = pynvml.nvmlEventTypeXidCriticalError
EVENT_DOUBLE_BIT_ECC = pynvml.nvmlEventTypeDoubleBitEccError

_NAMES: dict[int, str] = {
    value: name.removeprefix("NVML_ERROR_").lower()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
_GAPS = {
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "driver_too_old",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "driver_too_old",
    pynvml.NVML_ERROR_GPU_IS_LOST: "gpu_lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "gpu_lost",
}
_LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_REFUSALS = frozenset(
    {
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INSUFFICIENT_POWER,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_IN_USE,
        pynvml.NVML_ERROR_MEMORY,
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
    }
)
_DRIVER_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class NvmlError(Exception):
    """One failed call. Every decision about it is a property here."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(self.name)

    @property
    def name(self) -> str:
        """NVML's name in lower case without its prefix, such as ``gpu_is_lost``."""
        return _NAMES.get(self.code, f"nvml_{self.code}")

    @property
    def gap(self) -> str:
        """The reason that goes into ``gaps``."""
        return _GAPS.get(self.code, self.name)

    @property
    def is_lost(self) -> bool:
        """The GPU needs a reset or a reboot; no other call on it will do better."""
        return self.code in _LOST

    @property
    def is_refusal(self) -> bool:
        """The device is there, and says why it does not answer: no permission, no power cable."""
        return self.code in _REFUSALS

    @property
    def is_driver_gone(self) -> bool:
        """Every call on every GPU answers so: the library has to be opened again."""
        return self.code in _DRIVER_GONE

    @property
    def is_lasting(self) -> bool:
        """Asking again in the next tick would only cost time (3 us to 130 us a call)."""
        return self.gap in ("not_supported", "driver_too_old", "no_permission")

    @property
    def is_nothing_found(self) -> bool:
        """An empty answer rather than a failure: no samples, no such instance."""
        return self.code in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)


def ask(name: str, *args: Any) -> Any:
    """The answer of one function of the binding. Raises NvmlError, and nothing else."""
    try:
        return getattr(pynvml, name)(*args)
    except pynvml.NVMLError as error:
        raise NvmlError(error.value) from None
    except AttributeError:  # a binding older than the function
        raise NvmlError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def ask_either(names: Iterable[str], *args: Any) -> Any:
    """The answer of the first function that this driver has."""
    last = NvmlError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    for name in names:
        try:
            return ask(name, *args)
        except NvmlError as error:
            if error.gap != "driver_too_old":
                raise
            last = error
    raise last


def symbol(names: Iterable[str]) -> tuple[str, Callable[..., int]]:
    """The first of the C functions that this driver exports. Raises NvmlError."""
    for name in names:
        found = getattr(pynvml.nvmlLib, name, None)
        if found is not None:
            return name, found
    raise NvmlError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def call_with_room(make: Callable[[int], int], length: c_uint, room: int) -> tuple[int, int]:
    """Call ``make(room)`` until the list fits; → (length of the list, room it needed).

    ``make`` fills a buffer of that many elements and sets ``length``. Raises NvmlError.
    """
    for _ in range(4):
        length.value = room
        code = make(room)
        if code == pynvml.NVML_SUCCESS:
            return length.value, room
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise NvmlError(code)
        room = max(length.value, room) * 3 // 2 + 8  # more may have started meanwhile
    raise NvmlError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


# -- the library


def open_library() -> None:
    """nvmlInit. May block for as long as the driver likes; 12 ms on a well machine."""
    ask("nvmlInit")


def close_library() -> None:
    """nvmlShutdown, for what was opened. A driver that is gone already is no failure."""
    try:
        ask("nvmlShutdown")
    except NvmlError as error:
        if not error.is_driver_gone:
            raise


def device_count() -> int:
    """GPUs that this process may see."""
    return int(ask("nvmlDeviceGetCount"))


def device(index: int) -> Handle:
    """Raises NvmlError (GPU_IS_LOST for a GPU that was lost before the start)."""
    return ask("nvmlDeviceGetHandleByIndex", index)


def same_device(one: Handle, other: Handle) -> bool:
    """NVML hands out one pointer for one GPU."""
    return bytes(one) == bytes(other)


def versions() -> Driver:
    """What the open library says about itself and the driver; None where it does not say."""
    cuda = _or_none("nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=text(_or_none("nvmlSystemGetDriverVersion")),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        nvml_version=text(_or_none("nvmlSystemGetNVMLVersion")),
    )


def _or_none(name: str) -> Any:
    try:
        return ask(name)
    except NvmlError:
        return None


def text(value: str | bytes | None) -> str | None:
    """Old bindings answer bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def loaded_library_version() -> str | None:
    """From the file name of the library that this process has mapped: known when init fails too."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return None
    found = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[.\d]*)", maps)
    return found.group(1) if found else None


# -- field values, GPM


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One answer of nvmlDeviceGetFieldValues."""

    value: int
    at_us: int
    """CPU time of the reading, us since 1970; the driver answers from a cache of its own."""


def field_values(
    handle: Handle, fields: list[tuple[int, int]]
) -> dict[int, FieldValue | NvmlError]:
    """Field id → answer. Raises NvmlError when the call as a whole fails."""
    answers: dict[int, FieldValue | NvmlError] = {}
    for got in ask("nvmlDeviceGetFieldValues", handle, fields):
        if got.nvmlReturn != pynvml.NVML_SUCCESS:
            answers[got.fieldId] = NvmlError(got.nvmlReturn)
            continue
        # value types: 1 is a 32-bit number, the rest of the union is then rubbish
        narrow = got.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        value = got.value.uiVal if narrow else got.value.ullVal
        answers[got.fieldId] = FieldValue(value, got.timestamp)
    return answers


class Gpm:
    """Two samples of the GPU's own profiling counters, and the metrics between them (Hopper on)."""

    def __init__(self, handle: Handle, metrics: tuple[int, ...]) -> None:
        self._handle = handle
        self._old = ask("nvmlGpmSampleAlloc")
        self._new = ask("nvmlGpmSampleAlloc")
        self._sampled = False
        self._query = pynvml.c_nvmlGpmMetricsGet_t()  # 13 kB: made once
        self._query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._query.numMetrics = len(metrics)
        for place, metric in enumerate(metrics):
            self._query.metrics[place].metricId = metric

    @staticmethod
    def is_supported(handle: Handle) -> bool:
        """Raises NvmlError (FUNCTION_NOT_FOUND before driver 520)."""
        return bool(ask("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice)

    def read(self) -> dict[int, float] | None:
        """Metric id → mean since the last call; None the first time. Raises NvmlError."""
        self._old, self._new = self._new, self._old
        had_one, self._sampled = self._sampled, False
        ask("nvmlGpmSampleGet", self._handle, self._new)
        self._sampled = True
        if not had_one:
            return None
        self._query.sample1, self._query.sample2 = self._old, self._new
        ask("nvmlGpmMetricsGet", self._query)
        asked = self._query.metrics[: self._query.numMetrics]
        return {m.metricId: m.value for m in asked if m.nvmlReturn == pynvml.NVML_SUCCESS}


# -- the event set


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    """What an event set delivered."""

    handle: Handle
    kind: int
    data: int
    """The code, for an Xid."""


class EventSet:
    """Events of some GPUs. One thread waits on it."""

    def __init__(self) -> None:
        self._set = ask("nvmlEventSetCreate")

    def watch(self, handle: Handle, kinds: int) -> None:
        """Ask for the kinds that this GPU can deliver. Raises NvmlError."""
        wanted = ask("nvmlDeviceGetSupportedEventTypes", handle) & kinds
        if wanted:
            ask("nvmlDeviceRegisterEvents", handle, wanted, self._set)

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """None: nothing came in time. Raises NvmlError."""
        try:
            data = ask("nvmlEventSetWait", self._set, timeout_ms)
        except NvmlError as error:
            if error.code == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        return NvmlEvent(data.device, int(data.eventType), int(data.eventData))

    def free(self) -> None:
        """Raises NvmlError."""
        ask("nvmlEventSetFree", self._set)


@cache
def p2p_names() -> dict[int, str]:
    """Answer of nvmlDeviceGetP2PStatus → ``ok`` or the reason, in lower case."""
    prefix = "NVML_P2P_STATUS_"
    names = {v: n.removeprefix(prefix) for n, v in vars(pynvml).items() if n.startswith(prefix)}
    return {code: name.lower() for code, name in names.items()}
