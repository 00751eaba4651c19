"""A log without a known cause: what it says all the same, and what to collect."""

from __future__ import annotations

import re
from typing import Any

from cockpit.diagnose.candidate import Candidate, search
from cockpit.diagnose.failure import (
    EXCEPTION,
    INNER,
    SEGFAULT,
    place_of,
    real_failure,
    shortened,
    shown,
)
from cockpit.diagnose.kernel_fault import xid_in
from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.diagnose.tables.plain import plain_of
from cockpit.model.finding import Also, Evidence, Finding, Fix
from cockpit.model.xid import explain

_TITLE_ROOM = 120
_STATUS = re.compile(r"\[exit status (\d+)\]")
"""What a run record adds (run_record.log)."""
_DEVICE_WORDS = re.compile(
    r"CUDA|NCCL|NVRM|\bXid\b|\bGPU|\bHIP\b|cublas|cudnn|driver|Gloo|killed by signal|exited unexp",
    re.IGNORECASE,
)
"""Of an exception that may come from the GPU, its libraries, or a process that ended."""
_KEEP = Fix(
    title="Keep the whole output of the next run",
    kind="command",
    value="cockpit run -- <command>",
    risk="safe",
    why="the first error of all ranks is often above what was copied",
    loses="nothing",
    verify="cockpit diagnose --pid <pid> reads it",
)
_KERNEL_LOG = Fix(
    title="Look into the kernel log",
    kind="command",
    value="journalctl -k -b --no-pager | grep -E 'Xid|NVRM|Out of memory|oom-kill'",
    risk="safe",
    why="a process that the kernel or the driver ended leaves no traceback",
    loses="nothing",
    verify="an Xid or an oom-kill line of the same minute",
)
_FAULTHANDLER = Fix(
    title="Let the next run print its stacks when it crashes",
    kind="env",
    value="PYTHONFAULTHANDLER=1",
    risk="safe",
    why="as `python -X faulthandler`: names the Python line that called the native code",
    loses="nothing",
    verify='the output has "Fatal Python error" and the stacks of all threads',
)
_CORE_DUMP = Fix(
    title="Look at the core dump",
    kind="command",
    value="coredumpctl info   # none kept: ulimit -c unlimited, then gdb <python> <core>",
    risk="safe",
    why="the native stack names the library that crashed",
    loses="nothing",
    verify="the first frames are in one library",
)
_LIBRARIES = Fix(
    title="Look for CUDA libraries of two origins",
    kind="command",
    value="echo $LD_LIBRARY_PATH; ldd $(python -c 'import torch; print(torch._C.__file__)') "
    "| grep -iE 'cuda|cublas|cudnn|nccl'",
    risk="safe",
    why="a library of another CUDA, or an extension built for another torch, crashes so",
    loses="nothing",
    verify="all of them are below the environment's own directory",
)


def unknown(log: Log, failed: int | None, other: Candidate | None = None) -> Finding:
    """``failed``: the line that says so; ``other``: what was seen as well, and did not end it."""
    if failed is None:
        return _nothing_said(log)
    failed = real_failure(log, failed)
    line = log.lines[failed]
    text = line.text.strip()
    facts = place_of(log, failed) | {"fatal": text[:200], "fatal_line": line.number}
    if line.rank is not None:
        facts["rank"] = line.rank
    place = facts.get("place")
    crashed = SEGFAULT.search(text) is not None
    title = _title(text, place, crashed)
    also = (Also(cause=other.cause, why=other.why or "seen in the same log"),) if other else ()
    return Finding(
        flow=CAUSES["unknown"].flow,
        cause="unknown",
        severity="error",
        confidence=0.0,
        title=title,
        explanation=_explanation(log, text, crashed),
        evidence=(*_frame(log, failed, place), _said(log, failed)),
        facts={name: value for name, value in facts.items() if name not in INNER},
        fixes=_crash_fixes(place) if crashed else _fixes(text, place),
        also=also,
    )


def _nothing_said(log: Log) -> Finding:
    empty = not log.text.strip()
    cause = CAUSES["unknown"]
    return Finding(
        flow=cause.flow,
        cause="unknown",
        severity="info",
        confidence=0.0,
        title="The file is empty" if empty else "No known cause in this log",
        explanation="There is nothing in it to diagnose."
        if empty
        else f"{cause.explanation} {_collect(log)}",
        facts={},
        fixes=(_KEEP,) if empty else (_KEEP, _KERNEL_LOG),
    )


def _title(text: str, place: str | None, crashed: bool) -> str:
    where = f" ({place})" if place else ""
    if crashed:
        return f"It crashed in native code: segmentation fault{where}"
    if status := _STATUS.fullmatch(text):
        return f"It ended with status {status[1]}, and its output does not say why"
    short = shortened(text.rstrip(" ."), _TITLE_ROOM)
    if EXCEPTION.match(text):
        return short + where
    return f"It failed, and the cause is not known: {short}{where}"


def _said(log: Log, index: int) -> Evidence:
    line = log.lines[index]
    return Evidence(text=shown(line, line.text.strip()), line=line.number, source="log")


def _frame(log: Log, failed: int, place: Any) -> tuple[Evidence, ...]:
    """The user's own line, where the traceback has one above the error."""
    if not isinstance(place, str):
        return ()
    file, _, number = place.rpartition(":")
    frame = f'File "{file}", line {number}'
    for index in range(failed - 1, max(-1, failed - 200), -1):
        if frame in log.lines[index].text:
            return (_said(log, index),)
    return ()


def _explanation(log: Log, text: str, crashed: bool) -> str:
    """What is known of the message, where it is a usual one; else what to collect."""
    if (xid := xid_in(text)) is not None:
        known = explain(xid)
        return f"Xid {xid}: {known.meaning}; {known.hint}."
    if not crashed and (plain := plain_of(text)) is not None:
        return plain.words
    return f"{CAUSES['unknown'].explanation} {_advice(log, text, crashed)}"


def _advice(log: Log, text: str, crashed: bool) -> str:
    if crashed:
        return "The stacks of the crash, Python's and the native ones, tell more."
    if _is_plain(text):
        return "The exception does not speak of the GPU: look at the line that raised it first."
    return _collect(log)


def _is_plain(text: str) -> bool:
    return EXCEPTION.match(text) is not None and not _DEVICE_WORDS.search(text)


def _collect(log: Log) -> str:
    if search(log, r"rank ?\d|NCCL|torchrun") and log.size_bytes:
        return "Collect the first error of each rank, not the last one of the launcher."
    return "Collect more and ask again."


def _crash_fixes(place: str | None) -> tuple[Fix, ...]:
    return (*(() if place else (_FAULTHANDLER,)), _CORE_DUMP, _LIBRARIES, _KEEP)


def _fixes(text: str, place: str | None) -> tuple[Fix, ...]:
    plain = plain_of(text)
    if plain is not None and xid_in(text) is None:
        return (*plain.fixes, *((_look(text, place),) if place else ()), _KEEP)
    if not _is_plain(text):
        return (_KEEP, _KERNEL_LOG)
    if place is None:
        return (_KEEP,)
    return (_look(text, place), _KEEP)


def _look(text: str, place: str) -> Fix:
    return Fix(
        title="Look at the line that raised it",
        kind="code-change",
        value=place,
        risk="safe",
        why=shortened(text, _TITLE_ROOM),
        loses="nothing",
        verify="the next run passes this line",
    )
