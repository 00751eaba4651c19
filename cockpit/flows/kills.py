"""Offers that end processes: strays, whole jobs, and SIGKILL for what ignored SIGTERM."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cockpit.flows.flow import Known, Remedy
from cockpit.model.process import Process
from cockpit.model.text import clean, clean_command, plural, sentence, shortened, size


def strays(known: Known) -> Iterator[Remedy]:
    """All strays of the user at once where there are several, then each; root's list has those
    of others as well, but one by one."""
    asked = _asked(known)
    found = [
        one
        for one in known.holders()
        if one.stray is not None and known.may_end(one) and one.pid not in asked
    ]
    own = [one for one in found if one.uid == known.uid]
    if len(own) > 1:
        total = sum(one.vram_bytes or 0 for one in own)
        yield kill(
            own,
            title=f"end all {len(own)} strays",
            because=f"Together they hold {size(total)}.",
        )
    for one in found:
        assert one.stray is not None
        yield kill([one], title=f"end the stray {named(one)}", because=sentence(one.stray.sentence))


def survivors(known: Known) -> Iterator[Remedy]:
    """SIGKILL for those whose SIGTERM was sent in this flow and that are still there."""
    for one in known.holders():
        if one.pid in _asked(known) and known.may_end(one):
            yield kill(
                [one],
                title=f"end {named(one)} by SIGKILL",
                signal="KILL",
                because="It is still there after SIGTERM; SIGKILL cannot be ignored.",
            )


def idle_holders(known: Known) -> Iterator[Remedy]:
    """Own processes that hold memory and compute nothing: notebooks, forgotten sessions."""
    for one in known.holders():
        if one.stray is None and known.may_end(one) and is_idle(one):
            yield kill(
                [one],
                title=f"end {named(one)}, which computes nothing",
                because="It is idle now; what it holds in memory and has not saved is lost.",
            )


def job(known: Known, because: str) -> Iterator[Remedy]:
    """The whole job of the process that the flow is about: a step before it is started again."""
    one = known.process
    if one is not None and known.may_end(one):
        title = f"end the whole job of {named(one)}"
        yield kill([one], title=title, job=True, is_step=True, because=because)


def end_first(known: Known) -> Iterator[Remedy]:
    """A changed command, source or environment counts from the next start on."""
    if known.command is not None and known.cause:
        yield from job(
            known, "What is changed counts from the next start on; this one has to end first."
        )


def kill(
    processes: list[Process],
    *,
    title: str,
    because: str,
    signal: str = "TERM",
    job: bool = False,
    is_step: bool = False,
) -> Remedy:
    """By pid and start time."""
    targets = tuple((one.pid, one.start_ticks) for one in processes)
    values = {"targets": targets, "title": title, "signal": signal, "job": job}
    pids = tuple(one.pid for one in processes)
    return Remedy("kill", values, because=because, is_step=is_step, pids=pids)


def named(process: Process) -> str:
    """``4711 (38.4 GiB, python train.py)``."""
    held = f"{size(process.vram_bytes)}, " if process.vram_bytes else ""
    return f"{process.pid} ({held}{words(process)})"


def listed(processes: list[Process], most: int = 3) -> str:
    """``4711 (ml1, python train.py) 38.4 GiB; …``; empty for none."""
    rows = [
        f"{one.pid} ({clean(one.user or '?')}, {words(one)}) {size(one.vram_bytes)}"
        for one in processes[:most]
    ]
    more = len(processes) - most
    return "; ".join(rows) + (f", and {plural(more, 'more process')}" if more > 0 else "")


def words(process: Process) -> str:
    """Its command in short, the program without its directory."""
    program, *rest = process.command or ("",)
    command = (os.path.basename(program), *rest) if program else ()
    return shortened(clean_command(command, process.name), 40)


def _asked(known: Known) -> frozenset[int]:
    """Pids that were signalled in this flow, in vain."""
    return frozenset(pid for done in known.done if not done.verified for pid in done.pids)


def is_same_job(known: Known, other: Process) -> bool:
    """The process that the flow is about, its other ranks, its launcher and its workers."""
    mine = known.process
    if other.pid == known.request.pid:
        return True
    if mine is None or other.uid != mine.uid:
        return False
    if mine.pid == other.ppid or other.pid == mine.ppid:
        return True
    siblings = other.ppid == mine.ppid and mine.ppid not in (None, 0, 1)
    if mine.world_size and mine.world_size == other.world_size:
        return siblings or (other.cwd is not None and other.cwd == mine.cwd)
    return siblings and bool(mine.command) and other.command[:2] == mine.command[:2]


def is_idle(process: Process) -> bool:
    """Neither the SMs nor a core work for it. Not known is not idle."""
    if process.cpu_pct is None or process.cpu_pct >= 3.0:
        return False
    return all((use.sm_pct or 0.0) < 1.0 for use in process.devices)
