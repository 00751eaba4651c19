"""Looks at runs that ``cockpit run`` started: their records, and what the agents inside say.

What ``act.relaunch`` asks for as ``Records``; here because records and agents are ``attach``'s.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cockpit import diagnose
from cockpit.attach.client import AgentError, Client
from cockpit.attach.run_record import RunProcess, RunRecord, list_runs, load_run
from cockpit.engine.runs import device_rows
from cockpit.errors import TargetGoneError
from cockpit.model.finding import Finding
from cockpit.model.run import Run
from cockpit.model.run_command import RunMeasure, SeenRun

ANSWER_LIMIT_S = 0.5
"""For each agent: a silent one must not hold up the look."""
AGENTS_ASKED = 16
"""Of a run with more ranks the first are asked."""


class RunLooks:
    """Stateless; each look reads anew."""

    def find(self, state: str, name: str, value: str) -> str | None:
        """See ``act.relaunch.Records``."""
        for run in list_runs(state):
            if run.meta.environment.get(name) == value:
                return run.directory
        return None

    def look(self, directory: str, lines: int) -> SeenRun | None:
        """See ``act.relaunch.Records``."""
        try:
            run = load_run(directory)
        except TargetGoneError:
            return None
        told = _ask(run.processes()) if run.exit is None else []
        return _seen(run, told, lines)


def measure(directory: str | None, run: Run | None = None) -> RunMeasure:
    """What is known of a run that failed or still runs: from its record, and its last sample."""
    record = _record(directory)
    ooms = record.ooms() if record else ()
    rows: list[Mapping[str, Any]] = [row for one in ooms for row in device_rows(one.get("devices"))]
    rows += [_of_device(device) for device in run.devices] if run else []
    steps = [run.step if run else None, *(one.get("step") for one in ooms)]
    end = record.exit if record else None
    return RunMeasure(
        step=max((step for step in steps if isinstance(step, int)), default=None),
        exit_status=end.status if end else run.exit_status if run else None,
        signal=end.signal if end else None,
        lasted_s=_lasted_s(record.meta.started_at, end.ended_at) if record and end else None,
        allocated_peak_bytes=_peak(rows, "allocated_peak_bytes"),
        reserved_peak_bytes=_peak(rows, "reserved_peak_bytes"),
        step_times_s=(1 / run.steps_per_s,) if run and run.steps_per_s else (),
        ooms=len(ooms) if record else None,
    )


def step_times(directory: str, count: int, every_s: float = 1.0) -> tuple[float, ...]:
    """Seconds a step of a run that goes on: so many samples, fewer where it stands or ends."""
    found: dict[int, float] = {}
    end = time.monotonic() + (count + 2) * every_s
    while len(found) < count and time.monotonic() < end:
        seen = RunLooks().look(directory, 0)
        if seen is None or seen.state != "running":
            break
        if seen.step is not None and seen.steps_per_s:
            found[seen.step] = 1 / seen.steps_per_s
        time.sleep(every_s)
    return tuple(found.values())


def _seen(run: RunRecord, told: list[Mapping[str, Any]], lines: int) -> SeenRun:
    ooms = run.ooms()
    rows = [row for one in (*told, *ooms) for row in device_rows(one.get("devices"))]
    steps = [one["step"] for one in told if isinstance(one.get("step"), int) and one["step"] > 0]
    steps = steps or [one["step"] for one in ooms if isinstance(one.get("step"), int)]
    family, failure = _failure(run)
    rates = [one["steps_per_s"] for one in told if isinstance(one.get("steps_per_s"), float | int)]
    return SeenRun(
        directory=run.directory,
        name=run.meta.name,
        pid=run.meta.pid,
        start_ticks=run.meta.start_ticks,
        state=run.state,
        exit_status=run.exit.status if run.exit else None,
        signal=run.exit.signal if run.exit else None,
        ooms=max(len(ooms), int(family == "oom")),
        family=family,
        failure=failure,
        step=min(steps, default=None),
        steps_per_s=min((float(rate) for rate in rates), default=None),
        allocated_peak_bytes=_peak(rows, "allocated_peak_bytes"),
        reserved_peak_bytes=_peak(rows, "reserved_peak_bytes"),
        output=tuple(run.output(lines)) if lines else (),
    )


def failure_of(finding: Finding) -> tuple[str, str]:
    """Family and words of what ended a run, by the diagnosis of its output.

    The host's memory is another than the GPU's. What a run came over, as of an OOM that was
    handled, did not end it.
    """
    if finding.cause == "host_oom":
        return "host-oom", finding.title
    if finding.cause in ("benign", "recovered"):
        return "unknown", str(finding.facts.get("fatal", ""))
    return finding.flow, finding.title if finding.severity != "info" else ""


def _failure(run: RunRecord) -> tuple[str | None, str]:
    """What it failed of; None: it did not. A status alone says nothing, a signal does."""
    if run.exit is None or not run.exit.status:
        return None, ""
    said = run.log() if run.exit.signal else "\n".join(run.output()).encode(errors="replace")
    return failure_of(diagnose.diagnose(io.BytesIO(said)))


def _ask(processes: Iterable[RunProcess]) -> list[Mapping[str, Any]]:
    """``stats`` of each agent that answers."""
    told: list[Mapping[str, Any]] = []
    for process in [one for one in processes if one.socket][:AGENTS_ASKED]:
        try:
            with Client.connect(process.pid, process.socket or "", ANSWER_LIMIT_S) as client:
                told.append(client.call("stats", ANSWER_LIMIT_S))
        except AgentError:  # it has ended, or its GIL is held: the next look tells
            continue
    return told


def _record(directory: str | None) -> RunRecord | None:
    try:
        return load_run(directory) if directory else None
    except TargetGoneError:
        return None


def _of_device(device: Any) -> Mapping[str, Any]:
    return {name: getattr(device, name) for name in ("allocated_peak_bytes", "reserved_peak_bytes")}


def _peak(rows: Iterable[Mapping[str, Any]], name: str) -> int | None:
    values = [row[name] for row in rows if isinstance(row.get(name), int)]
    return max(values, default=None)


def _lasted_s(begin: str, end: str) -> float | None:
    try:
        times = [datetime.fromisoformat(one.replace("Z", "+00:00")) for one in (begin, end)]
    except ValueError:
        return None
    return (times[1] - times[0]).total_seconds()
