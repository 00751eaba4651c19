"""A guided fix in a real terminal: from a run that crashes to the same run that ends well."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from cockpit.attach.run_record import list_runs
from tests.terminal.fix import Walk, desk
from tests.terminal.tmux import SIMBOX, cockpit

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

PROGRAM = '''
import argparse, sys

class OutOfMemoryError(RuntimeError):
    """torch's, as its traceback has it."""

OutOfMemoryError.__module__ = "torch"
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum-steps", type=int, default=1)
options = parser.parse_args()
if options.batch_size > 16:
    raise OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 139.81 GiB "
        "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 138.50 GiB "
        "memory in use. Of the allocated memory 137.50 GiB is allocated by PyTorch, and 120.00 MiB "
        "is reserved by PyTorch but unallocated."
    )
print("trained with", options.batch_size, options.accum_steps)
'''


def test_a_crash_is_led_to_a_run_that_ends_well(tmp_path: Path, simnvml_build: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    train = f"{sys.executable} {script} --batch-size 32"
    box_ = f"{sys.executable} {SIMBOX} h200 --"
    state = str(tmp_path / "state")
    with desk(simnvml_build, XDG_STATE_HOME=state) as box:
        crash = Walk(box, cockpit("run", "--", train))
        assert crash.status == 1
        assert "torch.OutOfMemoryError" in crash.screen
        walk = Walk(box, f"{box_} {cockpit('fix', '--plain')}")
        walk.choose("Out of memory")
        walk.choose("python")
        assert walk.offers("halve the batch")
        walk.choose("halve the batch")
        assert walk.says("--batch-size 16 --accum-steps 2")
        walk.consent()
        assert walk.status == 0, walk.screen
        assert "[helped] halve the batch" in walk.screen
        assert walk.keys == 8  # four answers, each with Enter
    newest = list_runs(os.path.join(state, "cockpit"))[0]
    assert newest.exit is not None
    assert newest.exit.status == 0
    assert newest.output()[-1] == "trained with 16 2"


def test_what_is_not_wanted_is_left_with_nothing_changed(
    tmp_path: Path, simnvml_build: Path
) -> None:
    with desk(simnvml_build, XDG_STATE_HOME=str(tmp_path)) as box:
        walk = Walk(box, cockpit("fix", "vram-held", "--plain", scenario="stray"))
        walk.choose("end all")
        assert "SIGTERM" in walk.screen
        walk.leave()
        assert walk.status is None  # no is no end: the choice is there again
        walk.leave()
        assert walk.status == 1
        assert "Left; nothing was changed." in walk.screen
