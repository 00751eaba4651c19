"""A GPU in use is never reset, nor its module unloaded: such a step is told, not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.engine import remedies
from cockpit.engine.gpu_removal import removal
from cockpit.flows.flow import Known, Remedy
from cockpit.model.gpu import DriverError
from cockpit.model.ledger import Explanation, Ledger
from cockpit.model.remedy import Preview
from cockpit.model.snapshot import Snapshot
from tests.flows.known import known, process


def action(line: str, now: Known, newest: Snapshot | None = None) -> Any:
    live: Any = SimpleNamespace(source="live", newest=lambda: newest)
    values = {"title": "t", "lines": (line,), "loses": "jobs", "verify": "v"}
    found = remedies.build(Remedy("admin", values), now, live)
    assert found is not None
    return found


def preview(line: str, now: Known) -> Preview:
    shown: Preview = action(line, now).preview()
    return shown


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("sudo nvidia-smi --gpu-reset -i 1", "1"),
        ("sudo /usr/bin/nvidia-smi -r --id=GPU-1", "GPU-1"),
        ("sudo nvidia-smi --gpu-reset", "all"),
        ("sudo modprobe -r nvidia_uvm", "nvidia"),
        ("sudo modprobe -v --remove nvidia-uvm", "nvidia"),
        ("sudo rmmod nvidia_drm nvidia_modeset", "nvidia"),
        ("sudo nvidia-smi -i 1 -mig 0", "1"),
    ],
)
def test_of_a_gpu_that_nobody_uses_it_is_run_once_its_name_was_typed(line: str, typed: str) -> None:
    shown = preview(line, known(gpus=2))
    assert (shown.typed, shown.refusal) == (typed, None)
    assert shown.terminal is not None
    used = preview(line, known(process(71, on=1), gpus=2))
    assert used.terminal is None
    assert "pid 71" in (used.refusal or "")
    assert used.lines == shown.lines, "to be read and copied"


@pytest.mark.parametrize(
    "line",
    [
        "options nvidia NVreg_PreserveVideoMemoryAllocations=1",
        "kernel parameter nokaslr",
        "dcgmi diag -r 3",
        "sudo systemctl isolate multi-user.target",
    ],
)
def test_what_is_no_command_or_ends_the_session_is_told_and_never_run(line: str) -> None:
    shown = preview(line, known(gpus=1))
    assert shown.terminal is None
    assert shown.refusal is not None
    assert shown.lines == (line,)


def test_another_gpu_may_be_in_use_meanwhile_but_not_for_the_module() -> None:
    now = known(process(71, on=0), gpus=2)
    assert preview("sudo nvidia-smi --gpu-reset -i 1", now).refusal is None
    assert preview("sudo nvidia-smi --gpu-reset -i 0,1", now).refusal is not None
    assert preview("sudo nvidia-smi --gpu-reset", now).refusal is not None
    assert preview("sudo modprobe -r nvidia_uvm", now).refusal is not None


def unseen(how: str) -> Known:
    now = known(gpus=1)
    seen = now.snapshot
    gpu = seen.gpus[0]
    told = Explanation(kind="other_namespace", pids=(), sentence="s")
    row = Ledger(
        gpu=0,
        total_bytes=9,
        free_bytes=1,
        driver_reserved_bytes=0,
        processes=(),
        unaccounted_bytes=8,
        explanations=(told,),
    )
    changed = {
        "driver": {"driver": replace(seen.driver, error=DriverError(code="unknown", message="m"))},
        "no gpu": {"gpus": ()},
        "another": {"gpus": (replace(gpu, index=3, uuid="GPU-3"),)},
        "lost": {"gpus": (replace(gpu, state="lost"),)},
        "list": {"gpus": (replace(gpu, gaps={"processes": "timeout"}),)},
        "mig": {"gpus": (replace(gpu, mig_enabled=True),)},
        "memory": {"ledger": (row,)},
        "container": {"host": replace(seen.host, container="docker")},
    }[how]
    return known(gpus=1).__class__(
        request=now.request, snapshot=replace(seen, **changed), uid=now.uid
    )


@pytest.mark.parametrize(
    "how", ["driver", "no gpu", "another", "lost", "list", "mig", "memory", "container"]
)
def test_where_nobody_can_be_seen_it_is_told_only(how: str) -> None:
    shown = preview("sudo nvidia-smi --gpu-reset -i 0", unseen(how))
    assert shown.terminal is None
    assert "cannot be seen" in (shown.refusal or "")


def test_a_preview_at_the_confirmation_sees_who_came_meanwhile() -> None:
    step = action("sudo nvidia-smi --gpu-reset -i 0", known(), known(process(72)).snapshot)
    assert "pid 72" in (step.preview().refusal or "")


@pytest.mark.parametrize(
    "line",
    ["modprobe nvidia", "nvidia-smi -pm 1", "nvidia-smi -r0", "modprobe -r nouveau", "rmmod foo"],
)
def test_other_steps_need_no_free_gpu(line: str) -> None:
    assert removal(line.split()) is None
