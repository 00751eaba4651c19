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
    """Kind of the change, or title of the new start → the action, as the engine makes it of what
    the flow offers."""
    command = RunCommand(
        argv=changes.pop("argv", ("python", "train.py")),
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
        one.values.get("kind") or one.values["title"]: remedies.build(one, known, MACHINE)
        for one in looked.remedies
        if one.kind in ("patch", "relaunch")
    }


def of_log(folder: Path, error: str, *frames: tuple[int, str], prefix: str = "") -> Finding:
    """What is diagnosed of a traceback: (line of train.py, function) for each frame of it."""
    places = [f'  File "{folder}/train.py", line {line}, in {name}' for line, name in frames]
    lines = ("Traceback (most recent call last):", *places, error)
    return diagnose(io.BytesIO("".join(f"{prefix}{one}\n" for one in lines).encode()))


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


LOADS = """import torch
model = Net().to("cuda")
saved = torch.load("best.pt")
model.load_state_dict(saved["model"])
"""
LOADED = ['-saved = torch.load("best.pt")', '+saved = torch.load("best.pt", map_location="cpu")']


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Attempting to deserialize object on CUDA device 3 but "
        "torch.cuda.device_count() is 1. Please use torch.load with map_location to map your "
        "storages to an existing device.",
        "RuntimeError: Attempting to deserialize object on a CUDA device but "
        "torch.cuda.is_available() is False. If you are running on a CPU-only machine, please "
        "use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.",
    ],
)
@pytest.mark.parametrize("copied", [True, False])
def test_a_checkpoint_of_a_gpu_that_is_not_there_is_loaded_into_host_memory(
    tmp_path: Path, error: str, copied: bool
) -> None:
    """Whatever is done with it then: as it is, it cannot be loaded at all."""
    source = LOADS if copied else LOADS.replace("model.load_state_dict", "anything")
    (tmp_path / "train.py").write_text(source)
    finding = of_log(tmp_path, error, (3, "<module>"))
    assert (finding.flow, finding.cause) == ("no-cuda", "checkpoint_device")
    assert changed(offered(finding, tmp_path)["map_location"]) == LOADED


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.00 GiB is free. {others}Including non-PyTorch memory, this "
    "process has {own} GiB memory in use. Of the allocated memory {held} GiB is allocated by "
    "PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated."
)


def test_ranks_that_load_onto_one_gpu_load_into_host_memory_and_take_their_own(
    tmp_path: Path,
) -> None:
    source = LOADS.replace("model =", "torch.distributed.init_process_group()\nmodel =")
    (tmp_path / "train.py").write_text(source)
    others = "".join(f"Process {pid} has 19.50 GiB memory in use. " for pid in (100, 101, 102))
    error = OOM.format(others=others, own="19.50", held="19.00")
    finding = of_log(tmp_path, error, (4, "<module>"), prefix="[rank1]: ")
    assert (finding.flow, finding.cause) == ("oom", "oom_ranks_on_one_gpu")
    found = offered(finding, tmp_path)
    assert changed(found["map_location"]) == LOADED
    assert any("set_device" in one for one in changed(found["set_device"]))


EVALUATES = """import torch


def evaluate(model, loader):
    for x, y in loader:
        model(x)
    return 1


evaluate(model, loader)
"""
HALVED = "halve the batch of the evaluation"


def test_an_oom_in_the_evaluation_halves_its_batch_and_keeps_no_graph(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EVALUATES)
    error = OOM.format(others="", own="78.10", held="77.00")
    finding = of_log(tmp_path, error, (10, "<module>"), (6, "evaluate"))
    argv = ("python", "train.py", "--batch-size", "64", "--eval-batch-size", "256")
    found = offered(finding, tmp_path, argv=argv)
    assert found[HALVED].argv == (*argv[:-1], "128")
    assert next(iter(found)) == HALVED
    assert any("torch.no_grad()" in one for one in changed(found["no_grad"]))
    assert offered(finding, tmp_path, argv=argv[:4])[HALVED] is None


def test_an_oom_in_the_training_leaves_the_evaluation_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EVALUATES)
    error = OOM.format(others="", own="78.10", held="77.00")
    finding = of_log(tmp_path, error, (10, "<module>"), (6, "train_epoch"))
    assert finding.cause == "oom_peak"
    assert HALVED not in offered(finding, tmp_path)
