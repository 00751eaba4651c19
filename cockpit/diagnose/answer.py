"""One log → one Finding: which candidate wins, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from cockpit.diagnose import kernel_fault, multi_gpu, no_cuda, oom, slow, vram_held
from cockpit.diagnose.candidate import STATE, Candidate, search
from cockpit.diagnose.fixes import Repair, fill, render
from cockpit.diagnose.log_reader import Line, Log, read
from cockpit.diagnose.tables import fixes_machine, fixes_memory, fixes_runs
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.model.event import Severity
from cockpit.model.finding import Also, Evidence, Finding, Fix

FAMILIES = (oom, no_cuda, kernel_fault, multi_gpu, vram_held, slow)
REPAIRS: dict[str, Repair] = fixes_memory.REPAIRS | fixes_machine.REPAIRS | fixes_runs.REPAIRS
_EXCEPTION = re.compile(
    r"^\s*(?:E\s+)?(?:[\w.]{1,80}\.)?(?:[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)"
    r"|Exception)\b(?:[:(]|$)"
)
_FAILED = re.compile(
    r"Traceback \(most recent|\bFAILED\b|Segmentation fault|core dumped|\bAborted\b|\bKilled\b"
    r"|Fatal Python error|\bFATAL\b|terminate called|exit(?:ed with)?(?: status| code)?:? "
    r"[1-9]\d{0,2}\b"
    r"|exitcode\s*: -?[1-9]"
    r"|\b(?:[A-Z]\w{1,60})?Error: ",
)
_WORDS = re.compile(r"\b[A-Za-z][a-z]{2,12}\b")
_HINT = re.compile(r"\s*(?:If reserved|See documentation|Compile with|For debugging).*$")
_BOILER = re.compile(r"/site-packages/|/dist-packages/|/torch/|<frozen|/lib/python\d|\.pyx$")
_TRACEBACK_LINES = 120
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})')
_COMMAND = re.compile(
    r"(?:^|\n)[^\n]{0,60}?[$#>] ((?:python\d?|torchrun|accelerate|srun)\b[^\n]{1,300})"
)


def diagnose(stream: BinaryIO) -> Finding:
    """Reads to the end. Never raises for what is in the stream."""
    return explain(read(stream))


def diagnose_rerun(stream: BinaryIO) -> Finding:
    """As :func:`diagnose`, of a run that was made to raise errors where they happen (with
    CUDA_LAUNCH_BLOCKING, on the CPU): what was raised first names the place."""
    log = read(stream)
    finding = explain(log)
    failed = _first_failure(log)
    place = _place(log, failed) if failed is not None else {}
    return msgspec.structs.replace(finding, facts={**place, **finding.facts})


def explain(log: Log) -> Finding:
    """The finding for a log that was read."""
    found = [one for family in FAMILIES for one in family.find(log)]
    if not found:
        return _without_cause(log)
    best = max(found, key=lambda one: (one.weight, -one.at))
    if best.weight < STATE - 12 and best.cause != "recovered" and (failed := _first_failure(log)):
        return _unknown(log, failed)
    if best.weight <= STATE + 9 and best.cause != "recovered":
        failed = _first_failure(log)
        if failed is not None and _is_other_failure(log, failed):
            return _unknown(log, failed, best)
    return _finding(log, best, found)


def _is_other_failure(log: Log, failed: int) -> bool:
    """A traceback ended the log: what is slow or held did not end the run."""
    return _EXCEPTION.match(log.lines[failed].text) is not None and not log.went_on_after(failed)


def _finding(log: Log, best: Candidate, found: list[Candidate]) -> Finding:
    cause = CAUSES[best.cause]
    facts = _clean(best.facts) | _place(log, best.at)
    severity: Severity = cause.severity
    if facts.get("severity") == "warn":
        severity = "warning"
    gpu, pid = facts.get("gpu"), facts.get("pid")
    return Finding(
        flow=cause.flow,
        cause=best.cause,
        severity=severity,
        confidence=best.confidence,
        title=fill(cause.title, facts),
        explanation=" ".join(part for part in (best.why, fill(cause.explanation, facts)) if part),
        evidence=tuple(_evidence(log, best)),
        facts={name: value for name, value in facts.items() if name not in _INNER},
        fixes=_fixes(best.cause, facts),
        also=_also(best, found),
        not_=best.not_,
        gpu=gpu if isinstance(gpu, int) else None,
        pid=pid if isinstance(pid, int) else None,
    )


_INNER = frozenset({"command", "companions", "half_batch", "attention", "collective", "holds_self"})


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


def _place(log: Log, index: int) -> dict[str, Any]:
    """The user's own frames of the failure's traceback, and the command that was typed.

    ``frames`` in the order of the traceback; ``place`` is the last, innermost one. A message of a
    kernel comes before the traceback that it led to, an exception at the end of its own.
    """
    own = _frames_above(log, index) or _frames_below(log, index)
    facts: dict[str, Any] = {}
    if own:
        facts["place"], facts["frames"] = own[-1], own
    command = _COMMAND.search(log.text)
    facts["command"] = command[1].strip() if command else "python <script>"
    return facts


def _frames_above(log: Log, index: int) -> list[str]:
    own: list[str] = []
    for line in reversed(log.lines[max(0, index - _TRACEBACK_LINES) : index]):
        if line.rank != log.lines[index].rank:
            continue
        own += _own_frame(line)
        if "Traceback (most recent" in line.text:
            return own[::-1]
    return own[::-1]


def _frames_below(log: Log, index: int) -> list[str]:
    """Of the first traceback that follows, up to its exception."""
    own: list[str] = []
    inside = False
    for line in log.lines[index + 1 : index + 1 + 2 * _TRACEBACK_LINES]:
        if line.rank != log.lines[index].rank:
            continue
        if "Traceback (most recent" in line.text:
            if inside:
                break
            inside = True
        elif inside and _EXCEPTION.match(line.text):
            break
        elif inside:
            own += _own_frame(line)
    return own


def _own_frame(line: Line) -> list[str]:
    frame = _FRAME.search(line.text)
    if frame is None or _BOILER.search(frame["file"]):
        return []
    return [f"{frame['file']}:{frame['line']}"]


def _evidence(log: Log, best: Candidate) -> Iterator[Evidence]:
    for index in dict.fromkeys((best.at, *best.lines)):
        line = log.lines[index]
        if text := _HINT.sub("", line.text.strip()) or line.text.strip():
            yield Evidence(text=_shown(line, text), line=line.number, source="log")


def _shown(line: Line, text: str) -> str:
    prefix = f"[rank {line.rank}] " if line.rank is not None else ""
    return prefix + (text if len(text) <= 400 else text[:399] + "…")


def _first_failure(log: Log) -> int | None:
    """The first exception that nothing followed; else the first word of a failure."""
    word = None
    stopped = "KeyboardInterrupt" in log.text
    for index, line in enumerate(log.lines):
        if stopped and ("KeyboardInterrupt" in line.text or "Traceback" in line.text):
            continue  # Ctrl-C is no failure
        if _EXCEPTION.match(line.text) and not log.went_on_after(index):
            return index
        if word is None and _FAILED.search(line.text):
            word = index
    return word


def _without_cause(log: Log) -> Finding:
    failed = _first_failure(log)
    if failed is not None:
        return _unknown(log, failed)
    if not _reads_like_a_log(log):
        return _unknown(log, None)
    return Finding(
        flow="kernel-fault",
        cause="benign",
        severity="info",
        confidence=0.7 if any(line.is_progress for line in log.lines[-200:]) else 0.5,
        title="Nothing failed in this log",
        explanation="No error, no warning about the GPU and no failed process was found.",
        facts={"severity": "info"},
    )


def _reads_like_a_log(log: Log) -> bool:
    text = log.text[:200_000]
    if not text.strip():
        return False
    if "\ufffd" in text and text.count("\ufffd") * 20 > len(text):
        return False
    words = sum(len(word) for word in _WORDS.findall(text))
    return words * 4 >= len(text) or sum(1 for line in log.lines if line.is_progress) >= 2


def _unknown(log: Log, failed: int | None, other: Candidate | None = None) -> Finding:
    cause = CAUSES["unknown"]
    evidence: tuple[Evidence, ...] = ()
    facts: dict[str, Any] = {}
    title = "No known cause in this log"
    if failed is not None:
        line = log.lines[failed]
        evidence = (Evidence(text=_shown(line, line.text.strip()), line=line.number, source="log"),)
        facts = _place(log, failed) | {"fatal": line.text.strip()[:200], "fatal_line": line.number}
        if line.rank is not None:
            facts["rank"] = line.rank
        title = f"It failed, and the cause is none that is known: {line.text.strip()[:120]}"
    also = (Also(cause=other.cause, why=other.why or "seen in the same log"),) if other else ()
    return Finding(
        flow=cause.flow,
        cause="unknown",
        severity="error" if failed is not None else "info",
        confidence=0.0,
        title=title,
        explanation=f"{cause.explanation} {_collect(log)}",
        evidence=evidence,
        facts={name: value for name, value in facts.items() if name not in _INNER},
        fixes=_collecting(),
        also=also,
    )


def _collect(log: Log) -> str:
    if search(log, r"rank ?\d|NCCL|torchrun") and log.size_bytes:
        return "Collect the first error of each rank, not the last one of the launcher."
    return "Collect more and ask again."


def _collecting() -> tuple[Fix, ...]:
    return (
        Fix(
            title="Keep the whole output of the next run",
            kind="command",
            value="cockpit run -- <command>",
            risk="safe",
            why="the first error of all ranks is often above what was copied",
            loses="nothing",
            verify="cockpit diagnose --pid <pid> reads it",
        ),
        Fix(
            title="Look into the kernel log",
            kind="command",
            value="journalctl -k -b --no-pager | grep -E 'Xid|NVRM|Out of memory|oom-kill'",
            risk="safe",
            why="a process that the kernel or the driver ended leaves no traceback",
            loses="nothing",
            verify="an Xid or an oom-kill line of the same minute",
        ),
    )
