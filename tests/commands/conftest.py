"""A cockpit on a simulated GPU machine, with a state directory and a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.act.boot import cockpit_command
from cockpit.attach.run_record import RunRecord, list_runs
from tests.commands.walking import PROGRAMS, Walk, end_runs
from tests.conftest import ROOT, SIMNVML

NO_INDEX = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_RETRIES": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
}
"""A port of this host where nobody answers: nothing may leave it."""
Start = Callable[..., Walk]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state directory of all cockpits of the test; its runs are ended with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TMUX", "CUDA_VISIBLE_DEVICES", "EDITOR", "VISUAL", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "state" / "cockpit"
    yield folder
    end_runs(folder)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where the user is: with the programs that fail."""
    folder = tmp_path / "project"
    shutil.copytree(PROGRAMS, folder)
    return folder


@pytest.fixture
def fix(simnvml_build: Path, state: Path, work: Path) -> Iterator[Start]:
    """``fix("stray", "vram-held", env={…})`` → a Walk through ``cockpit fix --plain``."""
    walks: list[Walk] = []

    def start(
        scenario: str,
        *words: str,
        env: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
        plain: bool = True,
        cockpit: tuple[str, ...] = (sys.executable, "-m", "cockpit"),
    ) -> Walk:
        box = [sys.executable, str(SIMNVML / "simbox.py"), scenario, "--seconds", "120", "--"]
        around = {**os.environ, "SIMNVML_BUILD": str(simnvml_build), "PYTHONPATH": str(ROOT)}
        at = words.index("--") if "--" in words else len(words)
        flags = ("--plain",) if plain else ()
        argv = [*box, *cockpit, *before, "fix", *words[:at], *flags, *words[at:]]
        walk = Walk(argv, cwd=work, env={**around, **NO_INDEX, **(env or {})})
        walks.append(walk)
        return walk

    yield start
    for walk in walks:
        walk.close()


@pytest.fixture
def ran(state: Path, work: Path) -> Callable[..., RunRecord]:
    """Runs a program under ``cockpit run`` to its end, as before the user asks for help."""

    def run(*argv: str) -> RunRecord:
        command = cockpit_command("run", "--", *argv)
        subprocess.run(command, cwd=work, capture_output=True, timeout=90)
        return list_runs(str(state))[0]

    return run


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with a CPU build of torch: $COCKPIT_TORCH_PYTHON."""
    python = os.environ.get("COCKPIT_TORCH_PYTHON") or sys.executable
    code = "import sys, torch; sys.exit(torch.version.cuda is not None)"
    if subprocess.run([python, "-c", code], capture_output=True).returncode:
        pytest.skip("needs a CPU build of torch (set COCKPIT_TORCH_PYTHON)")
    return python
