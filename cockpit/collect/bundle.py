"""``cockpit bundle``: an incident in one redacted file, which ``--replay`` opens on any machine.

It is a recording: scrubbed snapshots, then lines of kind ``attachment`` with logs, findings, the
journal and the doctor's answer. An older cockpit skips these and plays the rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from cockpit.collect.recording import RecordingWriter, load
from cockpit.collect.recording_lines import Attachment
from cockpit.collect.redact import Redactor
from cockpit.collect.scrub import Scrubber
from cockpit.errors import CockpitError
from cockpit.model.finding import Finding
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import plural

_KINDS = (
    ("finding", "finding"),
    ("log", "log"),
    ("run", "run record"),
    ("journal", "journal"),
    ("doctor", "doctor answer"),
)


class Contents(Struct, frozen=True, kw_only=True):
    """What goes into a bundle, as it is on this machine: not redacted."""

    snapshots: Sequence[tuple[float, Snapshot]]
    """(seconds since the first, snapshot); at least one."""
    findings: Sequence[Finding] = ()
    parts: Sequence[Attachment] = ()


def write(path: str, contents: Contents, version: str = "") -> str:
    """Writes the file, mode 0600, and looks into it once more; a sentence about what is in it.

    Raises UsageError where the file exists, CockpitError when it cannot be written, or when a
    secret that was taken out is still somewhere in it: then there is no file.
    """
    scrubber = Scrubber(names_sources=True)
    redactor = Redactor(scrubber, [snapshot for _, snapshot in contents.snapshots])
    _redacted(redactor, contents)
    redactor.learn()
    findings, parts = _redacted(redactor, contents)
    writer = RecordingWriter(path, version=version)
    with writer:
        for at_s, snapshot in contents.snapshots:
            scrubbed = scrubber.snapshot(snapshot)
            writer.write(msgspec.structs.replace(scrubbed, findings=findings), at_s)
        for part in parts:
            writer.attach(part)
    if writer.trouble is not None:
        _remove(path)
        raise CockpitError(f"{path} cannot be written: {writer.trouble}.")
    _check(path, redactor)
    return _sentence(path, len(contents.snapshots), parts, redactor.masked)


def attachments(path: str) -> tuple[Attachment, ...]:
    """Those of a bundle; data from outside. Raises UsageError for what is no recording."""
    recording = load(path)
    try:
        return recording.attachments
    finally:
        recording.close()


def _redacted(
    redactor: Redactor, contents: Contents
) -> tuple[tuple[Finding, ...], list[Attachment]]:
    parts = [_part(redactor, part) for part in contents.parts]
    told = [redactor.value(msgspec.to_builtins(finding)) for finding in contents.findings]
    parts += [Attachment(what="finding", title=str(one["title"]), data=one) for one in told]
    try:
        return msgspec.convert(told, tuple[Finding, ...]), parts
    except msgspec.ValidationError:  # a word of ours was some password: it stays an attachment
        return (), parts


def _part(redactor: Redactor, part: Attachment) -> Attachment:
    return Attachment(
        what=part.what,
        title=redactor.line(part.title),
        lines=redactor.lines(part.lines),
        data=redactor.value(part.data),
    )


def _check(path: str, redactor: Redactor) -> None:
    """The promise, looked at from its other end: no secret is left in any text."""
    if any(redactor.left_in((one.title, one.lines, one.data)) for one in attachments(path)):
        _remove(path)
        raise CockpitError(f"A secret was still in {path}: it was removed, nothing was written.")


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _sentence(path: str, snapshots: int, parts: Sequence[Attachment], masked: Counter[str]) -> str:
    inside = [plural(snapshots, "snapshot")]
    for what, noun in _KINDS:
        some = [part for part in parts if part.what == what]
        lines = sum(len(part.lines) for part in some)
        if some:
            inside.append(plural(len(some), noun) + (f" of {lines} lines" if lines else ""))
    hidden = [plural(n, kind) for kind, n in sorted(masked.items())] or ["nothing in texts"]
    return (
        f"{path}: {', '.join(inside)}. Masked: {', '.join(hidden)}; users, hosts, arguments and "
        "directories of the snapshots. Look into it before you give it away."
    )
