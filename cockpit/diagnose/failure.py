"""What ended a run, where no family knows it: the line that says so, and the user's own frames."""

from __future__ import annotations

import re
from typing import Any

from cockpit.diagnose.log_reader import Line, Log

EXCEPTION = re.compile(
    r"^\s*(?:E\s+)?(?:[\w.]{1,80}\.)?(?:[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)"
    r"|Exception)\b(?:[:(]|$)"
)
_FAILED = re.compile(
    r"Traceback \(most recent|\bFAILED\b|Segmentation fault|core dumped|\bAborted\b|\bKilled\b"
    r"|Fatal Python error|\bFATAL\b|terminate called|exit(?:ed with)?(?: status| code)?:? "
    r"[1-9]\d{0,2}\b"
    r"|exitcode\s*: -?[1-9]|\[the run was ended by SIG(?!INT\b)"
    r"|\b(?:[A-Z]\w{1,60})?Error: ",
)
_COMPLAINT = re.compile(
    r"(?:^|[\w.)\]]: )(?:fatal )?error: (?!\s*(?:[-+\d.]|nan\b|none\b|no\b))"
    r"|\bcan't open file\b|: command not found\b|\bout of memory\b"
    r"|\berror (?:loading|opening|reading|running|while)\b|\bunable to allocate\b"
    r"|^\S{1,80}: \S{1,300}: No such file or directory$",
    re.IGNORECASE,
)
"""How programs of the shell and of C++ say that they failed, where no steps follow."""
INNER = frozenset(
    ("command", "companions", "half_batch", "attention", "collective", "holds_self", "only_signal")
)
"""Facts for the rows of the fixes only."""
SEGFAULT = re.compile(
    r"Segmentation fault|\bSIGSEGV\b|exitcode\s*: -11\b"
    r"|\bexit(?:ed with)?(?: status| code)?:? 139\b"
)
_RUN_ENDED = re.compile(r"\[the run was ended by SIG|\[exit status [1-9]")
"""The line that a kept run's record adds (RunRecord.log)."""
_TOLD_TO_END = re.compile(
    r"\[the run was ended by SIG(?:TERM|INT|HUP)\b|\[exit status (?:130|143|129)\]"
)
"""By a person or a scheduler, which may have seen that something was wrong."""
_CAUGHT = re.compile(r"\bCaught (?P<name>[\w.]{1,80}) in \w")
_BOILER = re.compile(r"/site-packages/|/dist-packages/|/torch/|<frozen|/lib/python\d|\.pyx$")
_ENVIRONMENT = re.compile(
    r"(/[^\s\"':]{1,300}?)/(?:lib(?:64)?/python3[\d.]*/(?:site|dist)-packages/torch/"
    r"|bin/python[\d.]*: )"
)
"""Of a traceback through torch, or of the interpreter's own complaint."""
_TRACEBACK_LINES = 120
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})')
_EVALUATES = re.compile(
    r", in _*(?:(?:run|do|maybe)_)?(?:eval|valid)\w*$|, in test_(?:step|epoch|loop)$"
    r"|/evaluation_loop\.py\""
)
"""A frame of an evaluation, of the user's or of a trainer's."""
_COMMAND = re.compile(
    r"(?:^|\n)[^\n]{0,60}?[$#>] ((?:python\d?|torchrun|accelerate|srun)\b[^\n]{1,300})"
)


def first_failure(log: Log) -> int | None:
    """The first exception that nothing followed; else the first word of a failure."""
    word = complaint = None
    stopped = "KeyboardInterrupt" in log.text
    for index, line in enumerate(log.lines):
        if stopped and ("KeyboardInterrupt" in line.text or "Traceback" in line.text):
            continue  # Ctrl-C is no failure
        if "[exit status 130]" in line.text:
            continue  # nor is it for a shell
        if EXCEPTION.match(line.text) and not log.went_on_after(index):
            return index
        if word is None and _FAILED.search(line.text):
            word = index
        if complaint is None and _COMPLAINT.search(line.text) and not log.went_on_after(index):
            complaint = index
    return complaint if word is None else word


def is_own_end(line: Line) -> bool:
    """It says that the program failed by itself: nobody told it to end."""
    return is_end(line) and not _TOLD_TO_END.search(line.text)


def is_end(line: Line) -> bool:
    """It says that the process ended, and badly: what is slow or held did not end it."""
    return any(one.search(line.text) for one in (EXCEPTION, SEGFAULT, _RUN_ENDED))


def real_failure(log: Log, index: int) -> int:
    """The exception itself, where the line only begins a traceback or wraps another process's.

    A worker's exception is raised again in its parent: its own line and traceback come below.
    """
    while (inner := _inner_failure(log, index)) is not None:
        index = inner
    return index


def _inner_failure(log: Log, index: int) -> int | None:
    line = log.lines[index]
    caught = _CAUGHT.search(line.text)
    if caught is None and "Traceback (most recent" not in line.text:
        return None
    depth = _indent(line)
    for later in range(index + 1, min(len(log.lines), index + 2 * _TRACEBACK_LINES)):
        other = log.lines[later]
        if other.rank != line.rank or "Traceback (most recent" in other.text:
            continue
        if caught is not None and other.text.strip().startswith(f"{caught['name']}:"):
            return later
        if caught is None and _indent(other) <= depth:
            return later
    return None


def _indent(line: Line) -> int:
    return len(line.text) - len(line.text.lstrip())


def place_of(log: Log, index: int) -> dict[str, Any]:
    """The user's own frames of the failure's traceback, and the command that was typed.

    ``frames`` in the order of the traceback; ``place`` is the last, innermost one. A message of a
    kernel comes before the traceback that it led to, an exception at the end of its own.
    ``evaluates``: it happened in an evaluation. ``environment``: the run's Python is of that one.
    """
    own = _frames_above(log, index) or _frames_below(log, index) or _frames_of_crash(log, index)
    facts: dict[str, Any] = {}
    if own:
        facts["place"], facts["frames"] = own[-1], own
    if _in_evaluation(log, index):
        facts["evaluates"] = True
    environment = environment_of(log.text)
    if environment is not None:
        facts["environment"] = environment
    command = _COMMAND.search(log.text)
    facts["command"] = command[1].strip() if command else "python <script>"
    return facts


def environment_of(text: str) -> str | None:
    """``/home/me/venv``, where the text has a path of its torch or its interpreter."""
    found = _ENVIRONMENT.search(text)
    return found[1] if found else None


def _in_evaluation(log: Log, index: int) -> bool:
    """A frame of the traceback that ends in the line says so."""
    for line in reversed(log.lines[max(0, index - _TRACEBACK_LINES) : index]):
        if line.rank != log.lines[index].rank:
            continue
        if "Traceback (most recent" in line.text:
            return False
        if _EVALUATES.search(line.text):
            return True
    return False


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
        elif inside and EXCEPTION.match(line.text):
            break
        elif inside:
            own += _own_frame(line)
    return own


def _frames_of_crash(log: Log, index: int) -> list[str]:
    """What faulthandler printed: the innermost frame comes first there."""
    own: list[str] = []
    inside = False
    for line in log.lines[index + 1 : index + 1 + _TRACEBACK_LINES]:
        if "(most recent call first)" in line.text:
            if own:
                break
            inside = True
        elif inside:
            own += _own_frame(line)
    return own[::-1]


def _own_frame(line: Line) -> list[str]:
    frame = _FRAME.search(line.text)
    if frame is None or _BOILER.search(frame["file"]):
        return []
    return [f"{frame['file']}:{frame['line']}"]


def shown(line: Line, text: str) -> str:
    """With the rank that printed it, as evidence has it."""
    prefix = f"[rank {line.rank}] " if line.rank is not None else ""
    return prefix + shortened(text, 400)


def shortened(text: str, width: int) -> str:
    """Cut between words where there are any; "…" says so."""
    if len(text) <= width:
        return text
    cut = text[:width].rpartition(" ")[0]
    return (cut if len(cut) > width // 2 else text[: width - 1]).rstrip(" ,;:.") + "…"
