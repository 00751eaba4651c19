"""Runs one of ``probes/`` in a job's interpreter, as its owner, and reads what it tells in time.

What comes back is foreign: sizes are bounded, values are checked against the fact structs.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cockpit import as_owner
from cockpit.as_owner import Owner
from cockpit.model.checkup_facts import Child
from cockpit.model.text import clean

T = TypeVar("T")

MARK = b"cockpit-probe "
ANSWER_LIMIT_BYTES = 1 << 20
"""More than that is no answer."""
WORDS_KEPT_BYTES = 4096
AFTER_END_S = 0.5
"""A grandchild that holds the pipe open is not waited for longer than that."""
ORPHAN_S = 5.0
"""An interpreter that outlives us is ended by `timeout` that much after its limit."""
_PROBES = Path(__file__).parent / "probes"
_BOOT = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "exec(compile(sys.stdin.buffer.read(), '<cockpit probe>', 'exec', dont_inherit=True))"
)
"""Python puts the working directory first on the module path, and that is anybody's folder: a
``json.py`` that lies there would run as us. PYTHONPATH's and the environment's entries stay.
"""
_LISTS = ("small",)


@dataclass
class Answer:
    """What a probe told before it ended or was cut off."""

    facts: dict[str, Any] = field(default_factory=dict)
    child: Child = field(default_factory=Child)
    took_s: float = 0.0

    def into(self, kind: type[T]) -> T | None:
        """The facts as a struct; None, and a failure of the child, where they do not fit."""
        try:
            return msgspec.convert(self.facts, kind)
        except msgspec.ValidationError as error:
            failure = f"It answered what cannot be read: {clean(str(error))}."
            self.child = msgspec.structs.replace(self.child, failure=failure)
            return None


def ask(
    name: str,
    python: str,
    owner: Owner,
    *,
    environment: Mapping[str, str],
    cwd: str,
    arguments: Sequence[str] = (),
    limit_s: float,
) -> Answer:
    """Blocks for ``limit_s`` and a little more at most. Never raises for what the child does."""
    began = time.monotonic()
    argv = [*_bounded(limit_s), python, "-B", "-c", _BOOT, *arguments]
    try:
        child = as_owner.start(
            argv, owner, environment=environment, cwd=cwd, stderr=subprocess.PIPE
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in a foreign environment
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Answer(child=Child(failure=f"It cannot be run: {why}."))
    try:
        out, words, in_time = _converse(child, (_PROBES / f"{name}.py").read_bytes(), limit_s)
    finally:
        _end(child)
    answer = _understood(out, words, child.returncode, None if in_time else limit_s)
    answer.took_s = time.monotonic() - began
    return answer


def _bounded(limit_s: float) -> list[str]:
    """In front of the interpreter: if we are killed, it must not hang on for ever."""
    program = shutil.which("timeout", path="/usr/bin:/bin")
    return [program, "-s", "KILL", f"{limit_s + ORPHAN_S:g}"] if program else []


def _converse(
    child: subprocess.Popen[bytes], program: bytes, limit_s: float
) -> tuple[bytes, bytes, bool]:
    """What it wrote to stdout and stderr, and whether it ended by itself in time."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    with suppress(OSError):  # it ended without reading
        child.stdin.write(program)  # fits into the pipe: does not block
        child.stdin.flush()
    with suppress(OSError):
        child.stdin.close()
    pieces: dict[int, bytearray] = {child.stdout.fileno(): bytearray()}
    out = child.stdout.fileno()
    pieces[child.stderr.fileno()] = bytearray()
    words = child.stderr.fileno()
    in_time = _listen(child, pieces, words, limit_s)
    return bytes(pieces[out]), bytes(pieces[words]), in_time


def _listen(
    child: subprocess.Popen[bytes], pieces: dict[int, bytearray], words: int, limit_s: float
) -> bool:
    end, open_ends = time.monotonic() + limit_s, set(pieces)
    while open_ends:
        left = end - time.monotonic()
        if left <= 0:
            return False
        ended = _has_ended(child)
        ready = select.select(list(open_ends), [], [], AFTER_END_S if ended else min(left, 0.2))[0]
        if ended and not ready:
            return True  # somebody else holds the pipe
        for one in ready:
            piece = os.read(one, 65536)
            pieces[one] += piece
            if not piece:
                open_ends.discard(one)
        del pieces[words][:-WORDS_KEPT_BYTES]
        if any(len(piece) > ANSWER_LIMIT_BYTES for piece in pieces.values()):
            return True
    while not _has_ended(child):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Without reaping it: as long as it is a zombie, nobody else can have its process group."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Its whole process group; one that the kernel holds is left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(1.0)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _understood(out: bytes, words: bytes, status: int | None, cut_off_s: float | None) -> Answer:
    facts: dict[str, Any] = {}
    for line in out.splitlines():
        _, mark, rest = line.partition(MARK)
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(rest) if mark else None
            if isinstance(told, dict):
                _merge(facts, told)
    begun = facts.pop("begun", None)
    doing = clean(begun)[:200] if isinstance(begun, str) else None
    said = words.decode("utf-8", "replace").strip()
    failure = _failure(facts, out, status, cut_off_s, doing)
    return Answer(facts, Child(failure=failure, cut_off_s=cut_off_s, begun=doing, words=said))


def _merge(facts: dict[str, Any], told: dict[str, Any]) -> None:
    for name, value in told.items():
        if name in _LISTS and isinstance(value, list) and isinstance(facts.get(name), list):
            facts[name] += value
        else:
            facts[name] = value


def _failure(
    facts: dict[str, Any],
    out: bytes,
    status: int | None,
    cut_off_s: float | None,
    doing: str | None,
) -> str | None:
    during = f" while {doing}" if doing else ""
    if cut_off_s is not None:
        return f"It did not answer within {cut_off_s:g} s and was cut off{during}."
    if status is not None and (status < 0 or status in (124, 137)):
        return f"It was ended by {_signal_name(status)}{during}."
    if status not in (0, None):
        return f"It ended with status {status}{during}."
    if not facts:
        first = clean(out[:200].decode("utf-8", "replace").strip())
        return f"It answered something else: {first}" if first else "It ended without a word."
    return None


def _signal_name(status: int) -> str:
    """`timeout` ends by the signal of its child, or says 128 + number."""
    number = -status if status < 0 else status - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
