"""What `!` is about: from what is under the cursor, or the worst thing, to a FlowRequest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from cockpit.model.finding import Finding
from cockpit.model.flow import FLOW_IDS, FlowId, FlowRequest
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot
from cockpit.tui.render.finding_words import worst_first


class FlowSubject(NamedTuple):
    """What the page in front is about."""

    pid: int | None = None
    start_ticks: int | None = None
    gpu: int | None = None
    finding: Finding | None = None
    chosen: bool = True
    """False: the cursor only happens to be there, nobody has put it there."""


def request_for(snapshot: Snapshot, subject: FlowSubject, cwd: str) -> FlowRequest:
    """The chosen row or card first, then the worst thing of all; ``flow`` None: it is asked."""
    found = _chosen(snapshot, subject) or _worst(snapshot, snapshot.findings, snapshot.processes)
    if found is None:
        found = FlowRequest(pid=subject.pid, start_ticks=subject.start_ticks)
    return replace(found, cwd=cwd)


def something_to_fix(snapshot: Snapshot) -> bool:
    """The driver fails, there is a finding, or a stray."""
    if snapshot.driver.error is not None or snapshot.findings:
        return True
    return any(one.stray is not None for one in snapshot.processes)


def _chosen(snapshot: Snapshot, subject: FlowSubject) -> FlowRequest | None:
    if subject.finding is not None:
        return _about(snapshot, subject.finding)
    if subject.gpu is not None:
        on_it = [one for one in snapshot.processes if _holds(one, subject.gpu)]
        pids = {one.pid for one in on_it}
        about = [one for one in snapshot.findings if one.gpu == subject.gpu or one.pid in pids]
        return _worst(snapshot, about, on_it)
    if subject.pid is None or not subject.chosen:
        return None
    rows = [one for one in snapshot.processes if one.pid == subject.pid]
    ticks = subject.start_ticks
    if ticks is None and rows:
        ticks = rows[0].start_ticks
    if rows and rows[0].stray is not None:
        return _held_by(rows[0])
    about = [one for one in snapshot.findings if one.pid == subject.pid]
    flow = _flow_of(worst_first(about)[0]) if about else None
    return FlowRequest(flow=flow, pid=subject.pid, start_ticks=ticks)


def _worst(
    snapshot: Snapshot, findings: Iterable[Finding], processes: Iterable[Process]
) -> FlowRequest | None:
    """A stray stands where the alerts have it: after errors and warnings, before what is told."""
    by_rank = worst_first(findings)
    pressing = [one for one in by_rank if one.severity != "info"]
    if pressing:
        return _about(snapshot, pressing[0])
    strays = [one for one in processes if one.stray is not None]
    if strays:
        return _held_by(max(strays, key=lambda one: one.vram_bytes or 0))
    return _about(snapshot, by_rank[0]) if by_rank else None


def _about(snapshot: Snapshot, finding: Finding) -> FlowRequest:
    ticks = next((p.start_ticks for p in snapshot.processes if p.pid == finding.pid), None)
    return FlowRequest(flow=_flow_of(finding), pid=finding.pid, start_ticks=ticks)


def _held_by(process: Process) -> FlowRequest:
    return FlowRequest(flow="vram-held", pid=process.pid, start_ticks=process.start_ticks)


def _flow_of(finding: Finding) -> FlowId | None:
    return next((one for one in FLOW_IDS if one == finding.flow), None)


def _holds(process: Process, gpu: int) -> bool:
    return any(use.gpu == gpu for use in process.devices)
