"""What a kill says: what would be lost, how it goes, what came of it. Pure text, no reading.

Of the real kill (``act``) and of the demo's, which may not import ``act``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cockpit.model.action import SIGNALS, PlannedTarget
from cockpit.model.text import GIB, MIB, clean, gib, plural, size


class JobPart(Protocol):
    """What a process has to do with a job: a row of the table, or a simulated process."""

    @property
    def rank(self) -> int | None:
        """Of all ranks."""

    @property
    def world_size(self) -> int | None:
        """How many ranks there are."""

    @property
    def slurm_job(self) -> str | None:
        """The job's number."""


def losses(
    signal: str, targets: Sequence[PlannedTarget], rows: Mapping[int, JobPart]
) -> tuple[str, ...]:
    """What a person should weigh before confirming."""
    sent = [target for target in targets if target.refusal is None]
    if not sent or signal == "CONT":
        return ()
    if signal == "STOP":
        return ("Stopped processes keep their GPU memory; other ranks wait and may time out.",)
    if signal.startswith("USR"):
        return (f"A process without a handler for SIG{signal} ends.",)
    notebooks = sum("ipykernel" in target.command for target in sent)
    found = ["What was computed since the last checkpoint."] if notebooks < len(sent) else []
    if notebooks:
        found.append("The variables of the notebook; the file of the notebook stays.")
    if signal == "KILL":
        found.append("No clean-up: half-written files and /dev/shm segments may stay behind.")
    return (*found, *_ranks_left(sent, rows), *_slurm(sent, rows))


def _ranks_left(sent: Sequence[PlannedTarget], rows: Mapping[int, JobPart]) -> list[str]:
    ranks = [rows[t.pid] for t in sent if t.pid in rows and rows[t.pid].rank is not None]
    world = max((row.world_size or 0 for row in ranks), default=0)
    if not ranks or len(ranks) >= world:
        return []
    names = ", ".join(str(row.rank) for row in ranks)
    return [
        f"Rank {names} of {world}: the other ranks will hang or fail, and a launcher may start"
        " it again; take the whole job to end them together."
    ]


def _slurm(sent: Sequence[PlannedTarget], rows: Mapping[int, JobPart]) -> list[str]:
    jobs = {rows[t.pid].slurm_job for t in sent if t.pid in rows} - {None}
    return [
        f"Part of Slurm job {job}: scancel {job} ends it as a whole."
        for job in sorted(clean(str(job)) for job in jobs)
    ]


LAUNCHER_FIRST = "launcher of the job: goes first"
READONLY = "--readonly: nothing is signalled; without it: cockpit kill PID"


def ignores(signal: str) -> str:
    """A note on a target."""
    return f"ignores SIG{signal}"


def missing(pid: int) -> str:
    """Nobody has that pid."""
    return f"there is no process {pid} (any more)"


def changed(pid: int) -> str:
    """The pid was used again."""
    return f"pid {pid} is another process now: nothing was signalled"


def not_offered(signal: str) -> str:
    """Not in the menu."""
    return f"signal {signal!r} is not offered: use one of {', '.join(SIGNALS)}"


def heir(dead: int, holds: bool) -> str:
    """A note on a living process of a dead one's session or group."""
    if holds:
        return f"holds the device for pid {dead}"
    return f"of the session of pid {dead}: whether it holds the device cannot be seen here"


def not_named(pid: int, dead: int) -> str:
    """The refusal of an heir that is not known to hold the device, where nobody is asked."""
    return (
        f"pid {pid} is of the session of pid {dead}, but whether it holds the device for it"
        f" cannot be seen here: name {pid} as well to signal it"
    )


def foreign(pid: int) -> str:
    """The refusal of another user's process that a job or a dead leader brings along."""
    return f"pid {pid} belongs to another user and was not named: name {pid} as well to signal it"


def left_behind(state: str, heirs: Mapping[int, bool]) -> str:
    """A note on the dead one. ``heirs``: pid → its open device files were seen."""
    sure, unsure = _pids(p for p in heirs if heirs[p]), _pids(p for p in heirs if not heirs[p])
    parts = [f"its memory is held by {sure}"] if sure else []
    parts += [f"its memory may be held by {unsure}, which cannot be seen here"] if unsure else []
    return f"{state}: {'; '.join(parts)}"


def _pids(pids: Iterable[int]) -> str:
    found = sorted(pids)
    return f"pid{'s' * (len(found) > 1)} {', '.join(map(str, found))}" if found else ""


def elsewhere(pid: int) -> str:
    """The driver lists a pid that means nothing here."""
    return (
        f"pid {pid} is not in this /proc: it runs in another PID namespace (the host or another"
        " container) or has ended; signal it from there"
    )


def sent(signal: str, count: int) -> str:
    """Progress: after sending."""
    return f"sent SIG{signal} to {plural(count, 'process')}"


def waiting(elapsed_s: float, grace_s: float, alive: int) -> str:
    """Progress: once a second."""
    if not alive:
        return "all have ended; waiting for their memory to come back"
    return f"waiting {elapsed_s:.0f} of {grace_s:.0f} s: {alive} still there"


def amounts(freed: int, before: int) -> str:
    """``14.2 of 14.3 GiB``, in the unit that fits the larger."""
    if before >= GIB * 0.95:
        return f"{gib(freed)} of {gib(before)} GiB"
    return f"{freed / MIB:.0f} of {before / MIB:.0f} MiB"


def freed(pid: int, amount: tuple[int, int], elapsed_s: float, zombie: bool) -> str:
    """The good end; ``amount`` is freed and before, in bytes."""
    what = f"freed {amounts(*amount)} in {elapsed_s:.1f} s"
    if zombie:
        return f"pid {pid} (dead already): {what}, as what it left behind has ended"
    return f"pid {pid}: {what}"


def ended(pid: int, elapsed_s: float, sent: bool = True) -> str:
    """Gone, without device memory to measure. Not ``sent``: its launcher took it along."""
    before = "" if sent else ", before its own signal"
    return f"pid {pid}: ended in {elapsed_s:.1f} s{before}; the driver listed no memory for it"


def freed_itself(pid: int, vram_bytes: int) -> str:
    """It ended between plan and signal."""
    return f"pid {pid} had ended before the signal; its {size(vram_bytes)} are free"


def zombie(pid: int, ppid: int) -> str:
    """Nothing that a signal could do."""
    return (
        f"pid {pid} has ended already: a zombie, which no signal reaches, until its parent"
        f" pid {ppid} collects it"
    )


def unchecked(pid: int, before: int) -> str:
    """NVML hangs."""
    return (
        f"pid {pid} is gone; the driver did not answer, so its memory ({size(before)}) could not"
        " be checked"
    )


def not_freed(pid: int, missing: int, zombie: bool, holder: str | None) -> str:
    """Gone, but its memory is not back."""
    start = f"pid {pid} is a zombie" if zombie else f"pid {pid} is gone"
    why = holder or "no process of its family is left: look for others with the device open"
    return f"{start}, but {size(missing)} have not come back: {why}"


def keeps(pid: int, relation: str, certain: bool) -> str:
    """Who holds on. ``certain``: its open device files were seen."""
    if certain:
        return f"pid {pid} ({relation}) keeps the device open"
    return f"pid {pid} ({relation}) is alive and seems to keep the device open"


def survived(pid: int, signal: str, after_s: float, why: str) -> str:
    """Still there. ``why`` is one of the four below."""
    return f"pid {pid} is still there {after_s:.1f} s after SIG{signal}: {why}"


def in_kernel(signal: str, function: str) -> str:
    """State D."""
    where = f" in {function}" if function else ""
    if signal == "KILL":
        return f"it waits inside the kernel{where} (state D) and ends when the kernel lets go"
    return (
        f"it waits inside the kernel{where} (state D) and sees no signal before that returns;"
        " SIGKILL helps only if that wait can be broken off"
    )


def stopped(signal: str) -> str:
    """State T."""
    return f"it is stopped and sees SIG{signal} when continued; SIGCONT or SIGKILL would end it"


def ignoring(signal: str, ignored: bool) -> str:
    """Ignored by mask, or handled without ending."""
    how = f"it ignores SIG{signal}" if ignored else f"it has not acted on SIG{signal} yet"
    return f"{how}; SIGKILL would end it"


def dying() -> str:
    """Killed, but the kernel has not finished."""
    return "the kernel is still taking it down (large pinned memory takes a while)"


def delivered(pid: int, signal: str) -> str:
    """A signal that is not meant to end it."""
    more = {"STOP": "; it keeps its memory while stopped", "CONT": "; it runs on"}
    return f"pid {pid}: SIG{signal} delivered{more.get(signal, '')}"


def denied(pid: int, signal: str) -> str:
    """EPERM in spite of the policy: a security module, or another user namespace."""
    return (
        f"pid {pid}: the kernel does not permit SIG{signal} to it (EPERM): another user or user"
        " namespace, or a security module; ask its owner or root"
    )
