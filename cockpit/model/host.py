"""The machine round the GPUs."""

from __future__ import annotations

from msgspec import Struct


class Host(Struct, frozen=True, kw_only=True):
    """CPU, memory and disk of the host (or of the container, when it has limits of its own)."""

    name: str | None = None
    cpu_count: int | None = None
    cpu_pct: float | None = None
    """Mean over all CPUs, 0 to 100."""
    load_1m: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    """total - available (MemAvailable)."""
    swap_used_bytes: int | None = None
    iowait_pct: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    shm_total_bytes: int | None = None
    shm_used_bytes: int | None = None
    container: str | None = None
    """The kind of container the cockpit itself runs in, such as ``docker``; None: none seen."""
    gaps: dict[str, str] = {}
