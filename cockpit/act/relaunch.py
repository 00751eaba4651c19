"""Starting a run again with a changed environment or other arguments, and seeing what comes of it.

What is read from the run's record and from the agent inside it comes through ``Records``, which the
engine has (engine/run_looks.py): this room does not know the agent's protocol.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Protocol

from cockpit.act.action import Console
from cockpit.act.relaunch_check import Answer, Check, Terms, compared
from cockpit.act.relaunch_plan import MARK, Planned
from cockpit.act.run_end import end_marked
from cockpit.act.run_starts import in_background, in_tmux
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.run_command import RunMeasure, SeenRun
from cockpit.model.text import clean
from cockpit.paths import state_directory

APPEARS_S = 30.0
"""How long the record of a run that was started is waited for."""
TAIL = 40
"""Lines of the new run's output in an Outcome."""


class Records(Protocol):
    """The records of runs, and what their agents say."""

    def find(self, state: str, name: str, value: str) -> str | None:
        """The directory of the newest run that had this variable in its environment."""

    def look(self, directory: str, lines: int) -> SeenRun | None:
        """How the run is now, with its last lines; None: there is no readable record (any more).

        With 0 lines its output, up to 16 MiB, is not read at all.
        """


@dataclass(frozen=True, kw_only=True)
class Relaunch(Planned):
    """An Action. Nothing is read or started before ``preview`` or ``run``."""

    records: Records
    notes: tuple[str, ...] = ()
    """What has to be known about the change (Change.notes)."""
    title: str | None = None
    before: RunMeasure = field(default_factory=RunMeasure)
    """Of the old run; its ``step`` is the one at which it failed."""
    terms: Terms = field(default_factory=Terms)
    tmux_socket: str | None = None
    """Of the server for ``where="tmux"``; None: the one around us, else the user's default."""

    def preview(self) -> Preview:
        """``cd DIR && VAR=… cockpit run -- …``, and what differs from the old command."""
        if not self.new_argv:
            return self._nothing()
        entry = self.entry()
        refusal = self.refusal(entry)
        advice = entry.advice if entry else ()
        notes = (f"# {note}" for note in (*self.notes, *self._notes()))
        to_type = self.terminal(entry) if self.where == "terminal" and not refusal else None
        return Preview(
            title=self.title or f"start {clean(self.new_name)} again",
            form="command",
            lines=(*advice, self.line(entry), *self.difference(), *notes),
            risk="confirm",
            loses=self._loses(),
            verify=self._verify(),
            terminal=to_type,
            refusal=refusal,
        )

    def run(self, console: Console) -> Outcome:
        """Raises RefusedError, or CockpitError when it could not be started."""
        entry = self.entry() if self.new_argv else None
        refusal = self.refusal(entry)
        if refusal:
            raise RefusedError(refusal)
        began = time.monotonic()
        try:
            if self.where == "background":
                console.say(in_background(self.start(entry)))
            elif self.where == "tmux":
                console.say(in_tmux(self.start(entry), self.tmux_socket))
            directory = self._find(console)
            if directory is None:
                return Outcome(ok=True, sentence="It was started, and is not watched.")
            return self._watch(directory, console, began)
        except BaseException:
            if self.is_probe:
                end_marked(MARK, self.mark)
            raise

    # -- words

    def _nothing(self) -> Preview:
        return Preview(
            title=self.title or "start the run again",
            form="command",
            lines=(),
            risk="confirm",
            loses="nothing",
            verify=self._verify(),
            refusal=self.refusal(None),
        )

    def _notes(self) -> list[str]:
        notes = []
        ours = [name for name in self.command.unknown if name in os.environ]
        nowhere = [name for name in self.command.unknown if name not in os.environ]
        if ours:
            names = clean(", ".join(ours))
            notes.append(f"secrets are not kept, so taken from this cockpit's environment: {names}")
        if nowhere:
            names = clean(", ".join(nowhere))
            notes.append(f"secrets are not kept, and not set here, so missing: {names}")
        if self.command.container:
            notes.append("inside the container only the variables shown are set by us")
        if self.command.source == "typed":
            notes.append("the rest of the environment is this cockpit's own")
        return notes

    def _loses(self) -> str:
        return "what the old run did after its last checkpoint, unless the program resumes there"

    def _verify(self) -> str:
        if self.terms.faster:
            return "the time of a step before and after is compared; 3 % and the spread are noise"
        if self.before.step is not None:
            return f"it ends with status 0, or passes step {self.before.step}"
        steps, settle_s = self.terms.steps, self.terms.settle_s
        return f"it ends with status 0, or does {steps} steps or {settle_s:.0f} s without failing"

    # -- watching

    def _find(self, console: Console) -> str | None:
        """The record's directory; None: cancelled before there was one."""
        state = state_directory(self.environment(self.set_environment))
        end = time.monotonic() + APPEARS_S
        while time.monotonic() < end:
            found = self.records.find(str(state), MARK, self.mark) if state else None
            if found is not None or (console.cancelled.is_set() and not self.is_probe):
                return found
            time.sleep(0.1)
        raise CockpitError(
            "It was started, but there is no record of it: whether it works cannot be seen here."
        )

    def _watch(self, directory: str, console: Console, began: float) -> Outcome:
        check, told = Check(self.before, self.terms, began), 0
        while (seen := self.records.look(directory, 0)) is not None:
            answer = check.take(seen, time.monotonic()) or self._give_up(seen, console, began)
            if answer is not None:
                if self.is_probe:
                    left = end_marked(MARK, self.mark, (seen.pid, seen.start_ticks))
                    answer = _with_end(answer, seen, left)
                return self._outcome(check, seen, directory, answer)
            if seen.step and seen.step >= told + 10:
                told = seen.step
                console.say(f"{seen.name}: step {seen.step}")
            console.cancelled.wait(self.terms.poll_s)
        answer = Answer(None, "its record was removed")
        if self.is_probe:
            answer = _with_end(answer, None, end_marked(MARK, self.mark))
        return self._outcome(check, None, directory, answer)

    def _give_up(self, seen: SeenRun, console: Console, began: float) -> Answer | None:
        for_s = time.monotonic() - began
        if console.cancelled.is_set():
            return Answer(None, self._left(seen, "no longer watched"))
        if for_s > self.terms.patience_s:
            return Answer(None, self._left(seen, f"it was watched for {for_s:.0f} s"))
        return None

    def _left(self, seen: SeenRun, how: str) -> str:
        return how if self.is_probe else f"{how}; {seen.name} goes on (pid {seen.pid})"

    def _outcome(
        self, check: Check, seen: SeenRun | None, directory: str, answer: Answer
    ) -> Outcome:
        after = check.measure(seen, time.monotonic())
        last = self.records.look(directory, TAIL)
        return Outcome(
            ok=not answer.left,
            sentence=clean(answer.sentence),
            verified=answer.verified,
            compared=compared(self.before, after),
            output=last.output if last else (),
            path=directory,
        )


def _with_end(answer: Answer, seen: SeenRun | None, left: tuple[int, ...]) -> Answer:
    """What came of ending all that a probe has left, behind its answer. ``left``: still there."""
    if left:
        pids = ", ".join(map(str, left))
        sentence = f"{answer.sentence}; it does not end at SIGTERM: end {pids} with the kill menu"
        return Answer(answer.verified, sentence, left)
    if seen is not None and seen.state == "running" and answer.verified is None:
        return Answer(None, f"{answer.sentence}; {seen.name} was ended")
    return answer
