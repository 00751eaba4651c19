"""Whom a flow is about: its process, its ranks, its log, its kept run, and how they are named."""

from __future__ import annotations

import os
import stat
from datetime import datetime

from msgspec.structs import replace

from cockpit.attach import run_record
from cockpit.attach.run_record import RunRecord
from cockpit.diagnose.devices import resolve
from cockpit.errors import TargetGoneError, UsageError
from cockpit.flows.flow import Known, is_about, pids_of
from cockpit.flows.slow import DATA_CAUSES
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.process import Process
from cockpit.model.run_command import RunCommand, RunMeasure
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean

_SEVERITIES = ("info", "warning", "error")


def process_of(snapshot: Snapshot, request: FlowRequest) -> Process | None:
    """While it is in the snapshot; by start time, too, where that is known."""
    for one in snapshot.processes:
        if one.pid == request.pid and request.start_ticks in (None, one.start_ticks):
            return one
    return None


def live_finding(request: FlowRequest, snapshot: Snapshot) -> Finding | None:
    """The worst one of this process, else of this flow; one of another process is not ours."""
    rows = [
        one
        for one in snapshot.findings
        if (request.pid is None or one.pid is None or is_about(one, request.pid))
        and (request.flow is None or one.flow == request.flow)
        and not _is_over(one, snapshot)
    ]
    own = [one for one in rows if is_about(one, request.pid)] or rows
    return max(own, key=lambda one: (_SEVERITIES.index(one.severity), one.confidence), default=None)


def _is_over(finding: Finding, snapshot: Snapshot) -> bool:
    """All processes that it was about are gone; the engine takes it back a moment later."""
    there = {one.pid for one in snapshot.processes} | {one.pid for one in snapshot.runs}
    pids = pids_of(finding)
    return bool(pids) and pids.isdisjoint(there)


def with_place(logged: Finding, request: FlowRequest, snapshot: Snapshot) -> Finding:
    """A log may say what is slow and not where; what is seen of the process knows the line."""
    live = live_finding(request, snapshot)
    if live is None or live.pid is None or live.pid != request.pid or "place" in logged.facts:
        return logged
    if live.cause != logged.cause and not {live.cause, logged.cause} <= DATA_CAUSES:
        return logged
    seen = {name: live.facts[name] for name in ("place", "frames") if name in live.facts}
    return replace(logged, facts={**logged.facts, **seen})


def merged(old: RunMeasure | None, new: RunMeasure | None) -> RunMeasure | None:
    """The newer one; step times that were measured while the run lived are kept."""
    if old is None or new is None:
        return new or old
    most = max(old.step_times_s, new.step_times_s, key=len)
    step = max((one for one in (old.step, new.step) if one is not None), default=None)
    return replace(new, step_times_s=most, step=step)


def with_oom(
    before: RunMeasure | None, finding: Finding | None, snapshot: Snapshot
) -> RunMeasure | None:
    """A run that printed an OOM had one, though no agent inside it has counted."""
    if before is None or before.ooms or finding is None or finding in snapshot.findings:
        return before
    failed = finding.flow == "oom" and finding.cause != "recovered"
    return replace(before, ooms=1) if failed else before


def ranks(request: FlowRequest, snapshot: Snapshot) -> list[Process]:
    """The processes of the same job; without a pid all ranks.

    Ranks of one launcher are one job. Where each has a parent of its own (srun, containers) it is
    the same user, world size and directory.
    """
    ranked = [one for one in snapshot.processes if one.rank is not None and one.visible]
    mine = process_of(snapshot, request)
    if mine is None:
        return ranked if request.pid is None else []
    world = [one for one in ranked if one.world_size == mine.world_size and one.uid == mine.uid]
    launched = [one for one in world if one.ppid == mine.ppid]
    together = [one for one in world if one.cwd == mine.cwd]
    return launched if len(launched) > 1 else together or [mine]


def is_alive(request: FlowRequest) -> bool:
    """By pid, and by start time where that is known."""
    ticks = run_record.start_ticks(request.pid) if request.pid is not None else None
    return ticks is not None and request.start_ticks in (None, ticks)


def check_log(path: str) -> None:
    """Raises TargetGoneError for no file, and UsageError for no plain one: a pipe would be empty
    at the second look, and block the first."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TargetGoneError(f"{clean(path)}: {error.strerror}.") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UsageError(f"{clean(path)} is no plain file: save what the run printed in one.")
    finally:
        os.close(handle)


def subject_words(
    pid: int | None, log: str | None, record: RunRecord | None, known: Known | None
) -> str:
    """``pid 4711 · rank 3 · train.py:156``; ``pid`` of a process that is there."""
    parts = [f"pid {pid}"] if pid is not None else []
    if known is not None and known.process is not None and known.process.rank is not None:
        parts.append(f"rank {known.process.rank}")
    if record is not None:
        parts.append(clean(record.meta.name))
    if log is not None:
        parts.append(clean(os.path.basename(log)))
    place = known.fact("place") if known is not None else None
    if isinstance(place, str):
        parts.append(clean(os.path.basename(place)))
    return " · ".join(parts)


def clock(text: str, *, with_date: bool = False) -> str:
    """Hour and minute, in the zone of this host."""
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return "?"
    return at.astimezone().strftime("%Y-%m-%d %H:%M" if with_date else "%H:%M")


def on_card(finding: Finding, command: RunCommand | None, snapshot: Snapshot) -> Finding:
    """``GPU 0`` of a message is the run's first visible device, not the machine's first."""
    if finding.gpu is None or command is None or not snapshot.gpus:
        return finding
    seen = resolve(command.environment.get("CUDA_VISIBLE_DEVICES"), snapshot.gpus).gpus
    return replace(finding, gpu=seen[finding.gpu] if finding.gpu < len(seen) else None)
