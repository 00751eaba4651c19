"""A run that a fix has started fails again: of the same, of something else, or says not of what."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cockpit.attach.run_record import RunRecord
from tests.commands.conftest import Start
from tests.commands.walking import Walk

Ran = Callable[..., RunRecord]

PROGRAM = """import argparse, sys

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
batch = parser.parse_args().batch_size
for step in range(3):
    print(f"step {step}", flush=True)
if batch > 16:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
"""


def halved(fix: Start, ran: Ran, work: Path, then: str) -> Walk:
    """``then`` is what happens with half the batch."""
    (work / "again.py").write_text(PROGRAM + then)
    ran(sys.executable, "again.py", "--batch-size", "32")
    walk = fix("h200", "oom")
    walk.prompt()
    walk.choose("again.py --batch-size 32")
    walk.choose("halve the batch")
    return walk


def test_out_of_memory_again_is_counted_though_no_agent_saw_it(
    fix: Start, ran: Ran, work: Path
) -> None:
    failing = "sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.')"
    walk = halved(fix, ran, work, failing)
    walk.answer("y")
    said = " ".join(walk.said.split())
    assert "again.py ran out of GPU memory and failed again with status 1" in said
    assert "out-of-memory errors: 1 -> 1" in said
    assert "[did not help] halve the batch" in said
    assert "--batch-size 8" in walk.choose("halve the batch")


def test_what_fails_of_something_else_is_no_reason_to_halve_once_more(
    fix: Start, ran: Ran, work: Path
) -> None:
    walk = halved(fix, ran, work, "raise ValueError('labels of batch 3 are empty')")
    assert walk.end("y") == 1
    said = " ".join(walk.said.split())
    assert (
        "again.py failed with status 1, of something else (ValueError: labels of batch 3 are empty"
        in said
    )
    assert "whether the change helps was not seen" in said
    assert "What did the new run fail of? ValueError: labels of batch 3 are empty" in said
    assert "1. halve the batch" not in walk.said.rpartition("What did the new run")[2]


def test_a_run_that_does_not_say_of_what_it_failed_is_not_called_out_of_memory(
    fix: Start, ran: Ran, work: Path
) -> None:
    walk = halved(fix, ran, work, "sys.exit(3)")
    assert walk.end("y") == 1
    said = " ".join(walk.said.split())
    assert "again.py failed with status 3, and does not say of what" in said
    assert "fail of? It ended with status 3, and its output does not say why." in said


def test_of_many_failed_runs_those_that_fit_come_first_and_each_says_what_it_failed_of(
    fix: Start, ran: Ran, work: Path
) -> None:
    (work / "again.py").write_text(PROGRAM)
    ran(sys.executable, "again.py", "--batch-size", "32")
    (work / "other.py").write_text("raise ValueError('labels are empty')\n")
    for number in range(9):
        ran(sys.executable, "other.py", str(number))
    walk = fix("h200", "oom")
    said = " ".join(walk.prompt().split())
    assert re.search(
        r"Which run\? 1\. \d\d:\d\d python again.py --batch-size 32 \(status 1\): ", said
    )
    assert re.search(r"other.py \d \(status 1\): ValueError: labels are empty", said)
    assert said.count(" python other.py ") == 7
    assert walk.number("none of these") == "9"
    assert walk.end() == 1


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("raise ValueError('no such file')", "No rerun named a line of your own."),
        ("sys.exit(0)", "it runs. It did not come again: the order in time may matter"),
    ],
)
def test_a_rerun_that_fails_of_something_else_or_passes_names_no_line(
    fix: Start, ran: Ran, work: Path, then: str, words: str
) -> None:
    program = (work / "asserts.py").read_text()
    looked = "if os.environ.get('CUDA_LAUNCH_BLOCKING') or 'CUDA_VISIBLE_DEVICES' in os.environ:"
    (work / "asserts.py").write_text(program.replace("table =", f"{looked} {then}\ntable ="))
    ran(sys.executable, "asserts.py")
    walk = fix("h200", "kernel-fault")
    walk.prompt()
    walk.choose("asserts.py")
    walk.choose("run it again in up to")
    said = " ".join(walk.answer("y").split())
    assert words in said
    assert "ends at a line" not in said
    assert "The line is known" not in said
    assert "CUDA reports late" in said or "it may be another line" in said
