"""One snapshot or one answer from an engine, within a time that a person waits."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from cockpit.engine.link import Link
from cockpit.engine.protocol import EngineOptions, Message, Progress, Reply, Tick
from cockpit.errors import CockpitError, LinkError, NoDriverError
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean
from cockpit.paths import state_directory
from cockpit.settings import Settings

PATIENCE_S = 8.0
"""The engine's own answer takes 2.8 s at most; an overloaded machine gets it late, but gets it."""


def open_link(settings: Settings, *, complete: bool = False) -> Link:
    """An engine for these settings; its stderr goes to the state directory where that exists."""
    options = EngineOptions(
        interval_s=settings.interval_s,
        only=settings.only,
        readonly=settings.readonly,
        demo=settings.demo,
        replay=settings.replay,
        record=settings.record,
        complete=complete,
    )
    return Link(options, log_path=engine_log())


def engine_log() -> str | None:
    """Where an engine's stderr goes: its last words explain an end. None: nowhere to write."""
    folder = state_directory(os.environ)
    if folder is None:
        return None
    directory = str(folder)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError:
        return None
    _remove_left_logs(directory)
    path = os.path.join(directory, f"engine-{os.getpid()}.log")
    return path if os.access(directory, os.W_OK) else None


def _remove_left_logs(directory: str) -> None:
    """Those of cockpits that were ended from outside."""
    for name in os.listdir(directory):
        pid = name.removeprefix("engine-").removesuffix(".log")
        if name == f"engine-{pid}.log" and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))


def remove_log(link: Link) -> None:
    """The log of an engine that ended well is worth nothing."""
    if link.log_path is not None:
        with contextlib.suppress(OSError):  # cleared away by another cockpit, or not ours to remove
            os.unlink(link.log_path)


def one_snapshot(settings: Settings) -> Snapshot:
    """The first complete tick. Raises LinkError when none comes."""
    link = open_link(settings, complete=True)
    try:
        return first_tick(link)
    finally:
        link.close()
        remove_log(link)


def first_tick(link: Link, patience_s: float = PATIENCE_S) -> Snapshot:
    """Raises LinkError when no tick comes in time."""
    end = time.monotonic() + patience_s
    while (left := end - time.monotonic()) > 0:
        message = link.receive(left)
        if isinstance(message, Tick):
            return message.snapshot
    raise LinkError(
        f"The engine gave no reading within {patience_s:g} seconds: is the machine overloaded?"
    )


def answer(
    link: Link,
    question: Message | None,
    question_id: int,
    patience_s: float,
    on_progress: Callable[[str], None] | None = None,
) -> Reply:
    """The reply to one request; progress goes to stderr. Raises the error that the engine names.

    ``question`` None: it was sent before, and only its reply is waited for.
    """
    if question is not None:
        link.send(question)
    end = time.monotonic() + patience_s
    while (left := end - time.monotonic()) > 0:
        message = link.receive(left)
        if isinstance(message, Progress) and message.id == question_id:
            (on_progress or tell)(message.sentence)
        elif isinstance(message, Reply) and message.id == question_id:
            if message.error is not None:
                raise _error(message)
            return message
    raise LinkError(f"The engine gave no answer within {patience_s:.0f} seconds.")


def tell(sentence: str) -> None:
    """One sentence on stderr: diagnostics never mix with data."""
    os.write(2, clean(sentence).encode() + b"\n")


def agreed(question: str, where: TextIO | None = None) -> bool:
    """A yes or no on ``where`` (stderr); the end of the input is no."""
    said = read_line(f"{question} [y/N] ", where)
    return said is not None and said.lower() in ("y", "yes")


def read_line(prompt: str, where: TextIO | None = None) -> str | None:
    """What is typed at the prompt, which is on ``where`` (stderr); None at the end of the input."""
    where = where or sys.stderr
    where.write(prompt)
    where.flush()
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:  # bytes of another encoding: no answer to anything
        line = "\n"
    if not line:
        print(file=where, flush=True)  # the prompt is left open
    return line.strip() if line else None


def require_driver(snapshot: Snapshot) -> None:
    """Raises NoDriverError with cause and next steps when there is no GPU to talk about."""
    error = snapshot.driver.error
    if error is not None:
        raise NoDriverError("\n  ".join((error.message, *error.advice)))


def _error(reply: Reply) -> CockpitError:
    error = CockpitError(reply.error or "")
    error.exit_code = reply.exit_code
    return error
