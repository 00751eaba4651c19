"""What a kill says that it costs."""

from __future__ import annotations

import pytest

from cockpit.model.action import PlannedTarget
from cockpit.model.kill_words import losses

CHECKPOINT = "What was computed since the last checkpoint."
VARIABLES = "The variables of the notebook; the file of the notebook stays."
NOTEBOOK = "python -m ipykernel_launcher -f /tmp/kernel-1.json"


@pytest.mark.parametrize(
    ("commands", "lost"),
    [
        (["python train.py"], (CHECKPOINT,)),
        ([NOTEBOOK], (VARIABLES,)),
        (["python train.py", NOTEBOOK], (CHECKPOINT, VARIABLES)),
    ],
)
def test_a_notebook_loses_its_variables_and_no_checkpoint(
    commands: list[str], lost: tuple[str, ...]
) -> None:
    targets = [
        PlannedTarget(pid=n, start_ticks=n, user="me", command=command, vram_bytes=None)
        for n, command in enumerate(commands, 7)
    ]
    assert losses("TERM", targets, {}) == lost
