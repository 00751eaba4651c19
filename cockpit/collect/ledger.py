"""Who holds the memory of each GPU, to the byte, and words for what no process accounts for.

Pure: readings in, ledgers out. total = free + driver's reserve + each process + the rest; the rest
is computed last, so the sum always holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cockpit.collect.holders import Holders, minors_held
from cockpit.collect.readings import MemoryReading, ProcessUse, by_gpu
from cockpit.model.gpu import Gpu
from cockpit.model.ledger import Explanation, Ledger, LedgerProcess
from cockpit.model.process import Process
from cockpit.model.text import MIB, clean, gib, plural, size

BASELINE_BYTES = 512 * MIB
"""What nobody owns and nobody needs to look for: context parts that NVML books on no process."""
BASELINE_PER_PROCESS_BYTES = 64 * MIB
OLD_DRIVER_RESERVE_BYTES = 1024 * MIB
"""Without memory v2, "used" holds the driver's reserve: 615 MiB on an H200 that nobody uses; with
two processes there, 629 MiB belong to neither."""

_DAEMONS = ("nvidia-persiste", "nv-hostengine", "dcgm", "nv-fabricmanage", "nvidia-smi")
"""They keep the device files open and hold next to nothing."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One GPU, with all that may explain its rest."""

    memory: MemoryReading
    gpu: Gpu
    uses: tuple[ProcessUse, ...]
    rows: Mapping[int, Process]
    rest: int
    holders: Holders | None
    minor: int
    contained: bool
    listed: frozenset[int]
    """Pids that NVML lists on any GPU."""


def build_ledger(
    memory: Sequence[MemoryReading],
    gpus: Sequence[Gpu],
    uses: Sequence[ProcessUse],
    processes: Sequence[Process],
    holders: Holders | Mapping[int, tuple[str, ...]] | None = None,
    *,
    contained: bool = False,
    minors: Mapping[str, int] | None = None,
) -> tuple[Ledger, ...]:
    """One ledger for each GPU whose memory could be read.

    ``holders`` None: device files were not looked at (yet). ``contained``: the cockpit has a pid
    namespace of its own. ``minors``: PCI bus id → minor number (holders.device_minors).
    """
    if holders is not None and not isinstance(holders, Holders):
        holders = Holders(files=holders, looked_at=len(holders))
    by_index = {gpu.index: gpu for gpu in gpus}
    rows = {row.pid: row for row in processes}
    listed, grouped = frozenset(use.pid for use in uses), by_gpu(uses)
    ledgers: list[Ledger] = []
    for reading in memory:
        gpu = by_index.get(reading.gpu, Gpu(index=reading.gpu))
        sizes = _total_and_free(reading, gpu)
        if sizes is None:
            continue
        own = grouped.get(reading.gpu, ())
        minor = (minors or {}).get((gpu.pci_bus_id or "").lower(), gpu.index)
        held = sum(use.vram_bytes or 0 for use in own)
        rest = sizes[0] - sizes[1] - (reading.reserved_bytes or 0) - held
        case = _Case(reading, gpu, own, rows, rest, holders, minor, contained, listed)
        ledgers.append(_ledger(case, *sizes))
    return tuple(ledgers)


def _ledger(case: _Case, total_bytes: int, free_bytes: int) -> Ledger:
    return Ledger(
        gpu=case.memory.gpu,
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        driver_reserved_bytes=case.memory.reserved_bytes or 0,
        processes=_shares(case.uses),
        unaccounted_bytes=case.rest,
        explanations=explain(case),
        gaps=_gaps(case.memory, case.uses),
    )


def _total_and_free(reading: MemoryReading, gpu: Gpu) -> tuple[int, int] | None:
    if reading.total_bytes is not None and reading.free_bytes is not None:
        return reading.total_bytes, reading.free_bytes
    # One memory for CPU and GPU: the GPU's fields are the host's then.
    total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
    if gpu.unified_memory and total is not None and used is not None:
        return total, total - used
    return None


def _shares(uses: Sequence[ProcessUse]) -> tuple[LedgerProcess, ...]:
    """Per process, its MIG instances together; an unknown share counts 0 and has a gap."""
    sums: dict[int, int] = {}
    for use in uses:
        sums[use.pid] = sums.get(use.pid, 0) + (use.vram_bytes or 0)
    largest_first = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return tuple(LedgerProcess(pid=pid, bytes=held) for pid, held in largest_first)


def _gaps(reading: MemoryReading, uses: Sequence[ProcessUse]) -> dict[str, str]:
    gaps: dict[str, str] = {}
    if reading.reserved_bytes is None:
        gaps["driver_reserved_bytes"] = "driver_too_old"
    for use in uses:
        if use.vram_bytes is None:
            gaps.setdefault("processes", use.gap or "not_supported")
    return gaps


def baseline(reading: MemoryReading, process_count: int) -> int:
    """Up to here a rest is normal."""
    reserve = OLD_DRIVER_RESERVE_BYTES if reading.reserved_bytes is None else 0
    return BASELINE_BYTES + reserve + BASELINE_PER_PROCESS_BYTES * process_count


def explain(case: _Case) -> tuple[Explanation, ...]:
    """Why memory has no name on it, the most likely first; empty when the rest is normal."""
    if case.gpu.unified_memory:
        return (_unified(case),)
    if case.rest < 0:
        return (_raced(case),)
    if case.rest <= baseline(case.memory, len({use.pid for use in case.uses})):
        return ()
    known = (
        _unsized(case),
        _holding_files(case),
        _other_namespace(case),
        _mps(case),
        _mig(case),
        _raced(case) if case.memory.moved else None,
    )
    return tuple(found for found in known if found) or (_none_found(case),)


def _unified(case: _Case) -> Explanation:
    """Never left out: the two sums differ always, and without a word they look like an error."""
    held = sum(use.vram_bytes or 0 for use in case.uses)
    if case.rest >= 0:
        why = "the rest is what ordinary programs and the system use"
    else:
        why = "the driver counts pages that the host does not count as used"
    return Explanation(
        kind="unified_memory",
        pids=(),
        sentence=f"GPU {case.gpu.index} has no memory of its own, CPU and GPU share the host's: "
        f"its processes hold {gib(held)} GiB as GPU memory, the whole machine uses "
        f"{gib(held + case.rest)} GiB; {why}",
    )


def _raced(case: _Case) -> Explanation:
    return Explanation(
        kind="readings_raced",
        pids=(),
        sentence="memory and process list were read one after the other while memory changed: "
        f"they differ by {size(abs(case.rest))} for this moment",
    )


def _unsized(case: _Case) -> Explanation | None:
    """Processes that are listed without their memory."""
    pids = _distinct(use.pid for use in case.uses if use.vram_bytes is None)
    if not pids:
        return None
    why = next(use.gap for use in case.uses if use.vram_bytes is None) or "not_supported"
    return Explanation(
        kind="not_listed",
        pids=pids,
        sentence=f"the driver lists {_named(case, pids)} without telling how much "
        f"{'it holds' if len(pids) == 1 else 'they hold'} ({why.replace('_', ' ')})",
    )


def _holding_files(case: _Case) -> Explanation | None:
    """Processes with the GPU's device file open that NVML does not list."""
    if case.holders is None:
        return None
    found = [pid for pid, files in case.holders.files.items() if case.minor in minors_held(files)]
    pids = _distinct(pid for pid in found if pid not in case.listed and not _is_daemon(case, pid))
    if not pids:
        return None
    has = "has" if len(pids) == 1 else "have"
    return Explanation(
        kind="device_holders",
        pids=pids,
        sentence=f"{_named(case, pids)} {has} /dev/nvidia{case.minor} open without being in the "
        f"driver's list: {gib(case.rest)} GiB may be {'its' if len(pids) == 1 else 'theirs'}",
    )


def _is_daemon(case: _Case, pid: int) -> bool:
    return case.holders is not None and case.holders.names.get(pid, "").startswith(_DAEMONS)


def _other_namespace(case: _Case) -> Explanation | None:
    foreign = _distinct(
        pid
        for pid in case.listed
        if (row := case.rows.get(pid)) and row.gaps.get("pid") == "other_namespace"
    )
    if not case.contained and not foreign:
        return None
    elsewhere = (
        f" ({plural(len(foreign), 'listed process')} of this machine "
        f"{'belongs' if len(foreign) == 1 else 'belong'} to another container or namespace)"
        if foreign
        else ""
    )
    return Explanation(
        kind="other_namespace",
        pids=foreign,
        sentence=f"{gib(case.rest)} GiB are held by nobody visible here: inside a container the "
        f"processes of the host and of other containers are hidden{elsewhere}; run cockpit on the "
        "host, or start the container with --pid=host",
    )


def _mps(case: _Case) -> Explanation | None:
    pids = _distinct(
        use.pid for use in case.uses if use.kind == "mps" or _is_mps(case.rows.get(use.pid))
    )
    if not pids:
        return None
    return Explanation(
        kind="mps",
        pids=pids,
        sentence=f"{_named(case, pids)} {'uses' if len(pids) == 1 else 'use'} MPS: its server "
        "holds the clients' contexts, and memory of clients that died stays until it restarts",
    )


def _is_mps(row: Process | None) -> bool:
    return row is not None and (row.name or "").startswith("nvidia-cuda-mps")


def _mig(case: _Case) -> Explanation | None:
    if not case.gpu.mig_enabled:
        return None
    return Explanation(
        kind="mig",
        pids=(),
        sentence="MIG is on: each instance keeps memory for itself, and processes in instances of "
        "other users are not listed; nvidia-smi -L and nvidia-smi mig -lgi show them",
    )


def _none_found(case: _Case) -> Explanation:
    index = case.gpu.index
    if case.holders is None:
        tried = "open device files have not been looked at yet"
    else:
        tried = f"no other process has /dev/nvidia{case.minor} open ({case.holders.looked_at} seen"
        denied = case.holders.denied
        tried += f", {denied} of other users not readable)" if denied else ")"
    return Explanation(
        kind="none_found",
        pids=(),
        sentence=f"{gib(case.rest)} GiB are in use on GPU {index} by no process that the driver "
        f"lists; {tried}. Next: sudo fuser -v /dev/nvidia* on the host; when that shows nobody, "
        f"the memory leaked in the driver, and nvidia-smi --gpu-reset -i {index} (root, no user "
        "on the GPU) or a reboot frees it",
    )


def _distinct(pids: object) -> tuple[int, ...]:
    return tuple(sorted(set(pids)))  # type: ignore[call-overload]


def _named(case: _Case, pids: Sequence[int], limit: int = 3) -> str:
    """``python (pid 12), python (pid 13) and 4 more``."""
    shown = ", ".join(f"{_name(case, pid)} (pid {pid})" for pid in pids[:limit])
    return shown + (f" and {len(pids) - limit} more" if len(pids) > limit else "")


def _name(case: _Case, pid: int) -> str:
    row = case.rows.get(pid)
    name = (row.name if row else None) or (case.holders.names.get(pid) if case.holders else None)
    return clean(name or "process")
