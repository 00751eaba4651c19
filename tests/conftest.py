"""Fixtures that several rooms' tests share.

``simbox`` runs a command on a simulated GPU machine (tests/simnvml): the real binding over a
library that answers like NVML. It is built once per run with the machine's C compiler.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SIMNVML = Path(__file__).resolve().parent / "simnvml"

Simbox = Callable[..., "subprocess.CompletedProcess[str]"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started with `&` by a script: what the tests start would be deaf to ctrl+c as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def simnvml_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built library; skips where there is no C compiler."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}) to build the simulated NVML with")
    folder = tmp_path_factory.mktemp("simnvml")
    subprocess.run([str(SIMNVML / "build.sh"), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def simbox(simnvml_build: Path) -> Simbox:
    """``simbox("h200x8", ["-c", code], seconds=20, latency="real")`` → the ended process.

    argv that starts with ``-`` goes to this Python, with the repository on its path. ``seconds``
    ends the command (status 124); ``env`` is added to the environment.
    """

    def run(
        scenario: str,
        argv: Sequence[str],
        *,
        seconds: float = 30.0,
        latency: str | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        command = list(argv)
        if command and command[0].startswith("-"):
            command.insert(0, sys.executable)
        box = [sys.executable, str(SIMNVML / "simbox.py"), scenario, "--seconds", str(seconds)]
        if latency:
            box += ["--latency", latency]
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
        around = {**os.environ, "SIMNVML_BUILD": str(simnvml_build), "PYTHONPATH": path}
        return subprocess.run(
            [*box, "--", *command],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=seconds + 30,
            env={**around, **(env or {})},
            check=False,
        )

    return run
