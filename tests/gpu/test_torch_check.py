"""The proof after an installation: a real torch adds up ones on the real GPUs."""

from __future__ import annotations

import sys

from cockpit.act.torch_check import ask_torch, judged
from tests.gpu.smi import query


def test_the_installed_torch_computes_on_every_gpu() -> None:
    rows = query("gpu", ["compute_cap"])
    answer = ask_torch(sys.executable)
    verified, sentence = judged(answer, tuple(str(row["compute_cap"]) for row in rows))
    assert verified is True, (sentence, answer)
    assert answer.sums == (8.0,) * len(rows)


def test_a_gpu_that_the_build_has_no_code_for_is_said() -> None:
    verified, sentence = judged(ask_torch(sys.executable), ("3.5",))
    assert (verified, "no code for compute capability 3.5" in sentence) == (False, True)
