"""One log → one Finding: which candidate wins, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import msgspec

from cockpit.diagnose import kernel_fault, multi_gpu, no_cuda, oom, slow, vram_held
from cockpit.diagnose.candidate import ASSERT, ECHO, STATE, Candidate
from cockpit.diagnose.failure import (
    INNER,
    first_failure,
    is_end,
    is_own_end,
    place_of,
    shown,
)
from cockpit.diagnose.fixes import Repair, fill, render
from cockpit.diagnose.log_reader import Log, read
from cockpit.diagnose.tables import fixes_machine, fixes_memory, fixes_runs
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.diagnose.unknown import unknown
from cockpit.model.event import Severity
from cockpit.model.finding import Also, Evidence, Finding, Fix

FAMILIES = (oom, no_cuda, kernel_fault, multi_gpu, vram_held, slow)
REPAIRS: dict[str, Repair] = fixes_memory.REPAIRS | fixes_machine.REPAIRS | fixes_runs.REPAIRS
_WORDS = re.compile(r"\b[A-Za-z][a-z]{2,12}\b")
_HINT = re.compile(r"\s*(?:If reserved|See documentation|Compile with|For debugging).*$")
_RAISED = re.compile(r"raise [\w.]{1,80}\(f?[\"'](.{8,})[\"']\)?$")
_ECHOES = re.compile(r"Dist(?:Backend|Network|Store)Error|ChildFailed|EngineDead|SignalException")
"""Of the other ranks: what one of them met before may well have ended it."""
_NAME = re.compile(r"^[\w.]{1,80}(?:Error|Exception): ")


def diagnose(stream: BinaryIO) -> Finding:
    """Reads to the end. Never raises for what is in the stream."""
    return explain(read(stream))


def diagnose_rerun(stream: BinaryIO) -> Finding:
    """As :func:`diagnose`, of a run that was made to raise errors where they happen (with
    CUDA_LAUNCH_BLOCKING, on the CPU): what was raised first names the place."""
    log = read(stream)
    finding = explain(log)
    failed = first_failure(log)
    facts = place_of(log, failed) if failed is not None else {}
    return msgspec.structs.replace(finding, facts={**facts, **finding.facts})


def explain(log: Log) -> Finding:
    """The finding for a log that was read."""
    seen = [one for family in FAMILIES for one in family.find(log)]
    if not seen:
        return _without_cause(log)
    found = _that_ended_it(log, seen)
    if not found:
        failed = first_failure(log)
        return unknown(log, failed, _went_on(log, max(seen, key=_order)))
    best = max(found, key=_order)
    if best.weight <= STATE + 9 and best.cause != "recovered":
        failed = first_failure(log)
        if failed is not None and best.weight < STATE - 12:
            return unknown(log, failed)
        if failed is not None and failed != best.at and _is_other_failure(log, failed):
            return unknown(log, failed, best)
    return _finding(log, best, found)


def _order(one: Candidate) -> tuple[int, int]:
    """Among equals the first in the log wins."""
    return one.weight, -one.at


def _that_ended_it(log: Log, found: list[Candidate]) -> list[Candidate]:
    """Without errors and warnings that the run outlived, where another failure ended it later.

    A run that goes on after a warning and does not fail keeps it: it may be on the CPU all along.
    """
    passed = [one for one in found if ECHO <= one.weight < ASSERT and log.went_on_after(one.at)]
    failed = first_failure(log) if passed else None
    if (
        failed is None
        or not is_own_end(log.lines[failed])
        or _ECHOES.search(log.lines[failed].text)
    ):
        return found
    return [one for one in found if one not in passed or one.at >= failed]


def _went_on(log: Log, one: Candidate) -> Candidate:
    """For the words beside the failure: seen, and not what ended it."""
    why = f"seen in line {log.lines[one.at].number}; the run went on after it"
    return replace(one, why=why)


def _is_other_failure(log: Log, failed: int) -> bool:
    """It ended the log: what is slow or held did not end the run."""
    return is_end(log.lines[failed]) and not log.went_on_after(failed)


def _finding(log: Log, best: Candidate, found: list[Candidate]) -> Finding:
    cause = CAUSES[best.cause]
    facts = _clean(best.facts) | place_of(log, best.at)
    severity: Severity = cause.severity
    if facts.get("severity") == "warn":
        severity = "warning"
    gpu, pid = facts.get("gpu"), facts.get("pid")
    return Finding(
        flow=cause.flow,
        cause=best.cause,
        severity=severity,
        confidence=best.confidence,
        title=best.title or fill(cause.title, facts),
        explanation=" ".join(part for part in (best.why, fill(cause.explanation, facts)) if part),
        evidence=tuple(_evidence(log, best)),
        facts={name: value for name, value in facts.items() if name not in INNER},
        fixes=_fixes(best.cause, facts),
        also=_also(best, found),
        not_=best.not_,
        gpu=gpu if isinstance(gpu, int) else None,
        pid=pid if isinstance(pid, int) else None,
    )


def _fixes(cause: str, facts: dict[str, Any]) -> tuple[Fix, ...]:
    repair = REPAIRS.get(cause)
    if repair is None:
        return ()
    fixes = render(repair, facts)
    if facts.get("backend") != "hip":
        return fixes
    return tuple(
        Fix(
            title=one.title,
            kind=one.kind,
            value="amd-smi process  # or rocm-smi --showpids",
            risk=one.risk,
            why="names every process with memory on an AMD GPU",
            loses=one.loses,
            verify=one.verify,
        )
        if one.value.startswith("nvidia-smi")
        else one
        for one in fixes
    )


def _also(best: Candidate, found: list[Candidate]) -> tuple[Also, ...]:
    named = dict(best.also)
    for other in sorted(found, key=lambda one: (-one.weight, one.at)):
        near = other.weight >= max(best.weight - 12, STATE)
        if near and other.cause not in (best.cause, "benign") and other.cause not in named:
            line = other.at
            named[other.cause] = other.why or f"see line {line + 1}"
    return tuple(Also(cause=cause, why=why) for cause, why in list(named.items())[:3])


def _clean(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _message(log: Log, index: int) -> tuple[int | None, str]:
    """What a rank's line says, without the exception's name or a source line's quotes."""
    text = _text(log, index)
    quoted = _RAISED.match(text)
    return log.lines[index].rank, quoted[1] if quoted else _NAME.sub("", text)


def _text(log: Log, index: int) -> str:
    return log.lines[index].text.strip()


def _evidence(log: Log, best: Candidate) -> Iterator[Evidence]:
    indices = dict.fromkeys((best.at, *best.lines))
    told: dict[tuple[int | None, str], int] = {}
    # ``raise Error("text")`` of a traceback says what the error then says.
    for index in sorted(indices, key=lambda one: _RAISED.match(_text(log, one)) is not None):
        told.setdefault(_message(log, index), index)
    for index in indices:
        line = log.lines[index]
        if told[_message(log, index)] != index:
            continue
        if text := _HINT.sub("", line.text.strip()) or line.text.strip():
            yield Evidence(text=shown(line, text), line=line.number, source="log")


def _without_cause(log: Log) -> Finding:
    failed = first_failure(log)
    if failed is None:
        failed = kernel_fault.unexplained(log)
    if failed is not None:
        return unknown(log, failed)
    if _ended_well(log):
        return _benign("The run ended with status 0", 0.7, {"exit_status": 0})
    if not _reads_like_a_log(log):
        return unknown(log, None)
    confidence = 0.7 if any(line.is_progress for line in log.lines[-200:]) else 0.5
    return _benign("Nothing failed in this log", confidence, {})


def _ended_well(log: Log) -> bool:
    """The line that a kept run's record adds says so."""
    return bool(log.lines) and log.lines[-1].text.strip() == "[exit status 0]"


def _benign(title: str, confidence: float, facts: dict[str, Any]) -> Finding:
    return Finding(
        flow="kernel-fault",
        cause="benign",
        severity="info",
        confidence=confidence,
        title=title,
        explanation="No error, no warning about the GPU and no failed process was found.",
        facts={"severity": "info", **facts},
    )


def _reads_like_a_log(log: Log) -> bool:
    text = log.text[:200_000]
    if not text.strip():
        return False
    if "\ufffd" in text and text.count("\ufffd") * 20 > len(text):
        return False
    words = sum(len(word) for word in _WORDS.findall(text))
    return words * 4 >= len(text) or sum(1 for line in log.lines if line.is_progress) >= 2
