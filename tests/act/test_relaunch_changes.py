"""The changes that fixes make."""

from __future__ import annotations

import os
from pathlib import Path

from cockpit.act import relaunch_changes as changes
from cockpit.act.script_files import ScriptFacts
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.host import Host
from cockpit.model.run_command import RunCommand
from cockpit.model.snapshot import SamplerStatus, Snapshot


def run(*argv: str, **more: object) -> RunCommand:
    known = {"argv": argv, "cwd": "/", "uid": os.geteuid(), "source": "process"}
    return RunCommand(**{**known, **more})  # type: ignore[arg-type]


def test_half_the_batch_has_a_title_that_says_both() -> None:
    done = changes.halve(run("python", "t.py", "--bs", "8", "--grad-accum", "2"))
    assert done is not None
    assert done.title == "--bs 4 instead of 8, --grad-accum 4 instead of 2"
    assert changes.halve(run("python", "t.py")) is None
    assert done.fields()["argv"] == ("python", "t.py", "--bs", "4", "--grad-accum", "4")


def test_arguments_are_added_where_the_framework_of_the_source_has_them() -> None:
    trainer = ScriptFacts((), "transformers", ())
    done = changes.set_argument(run("python", "t.py"), "precision", "bf16", trainer)
    assert done is not None
    assert (done.title, done.argv) == ("with --bf16", ("python", "t.py", "--bf16"))
    off = changes.set_argument(run("python", "t.py", "--compile"), "compile", "off")
    assert off is not None
    assert off.title == "without --compile"


def test_a_variable_comes_with_what_it_costs_and_not_twice() -> None:
    done = changes.set_variable(run("python", "t.py"), "launch_blocking")
    assert done is not None
    assert done.set_environment == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert "speed" in done.notes[0]
    again = run("env", "CUDA_LAUNCH_BLOCKING=1", "python", "t.py")
    assert changes.set_variable(again, "launch_blocking") is None


def test_expandable_segments_are_added_to_what_this_torch_reads() -> None:
    old = run("python", "t.py", environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    done = changes.set_variable(old, "expandable_segments")
    assert done is not None
    assert done.set_environment == {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"
    }
    new = changes.set_variable(run("python", torch_version="2.13.0"), "expandable_segments")
    assert new is not None
    assert new.set_environment == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    there = run("python", environment=dict(new.set_environment), torch_version="2.13.0")
    assert changes.set_variable(there, "expandable_segments") is None


def test_moving_to_a_gpu_names_it_as_cuda_would() -> None:
    gpus = tuple(Gpu(index=i, uuid=f"GPU-{i}", name=n) for i, n in enumerate(("A", "B")))
    seen = Snapshot(
        taken_at="2026-01-01T00:00:00.000Z",
        host=Host(name="h"),
        driver=Driver(),
        gpus=gpus,
        sampler=SamplerStatus(interval_s=1.0),
    )
    done = changes.on_gpu(run("python", "t.py"), gpus[1], seen)
    assert (done.title, done.set_environment) == (
        "on GPU 1 (B)",
        {"CUDA_VISIBLE_DEVICES": "GPU-1"},
    )


def test_folders_of_another_cuda_leave_the_library_path(tmp_path: Path) -> None:
    (tmp_path / "libcudnn.so.8").write_bytes(b"")
    foreign = run("python", environment={"LD_LIBRARY_PATH": f"{tmp_path}:/usr/lib/none"})
    done = changes.without_foreign_libraries(foreign)
    assert done is not None
    assert done.set_environment == {"LD_LIBRARY_PATH": "/usr/lib/none"}
    only = run("python", environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert changes.without_foreign_libraries(only).unset == ("LD_LIBRARY_PATH",)  # type: ignore[union-attr]
    assert changes.without_foreign_libraries(run("python")) is None
