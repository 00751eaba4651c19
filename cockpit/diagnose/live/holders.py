"""Who is on a GPU: strays that hold its memory, and two jobs that share it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.view import View, is_rank, number_of
from cockpit.model.process import Process
from cockpit.model.text import clean_command, size

BUSY_SM_PCT = 10.0
_LISTED = 6


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    yield from _strays(view)
    for gpu in view.gpus:
        busy = [
            process
            for process, use in view.on_gpu.get(gpu, ())
            if (use.sm_pct or 0.0) >= BUSY_SM_PCT
            and use.mig_instance is None
            and process.kind != "graphics"
        ]
        if len(busy) > 1:
            yield from _shared(gpu, busy)


# -- strays


def _strays(view: View) -> Iterator[Claim]:
    groups: dict[tuple[str, int | None], list[Process]] = {}
    for process in view.snapshot.processes:
        if process.stray is not None:
            # A zombie leader is no reason to reboot: what its session left behind can be ended.
            cause = "unkillable" if process.state == "D" else "orphans"
            gpu = process.devices[0].gpu if process.devices else None
            groups.setdefault((cause, gpu), []).append(process)
    for (cause, gpu), strays in groups.items():
        yield _stray(cause, gpu, sorted(strays, key=lambda one: -(one.vram_bytes or 0)))


def _stray(cause: str, gpu: int | None, strays: Sequence[Process]) -> Claim:
    held = sum(one.vram_bytes or 0 for one in strays)
    amount = size(held) if held else "memory"
    who = f"pid {strays[0].pid}" if len(strays) == 1 else f"{len(strays)} strays"
    where = f"GPU {gpu}: " if gpu is not None else ""
    pids = [one.pid for one in strays]
    return Claim(
        cause=cause,
        title=f"{where}{amount} held by {'stray ' * (len(strays) == 1)}{who}",
        says=tuple(said(_why(one), "/proc") for one in strays[:_LISTED]),
        confidence=0.9 if len({one.stray.reason for one in strays if one.stray}) == 1 else 0.85,
        gpu=gpu,
        pid=pids[0],
        severity="warning",
        facts={"pids": pids, "holders": pids, "held_bytes": held, "kill": " ".join(map(str, pids))},
        hold_s=3.0,
        clear_s=5.0,
        at_once=True,
        grouped=True,
    )


def _why(process: Process) -> str:
    assert process.stray is not None
    command = clean_command(process.command, process.name)[:60]
    return (
        f"pid {process.pid} holds {size(process.vram_bytes)} ({command}): {process.stray.sentence}"
    )


# -- two jobs on one GPU


def _shared(gpu: int, busy: Sequence[Process]) -> Iterator[Claim]:
    if any(process.kind == "mps" for process in busy):
        return  # meant to share
    strangers = _strangers(busy)
    if strangers is None:
        return
    both = [process for process in busy if is_rank(process)]
    if len(both) == len(busy) and _same_family(busy[0], busy[1]):
        yield _duplicate(gpu, busy)
        return
    mine = strangers[0].uid == strangers[1].uid and strangers[0].ppid == strangers[1].ppid
    yield Claim(
        cause="shared_gpu",
        title=f"GPU {gpu}: shared by pids {', '.join(str(one.pid) for one in busy[:3])}",
        says=tuple(said(_part(gpu, one)) for one in busy[:4]),
        confidence=0.6 if mine else 0.8,
        gpu=gpu,
        pid=strangers[0].pid,
        severity="info" if mine else "warning",  # of one parent: perhaps meant so
        facts={"pids": [one.pid for one in busy], "other_pid": strangers[1].pid},
        hold_s=10.0,
        clear_s=20.0,
        grouped=True,
    )


def _strangers(busy: Sequence[Process]) -> tuple[Process, Process] | None:
    """Two that are not parent and child, nor children of one program."""
    for number, one in enumerate(busy):
        for other in busy[number + 1 :]:
            related = one.pid == other.ppid or other.pid == one.ppid
            ranks = is_rank(one) and is_rank(other)
            if not related and (ranks or not _same_family(one, other)):
                return one, other
    return None


def _same_family(one: Process, other: Process) -> bool:
    """Same parent and same program: workers of one job, not two starts from one shell."""
    if one.ppid != other.ppid or one.uid != other.uid or one.command[:1] != other.command[:1]:
        return False
    return one.rank is not None or is_rank(one) or one.command == other.command


def _duplicate(gpu: int, ranks: Sequence[Process]) -> Claim:
    numbers = sorted({number_of(one) for one in ranks})
    words = ", ".join(map(str, numbers))
    return Claim(
        cause="duplicate_gpu",
        title=f"GPU {gpu}: ranks {words} share it",
        says=tuple(said(_part(gpu, one)) for one in ranks[:4]),
        confidence=0.8,
        gpu=gpu,
        pid=ranks[-1].pid,
        severity="warning",
        facts={"ranks": numbers, "pids": [one.pid for one in ranks]},
        hold_s=10.0,
        grouped=True,
    )


def _part(gpu: int, process: Process) -> str:
    use = next(one for one in process.devices if one.gpu == gpu)
    who = f"pid {process.pid} of {process.user or 'an unknown user'}"
    command = clean_command(process.command, process.name)[:50]
    return f"{who} uses {use.sm_pct or 0:.0f} % of the SMs, {size(use.vram_bytes)} ({command})."
