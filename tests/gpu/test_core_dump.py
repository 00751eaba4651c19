"""A GPU core dump of a kernel that really fails, and what cuda-gdb reads from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.act import gpu_core
from cockpit.act.boot import cockpit_command
from cockpit.attach.run_record import list_runs

PROGRAM = Path(__file__).parent / "programs" / "flows" / "illegal_access.py"


@pytest.mark.timeout(300)
def test_a_dump_is_made_found_and_names_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    command = cockpit_command("run", "--coredump", "--", sys.executable, str(PROGRAM))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode, done.stdout
    run = list_runs(str(tmp_path / "cockpit"))[0]
    dump = gpu_core.newest(run.directory)
    assert dump is not None, done.stderr[-2000:]
    failed = gpu_core.failure(dump)
    print(f"\n{Path(dump).stat().st_size >> 10} kiB: {failed}")
    if shutil.which(gpu_core.DEBUGGER, path="/usr/local/cuda/bin") is not None:
        assert failed is not None
        assert "scale" in failed
        assert "Illegal" in failed
