"""Causes that the 80 cases have no example of, and healthy logs that must have none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cockpit.diagnose import diagnose
from cockpit.diagnose.tables import cuda_compat
from cockpit.model.wheel import runs

KINDS = [
    json.loads(line) for line in (Path(__file__).parent / "kinds.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["cause"])
def test_a_kind_has_its_cause(kind: dict[str, str]) -> None:
    assert diagnose(io.BytesIO(kind["text"].encode())).cause == kind["cause"]


@pytest.mark.parametrize(
    "text",
    [
        "step 1 loss 2.0\nstep 2 loss 1.9\nsaved checkpoint\n",
        "Epoch 1: 100%|####| 50/50 [00:10<00:00, 5it/s]\nerrors: 0\nErrorRate: 0.02\nloss 0.2\n",
        "INFO memory 12.1 GiB of 80 GiB\nINFO nccl version 2.21.5\nstep 1 loss 3\nstep 2 loss 2\n",
    ],
)
def test_a_healthy_log_is_benign(text: str) -> None:
    assert diagnose(io.BytesIO(text.encode())).cause == "benign"


def test_the_number_of_the_driver_message_is_a_cuda_version() -> None:
    assert cuda_compat.cuda_of_driver(11040) == "11.4"
    assert cuda_compat.wheel_for_driver("11.4") == "cu118"
    assert cuda_compat.wheel_for_driver("10.2") is None


def test_code_runs_on_the_same_major_and_a_later_minor() -> None:
    assert runs("8.6", "8.9")
    assert not runs("9.0", "12.0")
    assert not runs("8.6", "8.7")
    assert cuda_compat.wheel_for_capability("12.0") == "cu128"
