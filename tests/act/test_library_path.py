"""Which folders of LD_LIBRARY_PATH have to go, so that torch finds its own libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cockpit.act.library_path import folders, kept
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
    (tmp_path / "env/pyvenv.cfg").touch()
    assert kept(folders(value, prefix)) == ":".join((plain, own, driver, "/nowhere"))
    first = folders(value, prefix)[0]
    assert first.libraries == ("libcublas.so.11", "libcudart.so.11.0", "libcudnn.so.8")
    assert "in front of torch's own" in (first.foreign or "")
    assert kept(folders(cuda, prefix)) is None


def run(tmp_path: Path, path: str, python: str = "env/bin/python", **more: str) -> RunCommand:
    return RunCommand(
        argv=("python", "train.py"),
        cwd=str(tmp_path),
        uid=0,
        source="record",
        environment={"LD_LIBRARY_PATH": path},
        interpreter=str(tmp_path / python),
        **more,
    )


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str], str]:
    def make(file: str) -> str:
        made = tmp_path / file
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        return str(made.parent)

    make("env/pyvenv.cfg")
    return make


def test_a_run_is_started_without_them_and_told_why(
    tmp_path: Path, library: Callable[[str], str]
) -> None:
    compat, own = library("cuda/compat/libcuda.so.1"), library("env/lib/libcudart.so.12")
    changes = without_foreign_libraries(run(tmp_path, f"{compat}:{own}"))
    assert changes is not None
    assert changes.set_environment == {"LD_LIBRARY_PATH": own}
    assert changes.notes[0].startswith(f"without {compat}: cuda-compat")


def test_a_whole_system_is_no_environment(tmp_path: Path, library: Callable[[str], str]) -> None:
    cuda = library("usr/local/cuda/lib64/libcudart.so.11.0")
    changes = without_foreign_libraries(run(tmp_path, cuda, "usr/bin/python3"))
    assert changes is not None
    assert changes.unset == ("LD_LIBRARY_PATH",)


def test_relative_entries_begin_where_the_run_is(
    tmp_path: Path, library: Callable[[str], str]
) -> None:
    library("here/libcudnn.so.8")
    assert without_foreign_libraries(run(tmp_path, "here")) is not None
    assert without_foreign_libraries(run(tmp_path, "there")) is None


def test_nothing_is_offered_where_no_cuda_library_is(
    tmp_path: Path, library: Callable[[str], str]
) -> None:
    assert without_foreign_libraries(run(tmp_path, "/nowhere/lib:")) is None
    cuda = library("cuda/libcudart.so.11.0")
    inside = run(tmp_path, cuda, container="docker:01")
    assert without_foreign_libraries(inside) is None
