"""The lines that export a variable, and the process that handed it down."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cockpit.collect.variable_origin import first_bearer, origins

CVD = "CUDA_VISIBLE_DEVICES"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        f"export {CVD}=",
        f"  {CVD}=3; export {CVD}",
        f"declare -x {CVD}=0",
        f"module load x; export {CVD}=-1",
        f"setenv {CVD} 0",
        f"set -gx {CVD} 0",
        f"unset {CVD}",
    ],
)
def test_a_line_that_sets_it_is_found_with_its_number(tmp_path: Path, line: str) -> None:
    write(tmp_path / ".bashrc", f"# export {CVD}=9\nalias ll='ls -l'\n{line}\n")
    (found,) = origins([CVD], str(tmp_path), system=())
    assert (found.name, found.path, found.line) == (CVD, str(tmp_path / ".bashrc"), 3)
    assert found.text == line.strip()


@pytest.mark.parametrize(
    "line", [f"echo ${CVD}", f"alias t='{CVD}=0 python t.py'", f"export MY_{CVD}=1"]
)
def test_a_line_that_only_mentions_it_is_not(tmp_path: Path, line: str) -> None:
    write(tmp_path / ".bashrc", line + "\n")
    assert origins([CVD], str(tmp_path), system=()) == ()


def test_files_that_are_sourced_and_the_environments_own_are_read(tmp_path: Path) -> None:
    write(
        tmp_path / ".bashrc", "if true; then\n  . ~/cuda.sh\nfi\n[ -f ~/cuda.sh ] && . ~/cuda.sh\n"
    )
    write(tmp_path / "cuda.sh", "\nexport LD_LIBRARY_PATH=/opt/cuda/lib64:$LD_LIBRARY_PATH\n")
    write(tmp_path / "env/etc/conda/activate.d/x.sh", f"export {CVD}=0\n")
    found = origins(
        [CVD, "LD_LIBRARY_PATH"], str(tmp_path), prefix=str(tmp_path / "env"), system=()
    )
    assert [(Path(o.path).name, o.line) for o in found] == [("x.sh", 1), ("cuda.sh", 2)]


def test_a_fifo_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".bashrc")
    assert origins([CVD], str(tmp_path), system=()) == ()


def test_lines_made_to_hurt_neither_fail_nor_take_long(tmp_path: Path) -> None:
    blanks = "x;" + " " * 200_000 + "x"
    (tmp_path / ".bashrc").write_text(f"{blanks}\nsource ~/a\0b\nexport {CVD}=1\n")
    begin = time.monotonic()
    assert [one.line for one in origins([CVD], str(tmp_path), system=())] == [3]
    assert time.monotonic() - begin < 2.0


def test_the_process_that_had_the_value_first_is_named() -> None:
    inner = "import sys, time; print('up', flush=True); time.sleep(30)"
    outer = (
        "import os, subprocess, sys; "
        f"c = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE); "
        "c.stdout.readline(); print(c.pid, flush=True); sys.stdin.read(); c.kill()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", outer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COCKPIT_TEST_VALUE": "7"},
    )
    with parent:
        child = int(parent.stdout.readline())
        found = first_bearer(child, "COCKPIT_TEST_VALUE", "7")
        assert (found.pid, found.certain) == (parent.pid, True)
        assert first_bearer(child, "COCKPIT_TEST_VALUE", "other") is None
        parent.stdin.close()
