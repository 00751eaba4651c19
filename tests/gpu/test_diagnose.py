"""Programs that really fail on a real GPU are diagnosed from their own output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu import smi

PROGRAM = Path(__file__).parent / "programs" / "fails.py"
GIB = 1 << 30

EXPECTED = {
    "oom_size": "oom_peak",
    "oom_other": "oom_other_process",
    "oom_fragmentation": "oom_fragmentation",
    "oom_fraction": "oom_fraction_cap",
    "assert_index": "index_out_of_range",
    "assert_label": "label_out_of_range",
    "illegal_access": "illegal_access",
    "hidden": "cvd_hides_gpus",
    "ordinal": "too_many_ranks",
    "cpu_tensors": "code_uses_cpu",
    "fork_after_init": "fork_after_init",
}


def fail(kind: str, folder: Path, **environment: str) -> Path:
    """Runs it; the file that holds all that it printed."""
    path = folder / f"{kind}.log"
    with path.open("wb") as out:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), kind],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            timeout=180,
        )
    assert done.returncode != 0, path.read_text()
    return path


def diagnose(log: Path) -> dict[str, object]:
    run = [sys.executable, "-m", "cockpit", "diagnose", "--json", str(log)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_real_failure_is_named(
    kind: str, tmp_path: Path, make_stray: Callable[[float], int]
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": ""} if kind == "hidden" else {}
    if kind == "oom_other":
        free = next(iter(smi.query("gpu", ["memory.total", "memory.used"])))
        room = (int(free["memory.total"]) - int(free["memory.used"])) / 1024
        make_stray(room - 40)
    log = fail(kind, tmp_path, **environment)
    found = diagnose(log)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
    print(kind, found["cause"], found["confidence"], "|", found["title"])
    assert found["cause"] == EXPECTED[kind], tail
    assert found["fixes"]
    if kind not in ("fork_after_init", "illegal_access"):
        place = str(found["facts"]["place"])  # type: ignore[index]
        assert "fails.py:" in place
