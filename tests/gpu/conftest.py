"""Real GPU, real torch: skipped where either is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu.smi import query

PROGRAMS = Path(__file__).parent / "programs"


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.startswith(b"GPU ")


def is_busy() -> bool:
    """The first GPU computes: memory alone is there seconds before the first step."""
    return int(query("gpu", ["utilization.gpu"])[0]["utilization.gpu"] or 0) > 90


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(item.fspath).parent == Path(__file__).parent]
    missing = "needs a real NVIDIA GPU with nvidia-smi" if here and not has_gpu() else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture
def trainer() -> Iterator[subprocess.Popen[bytes]]:
    """A real training that holds about 6 GiB and keeps the GPU busy."""
    process = subprocess.Popen([sys.executable, str(PROGRAMS / "train.py"), "300", "5"])
    end = time.monotonic() + 60
    while time.monotonic() < end and not is_busy():
        assert process.poll() is None, "the trainer ended"
        time.sleep(0.2)
    time.sleep(1)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def make_stray() -> Iterator[Callable[[float], int]]:
    """``make_stray(gib)`` leaves a stray holder and gives its pid; ended at the latest here."""
    pids: list[int] = []

    def make(gib: float) -> int:
        run = [sys.executable, str(PROGRAMS / "stray.py"), str(gib)]
        pids.append(int(subprocess.run(run, capture_output=True, check=True).stdout))
        return pids[-1]

    yield make
    for pid in pids:
        try:
            if b"local-rank" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
