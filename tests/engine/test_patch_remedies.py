"""From a diagnosis to the change of the source that the flow offers for it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.act.editor import EditByHand
from cockpit.act.patch import Patch
from cockpit.collect.simulated import SimulatedMachine
from cockpit.diagnose import diagnose
from cockpit.engine import remedies
from cockpit.flows import FLOWS, machine
from cockpit.flows.flow import Known
from cockpit.flows.machine import State
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.run import Run
from cockpit.model.run_command import RunCommand

MACHINE = SimulatedMachine("stray")
MACHINE.start()
SNAPSHOT = MACHINE.snapshot(1.0)
MACHINE.source = "live"  # patches are for this host's files


def offered(finding: Finding, folder: Path, **changes: Any) -> dict[str, Any]:
    """Kind of the change → the action, as the engine makes it of what the flow offers."""
    command = RunCommand(
        argv=("python", "train.py"),
        cwd=str(folder),
        uid=os.geteuid(),
        source="typed",
        interpreter=changes.pop("interpreter", None),
    )
    if changes.pop("live", False):
        changes["snapshot"] = replace(SNAPSHOT, findings=(finding,))
    known = Known(
        **{
            "request": FlowRequest(cwd=str(folder), command=command.argv),
            "snapshot": SNAPSHOT,
            "uid": os.geteuid(),
            "finding": finding,
            "command": command,
            **changes,
        }
    )
    looked = machine.looked(FLOWS[finding.flow], State(), known)  # type: ignore[index]
    return {
        one.values["kind"]: remedies.build(one, known, MACHINE)
        for one in looked.remedies
        if one.kind == "patch"
    }


def of_log(folder: Path, source: str, line: int, *lines: str) -> Finding:
    """What is diagnosed of a traceback that ends in ``line`` of train.py."""
    (folder / "train.py").write_text(source)
    text = (
        "Traceback (most recent call last):",
        f'  File "{folder}/train.py", line {line}, in <module>',
        *lines,
    )
    return diagnose(io.BytesIO("\n".join(text).encode() + b"\n"))


def found(cause: str, flow: str, place: str) -> Finding:
    return Finding(
        flow=flow,
        cause=cause,
        severity="warning",
        confidence=0.9,
        title="t",
        explanation="e",
        facts={"place": place},
    )


def changed(action: object) -> list[str]:
    assert isinstance(action, Patch), action
    diff = action.preview().lines
    return [one for one in diff if one[:1] in "+-" and one[:3] not in ("+++", "---")]


def test_a_device_that_is_the_cpu_is_changed_where_nothing_failed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('device = "cpu"\nmodel = Net().to(device)\nfor x in data:\n    model(x)\n')
    finding = found("code_uses_cpu", "no-cuda", f"{script}:4")
    live = offered(finding, tmp_path, live=True)["to_device"]
    assert changed(live) == ['-device = "cpu"', '+device = "cuda"']
    assert isinstance(offered(finding, tmp_path)["to_device"], EditByHand)


@pytest.mark.parametrize(
    ("run", "name", "certain"),
    [
        (Run(pid=7, python_version="3.14.1"), "python3.12", False),
        (Run(pid=7, python_version="3.12.1"), "python3.14", True),
        (None, "python3.14", False),
        (None, "python3.12", True),
        (None, "pypy3.10", True),
        (None, None, True),
    ],
)
def test_workers_of_a_python_that_imports_the_script_anew_need_a_guard(
    tmp_path: Path, run: Run | None, name: str | None, certain: bool
) -> None:
    script, python = tmp_path / "train.py", tmp_path / "python"
    script.write_text("loader = DataLoader(data)\nfor x in loader:\n    step(x)\n")
    if name is not None:
        (tmp_path / name).touch()
        python.symlink_to(name)
    finding = found("dataloader", "slow", f"{script}:2")
    interpreter = str(python) if name else None
    action = offered(finding, tmp_path, run=run, interpreter=interpreter)["dataloader"]
    assert isinstance(action, Patch) is certain
