"""GPU core dumps: found by their newest, read as cuda-gdb prints them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.act import gpu_core

# As cuda-gdb 13 prints them, paths shortened.
SAID = """Opening GPU coredump: cuda-box-71.nvcudmp
[Current focus set to CUDA kernel 0, grid 9, block (0,0,0), thread (0,0,0), device 0, sm 0, lane 0]

CUDA Exception: Warp Illegal Address
The exception was triggered at PC 0x7fd52b1f0  scale
#0  0x00007fd52b1f0100 in scale<<<(4096,1,1),(256,1,1)>>> ()
"""


def test_exception_and_kernel_are_told() -> None:
    assert gpu_core.read(SAID) == "Warp Illegal Address in scale"
    assert gpu_core.read("CUDA Exception: Lane User Stack Overflow\n") == "Lane User Stack Overflow"
    assert gpu_core.read("warning: not a core dump\n") is None
    assert "\x1b" not in (gpu_core.read("CUDA Exception: \x1b[2Jx\n") or "\x1b")


def test_the_newest_dump_of_a_run_is_taken(tmp_path: Path) -> None:
    assert gpu_core.newest(str(tmp_path / "gone")) is None
    (tmp_path / "output").write_text("")
    assert gpu_core.newest(str(tmp_path)) is None
    for age, name in ((9, "cuda-a-1.nvcudmp"), (1, "cuda-a-2.nvcudmp")):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert gpu_core.newest(str(tmp_path)) == str(tmp_path / "cuda-a-2.nvcudmp")


def test_without_the_debugger_or_with_one_that_fails_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_core, "PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_core.failure("/no/dump") is None
    debugger = tmp_path / gpu_core.DEBUGGER
    debugger.write_text("#!/bin/sh\nexit 3\n")
    debugger.chmod(0o755)
    assert gpu_core.failure("/no/dump") is None
