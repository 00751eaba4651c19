"""The TUI in a real terminal on a real GPU: a training beside a stray, and the stray is killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu import smi
from tests.terminal.tmux import cockpit, terminal

GIB = 1 << 30
OUT = os.environ.get("GPU_TEST_OUT")
"""A folder for captured screens; nothing is kept without it."""

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def without(pid: int) -> int:
    """Used bytes of the card less those of one process, whose own need may change meanwhile."""
    return smi.used_bytes() - smi.apps().get(pid, 0)


def keep(name: str, screen: str) -> None:
    if OUT:
        Path(OUT, name).write_text(screen)


def test_the_stray_is_seen_killed_and_its_memory_confirmed_by_nvidia_smi(
    trainer: subprocess.Popen[bytes], make_stray: Callable[[float], int]
) -> None:
    stray = make_stray(8)
    before = without(trainer.pid)
    assert smi.apps()[stray] > 8 * GIB
    with terminal(120, 36, COLORTERM="truecolor") as box:
        box.start(cockpit())
        screen = box.wait_for(lambda s: "launcher gone" in s and str(trainer.pid) in s, 15)
        time.sleep(12)  # some history for the picture
        keep("overview.ansi", box.screen(styled=True))
        box.start("/is:stray")
        box.wait_for(lambda s: str(trainer.pid) not in s)
        box.type("x")
        box.wait_for("SIGTERM to 1 process")
        keep("kill-plan.ansi", box.screen(styled=True))
        box.type("Enter")
        screen = box.wait_for(
            re.compile(r"freed ([\d.]+) of ([\d.]+) GiB in ([\d.]+) s").search, 20
        )
        keep("kill-result.ansi", box.screen(styled=True))
        told = re.search(r"freed ([\d.]+) of", screen)
        assert told
        freed = before - without(trainer.pid)
        print(f"told {told[1]} GiB, nvidia-smi confirms {freed / GIB:.2f} GiB")
        assert abs(freed / GIB - float(told[1])) < 0.1
        assert stray not in smi.apps()
        assert trainer.pid in smi.apps()
        box.type("Enter", "q")


def test_one_shot_kill_frees_what_it_says(make_stray: Callable[[float], int]) -> None:
    stray = make_stray(4)
    before = smi.used_bytes()
    run = [sys.executable, "-m", "cockpit", "kill", str(stray), "--yes"]
    done = subprocess.run(run, capture_output=True, text=True)
    freed = before - smi.used_bytes()
    print(done.stdout.strip(), f"| nvidia-smi: {freed / GIB:.2f} GiB came back")
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"freed ([\d.]+) of", done.stdout)
    assert told
    assert abs(freed / GIB - float(told[1])) < 0.1
