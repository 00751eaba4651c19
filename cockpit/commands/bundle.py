"""``cockpit bundle FILE``: an incident in one redacted file, to give away or to keep.

Takes snapshots and the doctor's answer through a Link, the tails of logs, the journal; what is
taken out is decided in ``collect.bundle``, which writes the file.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from cockpit import __version__
from cockpit import diagnose as room
from cockpit.attach import run_record
from cockpit.attach.run_record import RunRecord
from cockpit.collect import bundle
from cockpit.collect.recording_lines import Attachment
from cockpit.commands.ask import answer, first_tick, open_link, remove_log, tell
from cockpit.engine.link import Link
from cockpit.engine.protocol import AskCheckup, Tick
from cockpit.errors import CockpitError, TargetGoneError, UsageError
from cockpit.model.checkup import CheckupRequest
from cockpit.model.finding import Finding
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean
from cockpit.paths import state_directory
from cockpit.settings import Settings

LOG_BYTES = 1 << 20
LOG_LINES = 3000
RUN_LINES = 1000
RUNS = 3
"""The newest that ``cockpit run`` kept."""
JOURNAL_LINES = 200
LONGEST_S = 600.0
DOCTOR_S = 300.0
"""Longer than all time limits of the engine's children together."""


def run(settings: Settings, path: str, *, log: str | None = None, seconds: float = 5.0) -> int:
    """Exit 0 with a sentence about what is in it. Raises UsageError, LinkError, TargetGoneError."""
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(f"--seconds is a number from 0 to {LONGEST_S:.0f}.")
    _check_name(path)
    parts = list(_parts(log))
    snapshots = _snapshots(settings, seconds)
    parts += _doctor(settings)
    findings = [_finding(part) for part in parts if part.what == "log" and part.lines]
    told = [one for one in findings if one.cause not in ("benign", "unknown")]
    contents = bundle.Contents(snapshots=snapshots, findings=told, parts=parts)
    sys.stdout.write(clean(bundle.write(path, contents, __version__)) + "\n")
    return 0


def _check_name(path: str) -> None:
    """Told before the doctor's minutes. Raises UsageError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)
    except FileExistsError as error:
        raise UsageError(f"{clean(path)} exists already: give another name.") from error
    except OSError as error:
        raise UsageError(f"{clean(path)} cannot be written: {error.strerror}.") from error


def show(path: str) -> int:
    """What a bundle has beside its snapshots, as text. Raises UsageError."""
    for part in bundle.attachments(path):
        sys.stdout.write(f"== {clean(part.what)} {clean(part.title)}\n")
        for line in part.lines:
            sys.stdout.write(clean(line) + "\n")
        if part.data is not None:
            text = msgspec.json.format(msgspec.json.encode(part.data), indent=2).decode()
            sys.stdout.write("\n".join(clean(line) for line in text.split("\n")) + "\n")
    return 0


# -- what there is


def _snapshots(settings: Settings, seconds: float) -> list[tuple[float, Snapshot]]:
    link = open_link(settings, complete=True)
    try:
        first = first_tick(link)
        began = time.monotonic()
        return [(0.0, first), *_more(link, began, seconds)]
    finally:
        link.close()
        remove_log(link)


def _doctor(settings: Settings) -> Iterator[Attachment]:
    """With the Python of the newest run, for that is what the incident is about; of all GPUs."""
    if settings.demo or settings.replay:
        return  # nothing of this host belongs to these
    folder = state_directory(os.environ)
    runs = run_record.list_runs(str(folder)) if folder is not None else []
    request = CheckupRequest(python=runs[0].meta.python if runs else None)
    link = open_link(msgspec.structs.replace(settings, only=None), complete=True)
    id_ = link.next_id()
    try:
        first_tick(link)
        found = answer(link, AskCheckup(id=id_, request=request), id_, DOCTOR_S).checkup
        yield Attachment(what="doctor", title="doctor", data=msgspec.to_builtins(found))
    except CockpitError as error:
        tell(f"Without the doctor's answer: {error}")
    finally:
        link.close()
        remove_log(link)


def _more(link: Link, began: float, seconds: float) -> Iterator[tuple[float, Snapshot]]:
    while (left := began + seconds - time.monotonic()) > 0:
        message = link.receive(left)
        if isinstance(message, Tick):
            yield time.monotonic() - began, message.snapshot


def _parts(log: str | None) -> Iterator[Attachment]:
    if log is not None:
        yield Attachment(what="log", title=clean(os.path.basename(log)), lines=_tail(log))
    folder = state_directory(os.environ)
    if folder is not None:
        for record in run_record.list_runs(str(folder))[:RUNS]:
            yield from _run(record)
        journal = _journal(str(folder / "journal.jsonl"))
        if journal:
            yield Attachment(what="journal", title="the last actions", data=journal)


def _run(record: RunRecord) -> Iterator[Attachment]:
    """Its output, and what became of it. Not its environment: half of it is names and keys."""
    meta, end = record.meta, record.exit
    yield Attachment(
        what="run",
        title=f"pid {meta.pid}",
        data={
            "command": list(meta.command),
            "started_at": meta.started_at,
            "state": record.state,
            "exit": msgspec.to_builtins(end) if end is not None else None,
            "ooms": len(record.ooms()),
        },
    )
    lines = record.output(RUN_LINES)
    if lines:
        yield Attachment(what="log", title=f"output of pid {meta.pid}", lines=tuple(lines))


def _tail(path: str) -> tuple[str, ...]:
    """Raises TargetGoneError for a log that cannot be read."""
    try:
        if not os.path.isfile(path):
            raise UsageError(f"{clean(path)} is no file.")
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise TargetGoneError(f"{clean(path)}: {error.strerror}.") from error
    lines = (line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n"))
    return tuple(deque(lines, LOG_LINES))


def _journal(path: str) -> list[object]:
    try:
        with open(path, "rb") as file:
            last = deque(file, JOURNAL_LINES)
    except OSError:
        return []  # nothing was ever done from here
    found: list[object] = []
    for line in last:
        try:
            found.append(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # torn by a full disk
    return found


def _finding(part: Attachment) -> Finding:
    return room.diagnose(io.BytesIO("\n".join(part.lines).encode()))
