"""What a flow leaves on disk: its place, to be taken up again, and its lines in the journal."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from cockpit.act.journal import Entry, Journal
from cockpit.attach.run_record import start_ticks
from cockpit.flows.machine import State
from cockpit.model.flow import Done, FlowId, FlowRequest
from cockpit.model.remedy import Compared, Outcome, Preview
from cockpit.model.secret import hide, hide_lines
from cockpit.model.time import iso

FORGOTTEN_AFTER_S = 7 * 86400.0


class Saved(Struct, frozen=True, kw_only=True):
    """A flow that something was done in."""

    id: str
    saved_at: str
    begun: FlowRequest = FlowRequest()
    """As the user asked for it."""
    request: FlowRequest
    done: tuple[Done, ...]
    tried: tuple[str, ...]
    engine_pid: int = 0
    engine_start_ticks: int | None = None
    """Who has it open: while that one lives, it was not left."""

    def is_open(self) -> bool:
        """In this engine, or in that of another cockpit."""
        ticks = start_ticks(self.engine_pid) if self.engine_pid else None
        return ticks is not None and ticks == self.engine_start_ticks


class Store:
    """``flows/<id>.json`` in the state directory; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder / "flows" if folder is not None else None

    def save(
        self,
        id_: str,
        begun: FlowRequest,
        request: FlowRequest,
        state: State,
        *,
        is_open: bool = True,
    ) -> None:
        """All of it or nothing. A full disk, or a command that is no UTF-8, loses the taking up."""
        if self._folder is None:
            return
        saved = Saved(
            id=id_,
            saved_at=iso(time.time()),
            begun=begun,
            request=request,
            done=tuple(_without_secrets(one) for one in state.done),
            tried=state.tried,
            engine_pid=os.getpid() if is_open else 0,
            engine_start_ticks=start_ticks(os.getpid()) if is_open else None,
        )
        path = self._folder / f"{id_}.json"
        partial = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError, UnicodeEncodeError):
            line = msgspec.json.encode(saved)
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(line)
            os.replace(partial, path)

    def forget(self, id_: str) -> None:
        """It is over."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / f"{id_}.json").unlink()

    def unfinished(self, flow: FlowId, but: str, begun: FlowRequest) -> Saved | None:
        """The newest of this flow about the same thing that was left half-way.

        What is old is removed. About another process it is another story, and no question.
        """
        rows = [
            one
            for one in self._all()
            if one.request.flow == flow and one.id != but and _about(one.begun) == _about(begun)
        ]
        found = [one for one in rows if not one.is_open()]
        return max(found, key=lambda one: one.saved_at, default=None)

    def _all(self) -> list[Saved]:
        found = []
        for path in sorted(self._folder.glob("*.json")) if self._folder is not None else ():
            with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                if time.time() - path.stat().st_mtime > FORGOTTEN_AFTER_S:
                    path.unlink()
                else:
                    found.append(msgspec.json.decode(path.read_bytes(), type=Saved))
        return found


def _about(request: FlowRequest) -> tuple[object, ...]:
    return request.pid, request.start_ticks, request.run, request.log, request.command


def _without_secrets(done: Done) -> Done:
    """What is run again or taken back (the request, ``undo``) has to stay as it is."""
    return msgspec.structs.replace(
        done,
        title=hide(done.title),
        lines=tuple(hide_lines(done.lines)),
        output=tuple(hide_lines(done.output)),
        sentence=hide(done.sentence),
        compared=tuple(
            Compared(what=hide(one.what), before=hide(one.before), after=hide(one.after))
            for one in done.compared
        ),
    )


class Journalled:
    """The two lines of one fix: intent before it, result after; the face may act in between."""

    def __init__(
        self, journal: Journal | None, operation: str, preview: Preview, pids: tuple[int, ...]
    ) -> None:
        """``journal`` None: whoever acts writes the lines itself."""
        self._journal = journal
        self._operation, self._preview, self._pids = operation, preview, pids
        self._name = f"{operation}-{time.monotonic_ns():x}"

    def intend(self) -> None:
        """It was confirmed."""
        self._write("intent", None, self._preview.title)

    def came_to(self, outcome: Outcome) -> None:
        """It ended, or was not done after all."""
        self._write("result", "done" if outcome.ok else "failed", outcome.sentence)

    @property
    def trouble(self) -> str | None:
        """Why a line could not be written."""
        return self._journal.trouble if self._journal is not None else None

    def _write(
        self, phase: Literal["intent", "result"], outcome: str | None, sentence: str | None
    ) -> None:
        if self._journal is None:
            return
        self._journal.write(
            Entry(
                action=self._name,
                phase=phase,
                operation=self._operation,
                pid=self._pids[0] if self._pids else None,
                start_ticks=None,
                command=" ".join(self._preview.lines) or self._preview.title,
                outcome=outcome,
                sentence=sentence,
            )
        )
