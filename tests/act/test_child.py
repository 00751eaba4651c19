"""A long child of an action: told line by line, stopped when that is safe."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from cockpit.act import child
from cockpit.act.action import Console
from cockpit.errors import CockpitError


def run(tmp_path: Path, code: str, stop_at: str = "", **options: object) -> child.Ended:
    """Cancelled when it has printed ``stop_at``."""
    cancelled = threading.Event()

    def say(line: str) -> None:
        if stop_at and line == stop_at:
            cancelled.set()

    argv = [sys.executable, "-u", "-c", code]
    console = Console(say=say, cancelled=cancelled)
    log = str(tmp_path / "log")
    return child.run(argv, log, console, environment=dict(os.environ), **options)


def test_its_lines_and_status_are_told(tmp_path: Path) -> None:
    ended = run(tmp_path, "print('one'); print('ERROR: two'); raise SystemExit(3)")
    assert (ended.status, ended.lines, ended.ok) == (3, ("one", "ERROR: two"), False)
    assert ended.last("ERROR: ") == "two"


def test_a_cancelled_child_gets_sigint_with_its_whole_group(tmp_path: Path) -> None:
    code = """
import subprocess, sys
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up")
try:
    inner.wait()
except KeyboardInterrupt:
    print("inner", inner.wait())
"""
    began = time.monotonic()
    ended = run(tmp_path, code, "up")
    assert ended.interrupted
    assert ended.lines[-1].startswith(("inner", "KeyboardInterrupt"))
    assert time.monotonic() - began < 15


def test_one_that_ignores_sigint_is_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "STOP_S", 0.3)
    code = "import signal, time; signal.signal(2, signal.SIG_IGN); print('up'); time.sleep(60)"
    ended = run(tmp_path, code, "up")
    assert (ended.interrupted, ended.status) == (True, -15)


def test_what_is_not_safe_to_interrupt_is_let_finish(tmp_path: Path) -> None:
    code = "import time; print('replacing'); time.sleep(0.7); print('done')"
    ended = run(tmp_path, code, "replacing", busy=lambda line: line == "replacing")
    assert (ended.ok, ended.lines[-1]) == (True, "done")


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CockpitError, match="cannot be run"):
        child.run(["/nowhere/pip"], str(tmp_path / "log"), Console(say=print), environment={})
