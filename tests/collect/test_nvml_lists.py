"""The layouts of NVML's lists, against a library that is a Python function."""

from __future__ import annotations

import ctypes
import struct

import pynvml
import pytest

from cockpit.collect import nvml, nvml_lists
from cockpit.collect.nvml import NvmlError
from cockpit.collect.nvml_lists import ListedProcess, ProcessList, Utilization

UNKNOWN_BYTES = 2**64 - 1


def _write(buffer: ctypes.Array, lines: list[bytes]) -> None:
    data = b"".join(lines)
    ctypes.memmove(buffer, data, len(data))


@pytest.fixture
def library(monkeypatch):
    """Symbols by name; the first that is there is taken."""
    symbols = {}

    def symbol(names):
        for name in names:
            if name in symbols:
                return name, symbols[name]
        raise NvmlError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    monkeypatch.setattr(nvml, "symbol", symbol)
    return symbols


def _list_of(lines: list[bytes]):
    def call(_handle, length, buffer) -> int:
        count = length._obj
        if count.value < len(lines):
            count.value = len(lines)
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        count.value = len(lines)
        _write(buffer, lines)
        return pynvml.NVML_SUCCESS

    return call


def test_the_newest_list_names_the_mig_instance(library):
    line = struct.pack("=IxxxxQII", 42, 1024, 3, 0)
    library["nvmlDeviceGetComputeRunningProcesses_v3"] = _list_of([line])
    assert ProcessList("Compute").read(None) == [ListedProcess(42, 1024, 3, 0)]


def test_the_oldest_list_has_no_instances(library):
    lines = [struct.pack("=IxxxxQ", 42, 1024), struct.pack("=IxxxxQ", 43, UNKNOWN_BYTES)]
    library["nvmlDeviceGetComputeRunningProcesses"] = _list_of(lines)
    assert ProcessList("Compute").read(None) == [
        ListedProcess(42, 1024, None, None),
        ListedProcess(43, None, None, None),
    ]


def test_a_list_longer_than_the_buffer_is_asked_for_again(library):
    lines = [struct.pack("=IxxxxQII", pid, 1, 2**32 - 1, 2**32 - 1) for pid in range(1, 501)]
    library["nvmlDeviceGetComputeRunningProcesses_v3"] = _list_of(lines)
    read = ProcessList("Compute").read(None)
    assert [line.pid for line in read] == list(range(1, 501))
    assert read[0].gpu_instance is None


def test_an_error_of_the_library_comes_out_by_name(library):
    library["nvmlDeviceGetComputeRunningProcesses_v3"] = lambda *_: pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(NvmlError) as caught:
        ProcessList("Compute").read(None)
    assert caught.value.is_lost
    assert caught.value.name == "gpu_is_lost"


def _sample(pid: int, at_us: int, sm: int) -> bytes:
    return struct.pack("=IxxxxQIIII", pid, at_us, sm, 0, 0, 0)


def _samples_of(lines: list[bytes]):
    inner = _list_of(lines)

    def call(handle, buffer, length, _since) -> int:
        return inner(handle, length, buffer) if lines else pynvml.NVML_ERROR_NOT_FOUND

    return call


def test_shares_are_means_of_the_samples_that_are_new(library):
    lines = [_sample(7, 50, 99), _sample(7, 200, 40), _sample(7, 300, 60), _sample(8, 250, 10)]
    library["nvmlDeviceGetProcessUtilization"] = _samples_of(lines)
    assert Utilization(since_us=100).read(None) == {7: 50, 8: 10}


def test_shares_above_a_hundred_are_a_known_lie_and_left_out(library):
    lines = [_sample(7, 200, 4_000_000), _sample(8, 200, 100)]
    library["nvmlDeviceGetProcessUtilization"] = _samples_of(lines)
    assert Utilization(since_us=0).read(None) == {8: 100}


def test_no_samples_is_not_the_same_as_idle(library):
    library["nvmlDeviceGetProcessUtilization"] = _samples_of([])
    assert Utilization(since_us=0).read(None) is None


def test_gaps_have_one_vocabulary():
    def gap(code: int) -> str:
        return NvmlError(code).gap

    assert gap(pynvml.NVML_ERROR_NOT_SUPPORTED) == "not_supported"
    assert gap(pynvml.NVML_ERROR_NO_PERMISSION) == "no_permission"
    assert gap(pynvml.NVML_ERROR_GPU_IS_LOST) == "gpu_lost"
    assert gap(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) == "driver_too_old"
    assert gap(pynvml.NVML_ERROR_TIMEOUT) == "timeout"
    assert gap(12345) == "nvml_12345"
    assert pynvml.nvmlMemory_v2 == nvml_lists._MEMORY_V2_VERSION
