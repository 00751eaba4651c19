"""Environment variables that a guided fix may set for the next run: data, and how values merge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """One change of the environment."""

    id: str
    name: str
    value: str
    does: str
    costs: str
    source: str
    """The page that documents it."""


_CUDA_SEMANTICS = "PyTorch: CUDA semantics, Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF"
_TORCH_CUDA = "PyTorch: CUDA environment variables"
_TORCH_NCCL = "PyTorch: ProcessGroupNCCL environment variables"
_FLIGHT = "PyTorch: Flight Recorder for debugging"
_NCCL = "NVIDIA NCCL: environment variables"
_COMPILE = "PyTorch: torch.compile troubleshooting"

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "expandable_segments",
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True",
        "Segments grow in place, so that free memory is not cut into unusable pieces.",
        "nothing measurable; tensors shared between processes by CUDA IPC need torch 2.5 or newer",
        _CUDA_SEMANTICS,
    ),
    Variable(
        "launch_blocking",
        "CUDA_LAUNCH_BLOCKING",
        "1",
        "Each kernel is waited for: the traceback then names the line that really failed.",
        "much speed (small kernels run several times slower); races may disappear",
        _TORCH_CUDA,
    ),
    Variable(
        "no_caching",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "1",
        "Each tensor gets memory of its own, so that compute-sanitizer sees writes out of bounds.",
        "very much speed: each allocation is a cudaMalloc",
        _TORCH_CUDA,
    ),
    Variable(
        "nccl_debug",
        "NCCL_DEBUG",
        "INFO",
        "NCCL prints versions, transports, rings and its warnings.",
        "some hundred lines of output at the start",
        _NCCL,
    ),
    Variable(
        "flight_recorder",
        "TORCH_FR_BUFFER_SIZE",
        "2000",
        "The last 2000 collectives of each rank are kept (before torch 2.9: the old name).",
        "a few hundred bytes a collective",
        _FLIGHT,
    ),
    Variable(
        "flight_recorder_old",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "2000",
        "The same for torch before 2.9.",
        "a few hundred bytes a collective",
        _FLIGHT,
    ),
    Variable(
        "dump_on_timeout",
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "1",
        "At a time-out each rank writes what it recorded.",
        "nothing",
        _TORCH_NCCL,
    ),
    Variable(
        "nccl_p2p_off",
        "NCCL_P2P_DISABLE",
        "1",
        "GPUs exchange data through host memory instead of directly.",
        "speed: NVLink and PCIe peer access are not used",
        _NCCL,
    ),
    Variable(
        "one_thread",
        "OMP_NUM_THREADS",
        "1",
        "Each process computes on the CPU with one thread; torchrun's own default.",
        "CPU-bound parts (tokenisation, augmentation in the main process) may become slower",
        "PyTorch: Performance tuning guide; torchrun (Elastic Launch)",
    ),
    Variable(
        "no_dynamo",
        "TORCHDYNAMO_DISABLE",
        "1",
        "torch.compile does nothing: the model runs eagerly.",
        "the speed that compiling had brought",
        _COMPILE,
    ),
    Variable(
        "cpp_stacks",
        "TORCH_SHOW_CPP_STACKTRACES",
        "1",
        "Errors of torch's C++ code carry its stack.",
        "nothing",
        "PyTorch: Miscellaneous environment variables",
    ),
)


def variable(id_: str) -> Variable:
    """Raises KeyError."""
    return {one.id: one for one in VARIABLES}[id_]


def allocator_setting(
    environment: Mapping[str, str], setting: str, torch_version: str | None = None
) -> tuple[str, str]:
    """(name, value) that adds ``expandable_segments:True`` to what is set there already.

    torch 2.9 renamed PYTORCH_CUDA_ALLOC_CONF to PYTORCH_ALLOC_CONF and still reads the old name;
    the one that the run has set is kept. Source: PyTorch, CUDA semantics.
    """
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    preferred = new if _at_least(torch_version, (2, 9)) else old
    # Where both are set, a new torch takes the new name and an old one knows only the old.
    name = (
        preferred
        if preferred in environment
        else next(
            (one for one in (new, old) if one in environment and _reads(one, torch_version)),
            preferred,
        )
    )
    key = setting.partition(":")[0]
    kept = [part for part in _settings(environment.get(name, "")) if part.partition(":")[0] != key]
    return name, ",".join([*kept, setting])


def _reads(name: str, torch_version: str | None) -> bool:
    return name == "PYTORCH_CUDA_ALLOC_CONF" or _at_least(torch_version, (2, 9))


def _settings(text: str) -> list[str]:
    """Parts between commas, but not in brackets (``roundup_power2_divisions:[256:1,512:2]``)."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _at_least(version: str | None, wanted: tuple[int, int]) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return match is not None and (int(match[1]), int(match[2])) >= wanted
