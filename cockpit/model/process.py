"""One process that holds GPU memory (or might)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ProcessKind = Literal["compute", "graphics", "both", "mps"]


class DeviceUse(Struct, frozen=True, kw_only=True):
    """What one process does on one GPU."""

    gpu: int
    vram_bytes: int | None
    sm_pct: float | None
    """Mean of the samples of the last interval; None: the driver has no sample for it."""
    mig_instance: int | None = None
    """Index into the GPU's ``mig_instances``."""


class Stray(Struct, frozen=True, kw_only=True):
    """Why a process is thought to hold VRAM that nobody waits for."""

    reason: Literal["leader_gone", "launcher_gone", "orphan_idle", "directory_deleted"]
    sentence: str


class Process(Struct, frozen=True, kw_only=True):
    """One process with all its GPUs. A pid that cannot be looked up is a row with its reason."""

    pid: int
    start_ticks: int | None = None
    """Field 22 of /proc/PID/stat: with the pid, the identity of the process."""
    started_at: str | None = None
    tty: str | None = None
    framework: str | None = None
    """``pytorch``, ``jax``, ``tensorflow``, ``vllm`` …, when something shows it."""
    user: str | None = None
    uid: int | None = None
    command: tuple[str, ...] = ()
    """argv as it is: control characters and all. Whoever shows it cleans it."""
    name: str | None = None
    """comm: at most 15 bytes."""
    state: str | None = None
    """One letter as in /proc/PID/stat: R S D Z T …"""
    ppid: int | None = None
    cpu_pct: float | None = None
    """Percent of one core."""
    rss_bytes: int | None = None
    kind: ProcessKind | None = None
    vram_bytes: int | None = None
    """Sum over its GPUs."""
    devices: tuple[DeviceUse, ...] = ()
    visible: bool = True
    """False: the pid is not in this /proc (other namespace, hidepid, gone)."""
    stray: Stray | None = None
    container: str | None = None
    slurm_job: str | None = None
    pod: str | None = None
    conda_env: str | None = None
    tmux: str | None = None
    """``session:window.pane`` or the pane id."""
    cwd: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    gaps: dict[str, str] = {}


class Relative(Struct, frozen=True, kw_only=True):
    """A process without VRAM that the tree needs: a launcher, a shell, a tmux server."""

    pid: int
    ppid: int | None
    name: str
    command: tuple[str, ...] = ()
    user: str | None = None


class ProcessDetails(Struct, frozen=True, kw_only=True):
    """What is read about one process only when somebody looks at it."""

    pid: int
    start_ticks: int | None
    ancestors: tuple[Relative, ...] = ()
    """Nearest first."""
    children: tuple[Relative, ...] = ()
    environment: tuple[tuple[str, str], ...] | None = None
    """Sorted; values of names that look secret are masked already."""
    executable: str | None = None
    session_id: int | None = None
    group_id: int | None = None
    threads: int | None = None
    wchan: str | None = None
    """The kernel function that it sleeps in (/proc/PID/wchan)."""
    device_files: tuple[str, ...] = ()
    """Its open /dev/nvidia* files."""
    cgroup: str | None = None
    nice: int | None = None
    cpus: int | None = None
    """How many CPUs it may run on (sched_setaffinity, cpuset)."""
    open_files: int | None = None
    """Descriptors, against the limit "Max open files"."""
    disk_read_bytes: int | None = None
    """In its whole life, from the device and not from the page cache."""
    disk_write_bytes: int | None = None
    limits: tuple[tuple[str, str], ...] = ()
    """Name and soft limit, of the few that training runs into."""
    gaps: dict[str, str] = {}
