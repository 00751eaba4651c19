"""A code change as a fix: the diff is shown, the file backed up and written, and it can be undone.

What to change is found by ``rewrites``; whether the file may be changed is in ``source_file``.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import cached_property

from cockpit.act import patch_store, source_file
from cockpit.act.action import Console
from cockpit.act.diff import changed_lines, unified
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.source_file import SourceFile
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Outcome, Preview, UndoRecord
from cockpit.model.text import clean, plural

_UNDO = "the original bytes are put back, as long as nobody has changed the file since"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Plan:
    """What one look at the file came to."""

    source: SourceFile | None = None
    edit: Edit | None = None
    raw: bytes = b""
    """The whole new content."""
    diff: tuple[str, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True, eq=False)
class Patch:
    """A change of one kind at a file and line; looks at the file once, when it is first asked."""

    kind: str
    """One of ``rewrites.KINDS``."""
    file: str
    line: int
    facts: Facts = field(default_factory=dict)

    @property
    def is_certain(self) -> bool:
        """There is a certain edit, and it may be written."""
        return self._plan.refusal is None

    @property
    def refusal(self) -> str | None:
        """Why it cannot be run; a sentence."""
        return self._plan.refusal

    @cached_property
    def _plan(self) -> _Plan:
        try:
            return self._planned()
        except CockpitError as error:
            return _Plan(refusal=str(error))

    def _planned(self) -> _Plan:
        source = source_file.read(self.file)
        edit = self._edit(source)
        if edit is None:
            return _Plan(
                refusal=f"there is no certain place for this change near line {self.line} of "
                f"{clean(source.path)}"
            )
        try:
            raw = source.bytes_of(edit.text)
        except UnicodeEncodeError:
            return _Plan(refusal=f"the change cannot be written in {source.encoding}")
        if _breaks(source, raw):
            return _Plan(refusal=f"the changed {clean(source.name)} would not compile")
        diff = unified(source.text, edit.text, source.path, source.path)
        return _Plan(source, edit, raw, diff)

    def _edit(self, source: SourceFile) -> Edit | None:
        from cockpit.act.rewrites import rewrite  # libcst: 0.15 s, only when it is needed

        try:
            return rewrite(self.kind, source.text, self.line, self.facts)
        except Exception:  # noqa: BLE001 - source that it does not understand has no certain place
            _log.exception("rewrite %s of %s", self.kind, clean(source.path))
            return None

    def preview(self) -> Preview:
        """The unified diff of exactly what will be written."""
        plan = self._plan
        name = clean(os.path.basename(self.file))
        if plan.source is None or plan.edit is None:
            return Preview(
                title=f"change {name}",
                form="diff",
                lines=(),
                risk="confirm",
                loses="nothing",
                verify="",
                refusal=plan.refusal,
            )
        return Preview(
            title=f"{plan.edit.title}: {clean(plan.source.name)}{self._link(plan.source)}",
            form="diff",
            lines=plan.diff,
            risk="confirm",
            loses=plan.edit.loses,
            verify=plan.edit.verify,
            typed=plan.source.name,
            undo=_UNDO,
        )

    def _link(self, source: SourceFile) -> str:
        """`` (train.py is a link to /x/y.py)``, where it is one."""
        if os.path.abspath(self.file) == source.path:
            return ""
        return f" ({clean(self.file)} leads to {clean(source.path)})"

    def run(self, console: Console) -> Outcome:
        """Back up, write, read again. Raises RefusedError; then the file is as it was."""
        plan = self._plan
        if plan.source is None or plan.edit is None:
            raise RefusedError(plan.refusal or "there is nothing to change")
        now = source_file.read(self.file)
        if (now.path, now.sha256) != (plan.source.path, plan.source.sha256):
            raise RefusedError(
                f"{clean(plan.source.path)} was changed after it was shown: look at it anew"
            )
        if console.cancelled.is_set():
            return Outcome(ok=False, sentence="stopped: nothing was changed")
        title = f"{plan.edit.title}: {clean(plan.source.path)}"
        try:
            record = patch_store.keep(now.path, self.kind, title, now.raw, plan.raw)
        except RefusedError as error:
            raise RefusedError(f"not changed: {error}") from error
        console.say(f"backup: {record.data['backup']}")
        source_file.write(now, plan.raw)
        return _written(now, plan, record)


def _written(source: SourceFile, plan: _Plan, record: UndoRecord) -> Outcome:
    """With the way back in any case: from here on the file is not what it was."""
    name, held = clean(source.name), _holds(source, plan.raw)
    lines = plural(changed_lines(plan.diff), "line")
    if held:
        sentence = f"{name} is changed in {lines}: start the run anew, a running one keeps the "
        sentence += "old code"
    else:
        sentence = f"{name} was written, and something else changed it right after: look at it "
        sentence += f"(the original is {clean(record.data['backup'])}/original)"
    return Outcome(
        ok=True,
        verified=None if held else False,
        sentence=sentence,
        undo=record,
        output=plan.diff,
        path=source.path,
    )


def _breaks(source: SourceFile, raw: bytes) -> bool:
    """It compiled before and would not now; syntax newer than this Python never does."""
    if source_file.syntax_error(raw, source.path) is None:
        return False
    return source_file.syntax_error(source.raw, source.path) is None


def _holds(source: SourceFile, raw: bytes) -> bool:
    """The file has just this content; no, too, where it cannot be read any more."""
    try:
        return source_file.read_bytes(source.path)[0] == raw
    except RefusedError:
        return False


def undo(record: UndoRecord, console: Console) -> Outcome:
    """Put the original bytes back.

    Changed since: nothing is done; ``output`` has what the patch changed and what was changed
    after it. Raises RefusedError: file or backup are gone, or not this user's any more.
    """
    original = patch_store.original_of(record)
    source = source_file.read(record.data["file"])
    name = clean(source.name)
    if source.raw == original:
        return Outcome(ok=True, sentence=f"{name} is as it was already", path=source.path)
    if source.path != record.data["file"] or source.sha256 != record.data["sha256"]:
        return Outcome(
            ok=False,
            sentence=f"{name} was changed since: take the change back by hand "
            f"(the original is {clean(record.data['backup'])}/original)",
            output=_three_ways(record, source, original),
            path=source.path,
        )
    if console.cancelled.is_set():
        return Outcome(ok=False, sentence="stopped: nothing was changed")
    source_file.write(source, original)
    if not _holds(source, original):
        sentence = f"{name} was put back, and something else changed it right after: look at it"
        return Outcome(ok=False, sentence=sentence, path=source.path)
    return Outcome(ok=True, sentence=f"{name} is as it was, to the byte", path=source.path)


def _three_ways(record: UndoRecord, source: SourceFile, original: bytes) -> tuple[str, ...]:
    """What the patch did, then what was done after it."""
    first = original.decode(source.encoding, errors="replace")
    patched = patch_store.changed_of(record).decode(source.encoding, errors="replace")
    return (
        *unified(first, patched, "original", "patched"),
        *unified(patched, source.text, "patched", "now"),
    )
