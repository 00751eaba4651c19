"""``cockpit diagnose``: what a failed run printed → its cause, the evidence, the fixes in order."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from cockpit import diagnose as room
from cockpit.attach import run_record
from cockpit.errors import TargetGoneError, UsageError
from cockpit.model.finding import Finding, Fix
from cockpit.model.text import clean, words
from cockpit.paths import state_directory

WIDTH = 96
_RISKS = {"safe": "", "confirm": "changes something", "admin": "for the administrator"}


def run(file: str | None, *, pid: int | None, json: bool) -> int:
    """0 when a cause was found or nothing failed, else 1. Raises UsageError, TargetGoneError."""
    if file is not None and pid is not None:
        raise UsageError("Either a file or --pid, not both.")
    with _open(file, pid) as stream:
        finding = room.diagnose(stream)
    if json:
        sys.stdout.write(msgspec.json.encode(finding).decode() + "\n")
    else:
        sys.stdout.write("\n".join(lines(finding)) + "\n")
    return 1 if finding.cause == "unknown" else 0


def _open(file: str | None, pid: int | None) -> BinaryIO:
    if pid is not None:
        return io.BytesIO(_kept_output(pid))
    if file is None or file == "-":
        if file is None and sys.stdin.isatty():
            raise UsageError("Which log? cockpit diagnose FILE, or: ... 2>&1 | cockpit diagnose -")
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return open(file, "rb")
    except IsADirectoryError as error:
        raise UsageError(f"{clean(file)} is a directory: name the log itself.") from error
    except OSError as error:
        raise TargetGoneError(f"{clean(file)}: {error.strerror}.") from error


def _kept_output(pid: int) -> bytes:
    folder = state_directory(os.environ)
    if folder is not None:
        record = run_record.record_of(str(folder), pid)
        if record is not None:
            return record.log()
    raise TargetGoneError(
        f"No output of process {pid} is kept: only that of runs started with `cockpit run` is. "
        "Give the file that it wrote: cockpit diagnose FILE."
    )


def lines(finding: Finding) -> list[str]:
    """As text: the cause first, then why, then what to do."""
    out = [clean(finding.title)]
    if finding.cause not in ("unknown", "benign"):
        out += [f"  {finding.flow} · {words(finding.cause)}, {finding.confidence:.0%} sure"]
    out += [""]
    out += _wrap(finding.explanation, "  ")
    for one in finding.evidence:
        where = f"line {one.line}: " if one.line is not None else ""
        out += _wrap(where + one.text, "  > ", "    ")
    for sentence in finding.not_:
        out += _wrap(sentence, "  ")
    if finding.fixes:
        out += ["", "What to do, in this order:"]
        checks = {fix.verify for fix in finding.fixes}
        for number, fix in enumerate(finding.fixes, 1):
            out += _fix(number, fix, own_check=len(checks) > 1)
        if len(checks) == 1:
            out += ["", *_wrap(checks.pop(), "It is repaired when: ", "  ")]
    if finding.also:
        out += ["", "It could also be:"]
        for other in finding.also:
            out += _wrap(f"{words(other.cause)}: {other.why}", "  ", "    ")
    return out


def _fix(number: int, fix: Fix, own_check: bool) -> Iterator[str]:
    risk = f"  [{_RISKS[fix.risk]}]" if _RISKS[fix.risk] else ""
    yield f"  {number}. {clean(fix.title)}{risk}"
    yield f"       {clean(fix.value)}"
    yield from _wrap(fix.why, "     why: ", "          ")
    if fix.loses != "nothing":
        yield from _wrap(fix.loses, "     loses: ", "          ")
    if own_check:
        yield from _wrap(fix.verify, "     check: ", "          ")


def _wrap(text: str, first: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        clean(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_on_hyphens=False,
    )
