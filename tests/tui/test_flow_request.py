"""What `!` is about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.gpu import Driver, DriverError
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process, Stray
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.tui.flow_request import FlowSubject, request_for, something_to_fix

STRAY = Stray(reason="orphan", sentence="Its parent is gone.")


def process(pid: int, gpu: int, stray: bool = False, gib: int = 1) -> Process:
    return Process(
        pid=pid,
        start_ticks=pid * 10,
        vram_bytes=gib << 30,
        devices=(DeviceUse(gpu=gpu, vram_bytes=gib << 30, sm_pct=None),),
        stray=STRAY if stray else None,
    )


def finding(flow: str, severity: str, gpu: int | None = None, pid: int | None = None) -> Finding:
    return Finding(
        flow=flow,
        cause="c",
        severity=severity,
        confidence=1.0,
        title="t",
        explanation="e",
        gpu=gpu,
        pid=pid,
    )


def box(*findings: Finding, strays: tuple[int, ...] = ()) -> Snapshot:
    """Pids 1 to 4 on GPUs 0 to 3; the higher one holds more."""
    return Snapshot(
        taken_at="2026-11-30T12:00:00.000Z",
        host=Host(name="box"),
        driver=Driver(),
        sampler=SamplerStatus(interval_s=1.0),
        processes=tuple(process(pid, pid - 1, pid in strays, pid) for pid in (1, 2, 3, 4)),
        findings=findings,
    )


def asked(snapshot: Snapshot, subject: FlowSubject) -> tuple[str | None, int | None]:
    request = request_for(snapshot, subject, "/here")
    assert request.cwd == "/here"
    if request.pid is not None:
        assert request.start_ticks == request.pid * 10
    return request.flow, request.pid


SLOW_2 = finding("slow", "warning", pid=2)
LOST_3 = finding("kernel-fault", "error", gpu=3)
TOLD_1 = finding("slow", "info", pid=1)


@pytest.mark.parametrize(
    ("snapshot", "subject", "expected"),
    [
        # the chosen row: its stray, its finding, itself
        (box(strays=(2,)), FlowSubject(2, 20), ("vram-held", 2)),
        (box(SLOW_2), FlowSubject(2, 20), ("slow", 2)),
        (box(LOST_3, SLOW_2), FlowSubject(1, 10), (None, 1)),
        (box(replace(SLOW_2, flow="benign")), FlowSubject(2, 20), (None, 2)),
        # a GPU: the worst of it, its stray; with neither, the worst of all
        (box(SLOW_2, LOST_3), FlowSubject(gpu=1), ("slow", 2)),
        (box(SLOW_2, strays=(4,)), FlowSubject(gpu=3), ("vram-held", 4)),
        (box(SLOW_2, LOST_3), FlowSubject(gpu=0), ("kernel-fault", None)),
        # the finding whose page it is
        (box(SLOW_2, LOST_3), FlowSubject(finding=SLOW_2), ("slow", 2)),
        # a row known by its pid alone
        (box(), FlowSubject(pid=3), (None, 3)),
        # nobody chose the row: the worst of all, an error before a warning before a stray
        (box(SLOW_2, LOST_3), FlowSubject(1, 10, chosen=False), ("kernel-fault", None)),
        (box(SLOW_2, strays=(1,)), FlowSubject(1, 10, chosen=False), ("slow", 2)),
        (box(TOLD_1, strays=(2, 3)), FlowSubject(1, 10, chosen=False), ("vram-held", 3)),
        (box(TOLD_1), FlowSubject(2, 20, chosen=False), ("slow", 1)),
        # nothing is wrong: the row after all; without a row it is asked
        (box(), FlowSubject(1, 10, chosen=False), (None, 1)),
        (box(), FlowSubject(), (None, None)),
        (box(), FlowSubject(gpu=0), (None, None)),
    ],
)
def test_the_chosen_thing_comes_first_then_the_worst(snapshot, subject, expected):
    assert asked(snapshot, subject) == expected


def test_only_a_driver_that_fails_a_finding_or_a_stray_is_something_to_fix():
    assert not something_to_fix(box())
    assert something_to_fix(box(strays=(1,)))
    error = DriverError(code="driver_not_loaded", message="It is not loaded.")
    assert something_to_fix(replace(box(), driver=Driver(error=error)))
    assert something_to_fix(box(SLOW_2))


def test_a_finding_about_a_process_that_is_gone_has_no_start_time():
    gone = finding("oom", "error", pid=99)
    request = request_for(box(gone), FlowSubject(), "/")
    assert request == FlowRequest(flow="oom", pid=99, cwd="/")
