"""The environment of a run that the cockpit starts, and what of an environment may be kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from cockpit.model.secret import HIDDEN, is_secret_value, without_user_info
from cockpit.model.secret import is_secret_name as is_secret

BOOTSTRAP = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent", "bootstrap"
)
DIRECTORY = "COCKPIT_RUN_DIR"
OPTIONS = "COCKPIT_RUN_OPTIONS"
"""Read by the bootstrap: history, ptracer."""


def for_run(
    environment: Mapping[str, str],
    directory: str | None,
    *,
    options: Iterable[str] = (),
    coredump: bool = False,
    readonly: bool = False,
) -> dict[str, str]:
    """What is to be changed for the command; a setting of torch or CUDA only where it is unset.

    Names: torch's FlightRecorder.hpp and FlightRecorder.cpp; CUDA's user-space core dumps
    (docs.nvidia.com, cuda-gdb, "GPU core dump support").
    """
    changes = {"PYTHONPATH": _python_path(environment.get("PYTHONPATH", ""))}
    changes[OPTIONS] = ",".join(options)
    if readonly:
        changes["COCKPIT_AGENT_READONLY"] = "1"
    _unless_set(
        changes, environment, "2000", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    )
    _unless_set(changes, environment, "1", "TORCH_NCCL_DUMP_ON_TIMEOUT")
    if directory is None:
        return changes
    changes[DIRECTORY] = directory
    # The old name would make a new torch print a warning; the bootstrap adds it for an old torch.
    rank_files = os.path.join(directory, "flight", "rank_")
    names = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    _unless_set(changes, environment, rank_files, *names)
    if coredump:
        for name, value in _coredump(directory).items():
            _unless_set(changes, environment, value, name)
    return changes


def masked(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy that may be kept: what looks like a secret is replaced, by its name or its value."""
    return {name: _masked(name, value) for name, value in sorted(environment.items())}


def _masked(name: str, value: str) -> str:
    if value and (is_secret(name) or is_secret_value(value)):
        return HIDDEN
    return without_user_info(value)


def _python_path(old: str) -> str:
    # An empty entry would mean the working directory: none is added to an empty variable.
    rest = [entry for entry in old.split(os.pathsep) if entry != BOOTSTRAP] if old else []
    return os.pathsep.join([BOOTSTRAP, *rest])


def _unless_set(
    changes: dict[str, str], environment: Mapping[str, str], value: str, *names: str
) -> None:
    if not any(name in environment for name in names):
        changes[names[0]] = value


def _coredump(directory: str) -> dict[str, str]:
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_COREDUMP_FILE": os.path.join(directory, "cuda-%h-%p.nvcudmp"),
        "CUDA_COREDUMP_GENERATION_FLAGS": "skip_nonrelocated_elf_images,skip_global_memory,"
        "skip_shared_memory,skip_local_memory,skip_abort",
    }
