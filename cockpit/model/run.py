"""One attached PyTorch run: what its own allocator says. Filled by the agent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class RunDevice(Struct, frozen=True, kw_only=True):
    """The caching allocator of one device of a run (torch.cuda.memory_stats), bytes."""

    gpu: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    active_bytes: int | None = None
    inactive_split_bytes: int | None = None
    requested_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None
    private_pool_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    driver_seen_bytes: int | None = None


class Run(Struct, frozen=True, kw_only=True):
    """A PyTorch process that the cockpit can ask."""

    pid: int
    start_ticks: int | None = None
    """With the pid the identity of the process (field 22 of /proc/PID/stat)."""
    name: str | None = None
    """As ``cockpit run --name`` has it, else the process's; data from outside: clean it."""
    state: Literal["running", "no_answer", "stopped", "ended"] = "running"
    exit_status: int | None = None
    """Of the command that ``cockpit run`` started, when that has ended; 128 + n for a signal."""
    attached_by: Literal["launch", "import", "ptrace", "remote_exec", "gdb"] | None = None
    torch_version: str | None = None
    python_version: str | None = None
    step: int | None = None
    step_age_s: float | None = None
    steps_per_s: float | None = None
    cuda_initialized: bool | None = None
    devices: tuple[RunDevice, ...] = ()
    gaps: dict[str, str] = {}
