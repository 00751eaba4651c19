"""Which kept runs a flow may be about: the recent ones that failed, those that fit it first."""

from __future__ import annotations

import io
import os
import time
from datetime import datetime
from typing import NamedTuple

from cockpit import diagnose
from cockpit.attach import run_record
from cockpit.attach.run_record import RunRecord
from cockpit.engine.flow_subject import clock
from cockpit.engine.run_looks import failure_of
from cockpit.model.flow import FlowId
from cockpit.model.text import clean, clean_command, shortened

RECENT_S = 86400.0
MOST_RUNS = 8
"""A screen of 80x24 shows them all."""
LOOK_LIMIT_S = 3.0
"""For what they printed; those that are not reached come by their time alone."""
TAIL_BYTES = 64 << 10
"""Of each: a failure is at the end."""


class Failed(NamedTuple):
    """One run, and what it failed of: family and words, as ``failure_of`` has them."""

    record: RunRecord
    family: str
    words: str


def failed_runs(state: str, flow: FlowId | None) -> list[Failed]:
    """Of the last day; those that failed of what the flow is about first, the newest first."""
    runs = run_record.list_runs(state)
    failed = [one for one in runs if one.exit is not None and one.exit.status != 0]
    until = time.monotonic() + LOOK_LIMIT_S
    told = [_looked_at(one, until) for one in failed if _age_s(one) < RECENT_S]
    return sorted(told, key=lambda one: one.family != flow)[:MOST_RUNS]


def _looked_at(record: RunRecord, until: float) -> Failed:
    if time.monotonic() > until:
        return Failed(record, "unknown", "")
    finding = diagnose.diagnose(io.BytesIO(record.log()[-TAIL_BYTES:]))
    return Failed(record, *failure_of(finding))


def run_words(one: Failed) -> str:
    """``14:02 python train.py --batch-size 32 (status 1): An out-of-memory …``."""
    record = one.record
    assert record.exit is not None
    how = record.exit.signal or f"status {record.exit.status}"
    program, *words = record.meta.command or (record.meta.name,)
    command = shortened(clean_command((os.path.basename(program), *words)), 60)
    of = f": {shortened(clean(one.words), 70)}" if one.words else ""
    return f"{clock(record.meta.started_at)} {command} ({how}){of}"


def _age_s(record: RunRecord) -> float:
    """Since its end; it has to have one."""
    assert record.exit is not None
    try:
        ended = datetime.fromisoformat(record.exit.ended_at.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
    return time.time() - ended
