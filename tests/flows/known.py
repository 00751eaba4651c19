"""A machine as a flow may be told of it, made by hand."""

from __future__ import annotations

from typing import Any

from cockpit.flows.flow import Known
from cockpit.model.event import Severity
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process, Stray
from cockpit.model.run import Run, RunDevice
from cockpit.model.run_command import RunCommand
from cockpit.model.snapshot import SamplerStatus, Snapshot

GIB = 1 << 30
ME = 1000


def gpu(index: int, used_gib: float = 0.5) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H200",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=int(used_gib * GIB),
        compute_capability="9.0",
    )


def process(pid: int, gib: float = 10, on: int = 0, **changes: Any) -> Process:
    return Process(
        **{
            "pid": pid,
            "start_ticks": pid * 10,
            "user": "ml1",
            "uid": ME,
            "command": ("python", "train.py"),
            "cpu_pct": 100.0,
            "vram_bytes": int(gib * GIB),
            "devices": (DeviceUse(gpu=on, vram_bytes=int(gib * GIB), sm_pct=90.0),),
            **changes,
        }
    )


def stray(pid: int, gib: float = 10, on: int = 0, **changes: Any) -> Process:
    why = Stray(reason="launcher_gone", sentence="Its launcher has ended.")
    return process(pid, gib, on, **{"stray": why, "cpu_pct": 0.0, **changes})


def finding(cause: str, flow: str, severity: Severity = "error", **changes: Any) -> Finding:
    return Finding(
        **{
            "flow": flow,
            "cause": cause,
            "severity": severity,
            "confidence": 0.9,
            "title": f"title of {cause}",
            "explanation": f"explanation of {cause}",
            **changes,
        }
    )


def command(*argv: str, **changes: Any) -> RunCommand:
    words = argv or ("python", "train.py", "--bs", "32")
    return RunCommand(
        **{"argv": words, "cwd": "/home/ml1", "uid": ME, "source": "record", **changes}
    )


def run(pid: int, **changes: Any) -> Run:
    device = RunDevice(gpu=0, reserved_bytes=20 * GIB, active_bytes=5 * GIB)
    return Run(**{"pid": pid, "start_ticks": pid * 10, "devices": (device,), **changes})


def known(*processes: Process, gpus: int = 1, runs: tuple[Run, ...] = (), **changes: Any) -> Known:
    snapshot = Snapshot(
        taken_at="2026-11-30T12:00:00.000Z",
        host=Host(name="box", cpu_count=16),
        driver=Driver(version="580.159.04", cuda_version="13.0"),
        gpus=tuple(gpu(index) for index in range(gpus)),
        processes=processes,
        runs=runs,
        findings=changes.pop("findings", ()),
        sampler=SamplerStatus(interval_s=1.0),
    )
    request = changes.pop("request", FlowRequest())
    mine = next((one for one in processes if one.pid == request.pid), None)
    return Known(
        **{
            "request": request,
            "snapshot": snapshot,
            "uid": ME,
            "process": mine,
            "run": next((one for one in runs if one.pid == request.pid), None),
            **changes,
        }
    )
