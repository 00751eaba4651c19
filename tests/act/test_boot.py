"""Children of ours that start in a run's directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cockpit.act.boot import cockpit_command


def test_a_module_in_the_runs_directory_is_not_ours(tmp_path: Path) -> None:
    for module in ("json", "sys", "argparse", "signal", "msgspec"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('the wrong module')")
    ended = subprocess.run(
        cockpit_command("--version"), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("gpu-cockpit ")
