"""The wrapped agent runs nothing of the program's own folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.attach.payload import agent_source, wrap


@pytest.mark.parametrize("version", ["", "3.8", "3.9", "3.12", "3.13"])
def test_modules_beside_the_script_are_not_run(folder: str, version: str) -> None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(found[-1]) if found else shutil.which(f"python{version}") if version else None
    if version and python is None:
        pytest.skip(f"no Python {version} here")
    home = Path(folder) / "home"
    home.mkdir()
    for name in ("json", "select", "socket", "signal", "struct", "selectors", "typing"):
        (home / f"{name}.py").write_text("raise SystemExit('ran')\n")
    payload = wrap(agent_source(), -1, "ptrace", "").replace("'pid': -1", "'pid': os.getpid()")
    (home / "script.py").write_text(
        f"""
import os, sys
os.environ["XDG_RUNTIME_DIR"] = {folder!r}
path, finders = list(sys.path), list(sys.meta_path)
{payload}
agent = sys.modules["_cockpit_agent_registry"].agent
assert agent.path.startswith({folder!r}), agent.path
assert sys.path == path
assert [f for f in sys.meta_path if type(f).__name__ != "TorchFinder"] == finders
assert "site-packages" not in sys.modules["json"].__file__
assert os.path.dirname(sys.modules["socket"].__file__) == os.path.dirname(os.__file__)
agent.stop()
"""
    )
    run = subprocess.run(
        [python or sys.executable, str(home / "script.py")], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, "")
