"""Logs as the world cuts, mixes and paints them: always an answer, quickly; noise has no cause.

All 10,000 take two minutes: COCKPIT_MUTATIONS=10000 pytest tests/diagnose/test_mutated.py
"""

from __future__ import annotations

import io
import os
import random
import time
from pathlib import Path

import pytest

from cockpit.diagnose import diagnose

COUNT = int(os.environ.get("COCKPIT_MUTATIONS", "1000"))
LOGS = [path.read_bytes() for path in sorted((Path(__file__).parents[1] / "cases").glob("*.log"))]


def cut(dice: random.Random, raw: bytes) -> bytes:
    first, last = sorted((dice.randrange(len(raw) + 1), dice.randrange(len(raw) + 1)))
    return raw[first:last]


def splice(dice: random.Random, raw: bytes) -> bytes:
    other, at = dice.choice(LOGS), dice.randrange(len(raw) + 1)
    return raw[:at] + other[: dice.randrange(len(other))] + raw[at:]


def color(dice: random.Random, raw: bytes) -> bytes:
    return b"\n".join(b"\x1b[%dm" % dice.randrange(99) + line for line in raw.split(b"\n"))


def interleave(dice: random.Random, raw: bytes) -> bytes:
    pairs = zip(raw.split(b"\n"), dice.choice(LOGS).split(b"\n"), strict=False)
    return b"\n".join(
        b"[rank%d]: %s" % (dice.randrange(9), line) for pair in pairs for line in pair
    )


def soil(dice: random.Random, raw: bytes) -> bytes:
    at = dice.randrange(len(raw) + 1)
    return raw[:at] + dice.randbytes(dice.randrange(2000)) + raw[at:]


def blank(dice: random.Random, raw: bytes) -> bytes:
    return raw.replace(dice.choice((b" ", b"\n")), dice.choice((b"", b"  ", b"\0", b"\r", b"\t")))


MUTATIONS = (cut, splice, color, interleave, soil, blank)


def test_a_mutated_log_has_an_answer_in_time() -> None:
    for seed in range(COUNT):
        dice = random.Random(seed)
        raw = dice.choice(LOGS)
        for _ in range(dice.randint(1, 4)):
            raw = dice.choice(MUTATIONS)(dice, raw)
        begun = time.process_time()
        finding = diagnose(io.BytesIO(raw))
        assert finding.cause, seed
        assert time.process_time() - begun < 2, seed


@pytest.mark.parametrize("kind", ["bytes", "printable"])
def test_noise_has_no_cause(kind: str) -> None:
    for seed in range(COUNT // 2):
        dice = random.Random(seed)
        size = dice.randrange(4000)
        noise = dice.randbytes(size)
        if kind == "printable":
            noise = bytes(32 + byte % 95 for byte in noise)
        finding = diagnose(io.BytesIO(noise))
        assert (finding.cause, finding.confidence) == ("unknown", 0.0), seed
        assert finding.fixes


@pytest.mark.parametrize(
    "piece",
    [b"[rank1]: ", b" ", b"rank 1 ", b"1 ", b"CUDA out of memory. Tried to allocate 1 GiB "],
)
def test_a_long_line_of_one_thing_takes_no_longer_than_any(piece: bytes) -> None:
    begun = time.process_time()
    diagnose(io.BytesIO(piece * (100_000 // len(piece))))
    assert time.process_time() - begun < 5
