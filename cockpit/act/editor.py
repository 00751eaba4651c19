"""Where the place of a change is not certain: the file in the user's editor, with the suggestion.

The editor needs the user's terminal, so the face runs it; ``run`` then looks what was changed.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cockpit.act import patch_store, source_file
from cockpit.act.action import Console
from cockpit.act.diff import changed_lines, lines_of, unified
from cockpit.act.source_file import SourceFile
from cockpit.errors import RefusedError
from cockpit.model.remedy import Outcome, Preview, TerminalCommand, UndoRecord
from cockpit.model.text import clean, plural
from cockpit.paths import state_directory

_PLUS = ("+{line}", "{file}")
_COLON = ("{file}:{line}",)
_GOTO = ("--goto", "{file}:{line}")

LINE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("vi", "vim", "nvim", "view", "gvim", "nano", "pico", "rnano"), _PLUS),
    **dict.fromkeys(("emacs", "emacsclient", "mg", "zile", "jed", "joe", "jmacs", "ne"), _PLUS),
    **dict.fromkeys(("micro", "kak", "mcedit", "gedit", "gnome-text-editor", "pluma"), _PLUS),
    **dict.fromkeys(("sensible-editor", "editor", "e3", "tilde"), _PLUS),
    **dict.fromkeys(("hx", "helix", "subl", "zed"), _COLON),
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "windsurf"), _GOTO),
    "kate": ("-l", "{line}", "{file}"),
    "kwrite": ("-l", "{line}", "{file}"),
}
"""How an editor is told the line; others get the file only."""

WAITING: dict[str, str] = {
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "windsurf"), "--wait"),
    **dict.fromkeys(("subl", "zed"), "--wait"),
    "gvim": "-f",
    "kate": "--block",
}
"""What makes an editor with a window of its own return only when the file is closed."""

_UNDO = "the bytes from before the editor are put back"
_USUAL = ("nano", "vim", "vi")
_AROUND = 6
"""Lines shown above and below the place."""


@dataclass(frozen=True, eq=False)
class EditByHand:
    """A change that a person makes: file, line and what to write there."""

    file: str
    line: int
    suggestion: tuple[str, ...]
    title: str
    verify: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def _looked(self) -> tuple[SourceFile | None, str | None]:
        """(the file at the preview, why it cannot be changed)."""
        try:
            return source_file.read(self.file), None
        except RefusedError as error:
            return None, str(error)

    def preview(self) -> Preview:
        """The lines around the place and the suggestion; refused without an editor."""
        source, refusal = self._looked
        command = None
        if source is not None:
            argv = editor_command(source.path, self.line, self.environ)
            command = TerminalCommand(argv=argv) if argv else None
            if command is None:
                refusal = (
                    "no editor was found: set EDITOR, or change "
                    f"{clean(source.path)} line {self.line} by hand as it says here"
                )
        return Preview(
            title=f"{self.title}: {clean(os.path.basename(self.file))} line {self.line}",
            form="text",
            lines=(*_around(source, self.line), *self.suggestion),
            risk="confirm",
            loses="nothing that you do not change yourself",
            verify=self.verify,
            undo=_UNDO if command and state_directory(os.environ) else None,
            terminal=command,
            refusal=refusal,
        )

    def run(self, _console: Console) -> Outcome:
        """After the editor has ended: what was changed. Raises RefusedError: the file is gone."""
        source, refusal = self._looked
        if source is None:
            raise RefusedError(refusal or "the file could not be read")
        now = source_file.read(self.file)
        name = clean(now.name)
        if now.raw == source.raw:
            return Outcome(
                ok=True, verified=False, sentence=f"{name} was not changed", path=now.path
            )
        diff = unified(source.text, now.text, source.path, now.path)
        wrong = source_file.syntax_error(now.raw, now.path)
        broken = wrong is not None and source_file.syntax_error(source.raw, source.path) is None
        sentence = f"{name} was changed in {plural(changed_lines(diff), 'line')}"
        sentence += f", but does not compile: {wrong}" if broken else ""
        record, lost = self._kept(source, now)
        return Outcome(
            ok=True,
            verified=False if broken else None,
            sentence=sentence + lost,
            undo=record,
            output=diff,
            path=now.path,
        )

    def _kept(self, before: SourceFile, now: SourceFile) -> tuple[UndoRecord | None, str]:
        """(the way back, why there is none): the change is the user's and stays without one."""
        try:
            return patch_store.keep(now.path, "editor", self.title, before.raw, now.raw), ""
        except RefusedError as error:
            return None, f"; it cannot be taken back from here: {error}"


def editor_command(path: str, line: int, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """argv that opens a file at a line: $VISUAL, $EDITOR, else a usual one; None: there is none.

    The variables may hold arguments (``code --wait``), split as a shell would, without a shell.
    """
    for words in (*_from_environment(environ), *((name,) for name in _USUAL)):
        if shutil.which(words[0], path=environ.get("PATH")) is not None:
            return _with_line(words, path, line)
    return None


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    found = []
    for name in ("VISUAL", "EDITOR"):
        try:
            words = tuple(shlex.split(environ.get(name, "")))
        except ValueError:  # a quote without its end
            words = ()
        if words:
            found.append(words)
    return found


def _with_line(words: tuple[str, ...], path: str, line: int) -> tuple[str, ...]:
    name = os.path.basename(words[0])
    pattern = LINE_ARGUMENTS.get(name, ("{file}",))
    wait = WAITING.get(name)
    waiting = (wait,) if wait is not None and wait not in words else ()
    place = tuple(word.replace("{line}", str(line)).replace("{file}", path) for word in pattern)
    return (*words, *waiting, *place)


def _around(source: SourceFile | None, line: int) -> tuple[str, ...]:
    """``>  42  loss.backward()``: numbered lines, the one in question marked."""
    if source is None:
        return ()
    lines = lines_of(source.text)
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    width = len(str(last))
    shown = (
        f"{'>' if number == line else ' '} {number:>{width}}  {lines[number - 1]}".rstrip()
        for number in range(first, last + 1)
    )
    return (source.path, *shown, "")
