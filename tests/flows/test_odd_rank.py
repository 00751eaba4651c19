"""Two ranks in lines of the user's own: the one whose GPU does nothing is waited for."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from cockpit.flows import multi_gpu
from cockpit.flows.flow import Known
from cockpit.model.memory import Stacks, ThreadStack
from tests.flows.known import known, process

ITEM, SLEEP = "/home/ml1/ddp.py:41 main", "/home/ml1/ddp.py:36 main"


def ranks(first_pct: float | None, second_pct: float | None) -> Known:
    def at(frame: str) -> Stacks:
        thread = ThreadStack(name="MainThread", is_training=True, frames=(frame,))
        return Stacks(threads=(thread,), read_by="agent")

    facts = known(
        process(1, on=0, rank=0),
        process(2, on=1, rank=1),
        gpus=2,
        stacks={1: at(ITEM), 2: at(SLEEP)},
    )
    gpus = facts.snapshot.gpus
    busy = tuple(
        replace(one, utilization_pct=pct)
        for one, pct in zip(gpus, (first_pct, second_pct), strict=True)
    )
    return dataclasses.replace(facts, snapshot=replace(facts.snapshot, gpus=busy))


def test_the_rank_whose_gpu_idles_while_the_other_spins_is_the_odd_one() -> None:
    assert multi_gpu.odd_one(ranks(100.0, 0.0)) == (2, SLEEP)
    assert multi_gpu.odd_one(ranks(3.0, 99.0)) == (1, ITEM)


def test_two_gpus_that_both_work_or_both_idle_or_are_not_known_accuse_nobody() -> None:
    assert multi_gpu.odd_one(ranks(100.0, 60.0)) is None
    assert multi_gpu.odd_one(ranks(0.0, 0.0)) is None
    assert multi_gpu.odd_one(ranks(100.0, None)) is None
    assert multi_gpu.odd_one(ranks(None, 0.0)) is None
