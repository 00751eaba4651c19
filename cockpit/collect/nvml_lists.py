"""NVML's lists of one GPU, on the C symbols with buffers that are kept: process lists, utilisation
samples of processes, memory. Holds the fallbacks for drivers that lack the newest versions.

Layouts are those of nvml.h: nvmlProcessInfo_v1_t, nvmlProcessInfo_t (v2, v3),
nvmlProcessUtilizationSample_t, nvmlMemory_v2_t.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_uint, c_ulonglong
from dataclasses import dataclass
from typing import Any, NamedTuple

from cockpit.collect import nvml
from cockpit.collect.nvml import Handle, NvmlError

_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_NO_INSTANCE = 0xFFFFFFFF
_PROCESS = {"v1": struct.Struct("=IxxxxQ"), "v2": struct.Struct("=IxxxxQII")}
_SAMPLE = struct.Struct("=IxxxxQIIII")
_MEMORY_V2 = struct.Struct("=IxxxxQQQQ")
_MEMORY_V2_VERSION = 2 << 24 | _MEMORY_V2.size
_LIE_PCT = 100
"""Some drivers answer utilisations of several hundred percent: rubbish, not a busy process."""


class ListedProcess(NamedTuple):
    """One line of a process list."""

    pid: int
    used_bytes: int | None
    gpu_instance: int | None
    compute_instance: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory, bytes. ``reserved`` is None before memory v2 (it is part of ``used`` then)."""

    total: int
    free: int
    used: int
    reserved: int | None


class ProcessList:
    """One list (``Compute``, ``Graphics``, ``MPSCompute``) in the newest version there is."""

    def __init__(self, kind: str) -> None:
        base = f"nvmlDeviceGet{kind}RunningProcesses"
        name, self._call = nvml.symbol((f"{base}_v3", f"{base}_v2", base))
        self._layout = _PROCESS["v2" if name.endswith(("_v2", "_v3")) else "v1"]
        self._length = c_uint()
        self._room = 0
        self._raw = b""
        self._listed: list[ListedProcess] = []
        self._grow(32)

    def _grow(self, room: int) -> None:
        if room > self._room:
            self._room = room
            self._buffer = ctypes.create_string_buffer(room * self._layout.size)

    def read(self, handle: Handle) -> list[ListedProcess]:
        """The same list as before (the same object) while nothing changes. Raises NvmlError."""

        def make(room: int) -> int:
            self._grow(room)
            return self._call(handle, byref(self._length), self._buffer)

        count, _ = nvml.call_with_room(make, self._length, self._room)
        raw = bytes(memoryview(self._buffer)[: count * self._layout.size])
        if raw != self._raw:
            self._raw = raw
            self._listed = [_listed(*line) for line in self._layout.iter_unpack(raw)]
        return self._listed


def _listed(
    pid: int, used: int, gpu_instance: int = _NO_INSTANCE, compute_instance: int = _NO_INSTANCE
) -> ListedProcess:
    return ListedProcess(
        pid,
        None if used == _NOT_AVAILABLE else used,
        None if gpu_instance == _NO_INSTANCE else gpu_instance,
        None if compute_instance == _NO_INSTANCE else compute_instance,
    )


class Utilization:
    """SM share of each process since the last reading (nvmlDeviceGetProcessUtilization)."""

    def __init__(self, since_us: int) -> None:
        _, self._call = nvml.symbol(("nvmlDeviceGetProcessUtilization",))
        self._since_us = since_us
        self._length = c_uint()
        self._room = 0
        self._grow(64)

    def _grow(self, room: int) -> None:
        if room > self._room:
            self._room = room
            self._buffer = ctypes.create_string_buffer(room * _SAMPLE.size)

    def read(self, handle: Handle) -> dict[int, float] | None:
        """pid → mean percent; None: no new sample. Raises NvmlError."""
        since = c_ulonglong(self._since_us)

        def make(room: int) -> int:
            self._grow(room)
            return self._call(handle, self._buffer, byref(self._length), since)

        try:
            count, _ = nvml.call_with_room(make, self._length, self._room)
        except NvmlError as error:
            if error.is_nothing_found:
                return None
            raise
        return self._means(memoryview(self._buffer)[: count * _SAMPLE.size])

    def _means(self, filled: memoryview) -> dict[int, float]:
        sums: dict[int, tuple[int, int]] = {}
        for pid, at_us, sm, _memory, _encoder, _decoder in _SAMPLE.iter_unpack(filled):
            if at_us <= self._since_us and at_us:  # old lines of the ring come along
                continue
            if sm <= _LIE_PCT and pid:
                total, count = sums.get(pid, (0, 0))
                sums[pid] = (total + sm, count + 1)
        newest = max((line[1] for line in _SAMPLE.iter_unpack(filled)), default=0)
        self._since_us = max(self._since_us, newest)
        return {pid: total / count for pid, (total, count) in sums.items()}


class MemoryInfo:
    """Memory v2 where the driver has it, else v1."""

    def __init__(self) -> None:
        try:
            self._call: Any = nvml.symbol(("nvmlDeviceGetMemoryInfo_v2",))[1]
        except NvmlError:
            self._call = None
        self._buffer = ctypes.create_string_buffer(_MEMORY_V2.size)

    def read(self, handle: Handle) -> Memory:
        """Raises NvmlError."""
        if self._call is not None:
            _MEMORY_V2.pack_into(self._buffer, 0, _MEMORY_V2_VERSION, 0, 0, 0, 0)
            code = self._call(handle, self._buffer)
            if code == 0:
                _, total, reserved, free, used = _MEMORY_V2.unpack(self._buffer)
                return Memory(total, free, used, reserved)
            if NvmlError(code).gap != "driver_too_old":
                raise NvmlError(code)
            self._call = None  # exported, but not this version of the struct
        old = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
        return Memory(old.total, old.free, old.used, None)
