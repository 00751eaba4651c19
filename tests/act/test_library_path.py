"""Which folders of LD_LIBRARY_PATH have to go, so that torch finds its own libraries."""

from __future__ import annotations

from pathlib import Path

from cockpit.act.library_path import folders, without_foreign
from cockpit.act.relaunch_changes import without_foreign_libraries
from cockpit.model.run_command import RunCommand


def test_folders_with_foreign_cuda_libraries_go_and_the_others_stay(tmp_path: Path) -> None:
    def folder(name: str, *files: str) -> str:
        for file in files:
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
        return str(tmp_path / name)

    plain = folder("plain", "libfoo.so")
    cuda = folder("cuda/lib64", "libcudart.so.11.0", "libcudnn.so.8", "libcublas.so.11")
    stubs = folder("cuda/lib64/stubs", "libcuda.so")
    compat = folder("cuda/compat", "libcuda.so.1")
    own = folder("env/lib", "libcudart.so.12")
    driver = folder("nvidia/lib64", "libcuda.so.1", "libnvidia-ml.so.1")
    value = ":".join((cuda, plain, stubs, own, compat, driver, "", "/nowhere"))
    prefix = str(tmp_path / "env")
    assert without_foreign(value, prefix) == ":".join((plain, own, driver, "/nowhere"))
    first = folders(value, prefix)[0]
    assert first.libraries == ("libcublas.so.11", "libcudart.so.11.0", "libcudnn.so.8")
    assert "in front of torch's own" in (first.foreign or "")
    assert without_foreign(cuda, prefix) is None


def test_a_run_is_started_without_them_and_told_why(tmp_path: Path) -> None:
    compat, own = tmp_path / "cuda/compat", tmp_path / "env/lib"
    for folder, file in ((compat, "libcuda.so.1"), (own, "libcudart.so.12")):
        folder.mkdir(parents=True)
        (folder / file).touch()
    command = RunCommand(
        argv=("python", "train.py"),
        cwd="/",
        uid=0,
        source="record",
        environment={"LD_LIBRARY_PATH": f"{compat}:{own}"},
        interpreter=str(tmp_path / "env/bin/python"),
    )
    changes = without_foreign_libraries(command)
    assert changes is not None
    assert changes.set_environment == {"LD_LIBRARY_PATH": str(own)}
    assert changes.notes[0].startswith(f"without {compat}: cuda-compat")
