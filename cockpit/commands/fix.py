"""``cockpit fix --plain``: a guided flow line by line, for dumb terminals and scripts.

What is shown goes to stdout, progress to stderr. Three kinds of prompt wait for input, and nothing
else does: ``[y/N] ``, ``Choose [1-N]: `` and ``type X to go on: ``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from cockpit.commands import fix_lines, fix_report
from cockpit.commands.ask import (
    agreed,
    answer,
    first_tick,
    open_link,
    read_line,
    remove_log,
    tell,
)
from cockpit.commands.kill import parse_target
from cockpit.engine.link import Link
from cockpit.engine.protocol import AnswerFlow, CancelFlow, StartFlow
from cockpit.errors import CockpitError, LinkError, UsageError
from cockpit.model.flow import (
    Ask,
    Choose,
    Confirm,
    Done,
    Ended,
    FlowAnswer,
    FlowId,
    FlowRequest,
    FlowState,
    InTerminal,
)
from cockpit.model.remedy import Preview, TerminalCommand
from cockpit.model.text import clean
from cockpit.paths import working_directory
from cockpit.settings import Settings

PATIENCE_S = 24 * 3600.0
"""A fix may be a training that runs to its end."""
STOP_PATIENCE_S = 300.0
"""How long a fix that is stopped may take until it has said what was done: an installation that
replaces files is let finish. A second ctrl+c waits no more."""


def request_of(
    flow: FlowId | None,
    *,
    pid: str | None,
    log: str | None,
    words: list[str],
    dry_run: bool = False,
) -> FlowRequest:
    """From the command line. Raises UsageError."""
    target = parse_target(pid) if pid is not None else None
    cwd = working_directory()
    return FlowRequest(
        flow=flow,
        pid=target.pid if target is not None else None,
        start_ticks=target.start_ticks if target is not None else None,
        log=os.path.abspath(log) if log is not None else None,
        command=tuple(words),
        cwd=cwd,
        dry_run=dry_run,
    )


def run(
    settings: Settings, request: FlowRequest, *, dry_run: bool, report: str | None = None
) -> int:
    """0 only when a fix was seen to help; else 1; 130 after ctrl+c. Raises CockpitError.

    ``report``: where it is written, whatever the end; a file that is there is refused before.
    """
    if report is not None and os.path.lexists(report):
        raise UsageError(f"{clean(report)} is there already: it is not written over.")
    link = open_link(settings)
    try:
        first_tick(link)
        walk = _Walk(link, dry_run=dry_run, readonly=settings.readonly)
        try:
            return walk.to_the_end(request)
        except KeyboardInterrupt:
            walk.stop()
            raise
        finally:
            walk.write_report(report)
    finally:
        link.close(may_kill=False)
        remove_log(link)


class _Walk:
    """One flow, from its start to its end."""

    def __init__(self, link: Link, *, dry_run: bool, readonly: bool) -> None:
        self._link = link
        self._only_shows = dry_run or readonly
        self._readonly = readonly
        self._state: FlowState | None = None
        self._waits_for: int | None = None
        """Id of the answer that is still to come."""
        self._found_shown: frozenset[str] = frozenset()
        self._aside_shown = ""
        self._done_shown = 0
        self._headed = ""

    def to_the_end(self, request: FlowRequest) -> int:
        id_ = self._link.next_id()
        state = self._given(StartFlow(id=id_, request=request), id_)
        while True:
            self._show(state)
            prompt = state.prompt
            if isinstance(prompt, Ended):
                _print(("", *fix_lines.wrapped(prompt.sentence, indent="")))
                return 0 if prompt.verified else 1
            state = self._next(state)

    def write_report(self, path: str | None) -> None:
        """Of a flow that came to its end. That it cannot be written changes no exit status."""
        state = self._state
        if path is None or state is None or not isinstance(state.prompt, Ended):
            return
        lines = (clean(line) for line in state.prompt.report.splitlines())
        try:
            written = fix_report.write_report("".join(f"{line}\n" for line in lines), None, path)
            tell(f"report: {clean(written)}")
        except CockpitError as error:
            tell(str(error))

    def stop(self) -> None:
        """After ctrl+c: stop what runs, say what was done, and leave. A second one waits no more.

        What has to be told is told before the flow is left, so that nothing is done unseen.
        """
        print(flush=True)
        state = self._state
        if state is None:
            tell("Stopped; nothing was changed.")
            return
        if self._waits_for is not None:
            tell("Stopping …")
            self._link.send(CancelFlow(flow=state.id))
            state = self._stopped(self._waits_for) or state
            self._show(state)
        if not isinstance(state.prompt, Ended):
            state = self._send(state, FlowAnswer(leave=True))
        if isinstance(state.prompt, Ended):
            _print(fix_lines.wrapped(state.prompt.sentence, indent=""))

    def _stopped(self, id_: int) -> FlowState | None:
        """The answer that was waited for."""
        return answer(self._link, None, id_, STOP_PATIENCE_S, _progress).flow

    def _next(self, state: FlowState) -> FlowState:
        """Ask until there is an answer that the engine takes."""
        while True:
            said = self._ask(state)
            try:
                return self._send(state, said)
            except LinkError:
                raise
            except CockpitError as error:
                tell(clean(str(error)))
                if said.leave:
                    raise
                if isinstance(state.prompt, Confirm | InTerminal):
                    return self._send(state, FlowAnswer(declined=True))

    def _send(self, state: FlowState, said: FlowAnswer) -> FlowState:
        id_ = self._link.next_id()
        return self._given(AnswerFlow(id=id_, flow=state.id, answer=said), id_)

    def _given(self, message: StartFlow | AnswerFlow, id_: int) -> FlowState:
        self._waits_for = id_
        try:
            state = answer(self._link, message, id_, PATIENCE_S, _progress).flow
        except CockpitError:  # answered all the same; after a ctrl+c the answer is still to come
            self._waits_for = None
            raise
        self._waits_for = None
        if state is None:
            raise CockpitError("The engine answered without a flow.")
        self._state = state
        return state

    # -- asking

    def _ask(self, state: FlowState) -> FlowAnswer:
        prompt = state.prompt
        if isinstance(prompt, Ask):
            return _ask_question(prompt)
        if isinstance(prompt, Choose):
            return self._ask_choice(prompt, state.done)
        if isinstance(prompt, Confirm):
            return _ask_confirmation(prompt.preview)
        assert isinstance(prompt, InTerminal)
        return _in_terminal(prompt.command)

    def _ask_choice(self, prompt: Choose, done: tuple[Done, ...]) -> FlowAnswer:
        if self._only_shows:
            _print(fix_lines.all_lines(prompt, self._readonly))
            _print(("\nRead-only: nothing is run.",) if self._readonly else ())
            return FlowAnswer(leave=True)
        options = fix_lines.options_of(prompt)
        aside = "\n".join(fix_lines.aside_lines(prompt))
        if not options and not prompt.undoable:
            _print((aside, f"\nNothing {'more' if done else 'of this'} can be run from here."))
            return FlowAnswer(leave=True)
        _print(("\nWhat can be done:",))
        for number, option in enumerate(options, 1):
            _print(fix_lines.option_lines(number, prompt.options[option]))
        for number, title in enumerate(prompt.undoable, len(options) + 1):
            _print(fix_lines.wrapped(f"  {number}. take back: {title}", indent="     "))
        leave = len(options) + len(prompt.undoable)
        _print((f"  {leave + 1}. leave; nothing more is changed",))
        if aside and aside != self._aside_shown:
            _print((aside, ""))
        self._aside_shown = aside
        picked = _number(leave + 1)
        if picked is None or picked == leave:
            return FlowAnswer(leave=True)
        if picked < len(options):
            return FlowAnswer(option=options[picked])
        return self._ask_undo(prompt, picked - len(options), done)

    def _ask_undo(self, prompt: Choose, number: int, done: tuple[Done, ...]) -> FlowAnswer:
        _print(fix_lines.undo_lines(prompt.undoable[number], done))
        if agreed("Take it back?", sys.stdout):
            return FlowAnswer(undo=number)
        return self._ask_choice(prompt, done)

    # -- showing

    def _show(self, state: FlowState) -> None:
        head = fix_lines.head(state)
        if head != self._headed:
            self._headed = head
            _print(("", *fix_lines.wrapped(head, indent="  ")))
        for row in state.done[self._done_shown :]:
            _print(fix_lines.done_lines(row))
        lines = [fix_lines.found_line(one) for one in state.found]
        new = [line for line in lines if line not in self._found_shown]
        if new and len(state.done) > self._done_shown:
            _print(("\nNow:",))
        _print(new)
        self._done_shown = len(state.done)
        self._found_shown = frozenset(lines)


def _ask_question(prompt: Ask) -> FlowAnswer:
    _print(("", *fix_lines.wrapped(prompt.question, indent="")))
    for number, text in enumerate(prompt.texts, 1):
        _print(fix_lines.wrapped(f"  {number}. {text}", indent="     "))
    leave = len(prompt.texts)
    _print((f"  {leave + 1}. leave; nothing more is changed",))
    picked = _number(leave + 1)
    return FlowAnswer(leave=True) if picked in (None, leave) else FlowAnswer(option=picked)


def _ask_confirmation(preview: Preview) -> FlowAnswer:
    _print(("", *fix_lines.wrapped(f"{preview.title}:", indent="  ")))
    _print(fix_lines.preview_lines(preview))
    if preview.typed is not None:
        typed = read_line(f"type {clean(preview.typed)} to go on: ", sys.stdout)
        if typed is None or typed != preview.typed:
            tell("Not confirmed; nothing was done.")
            return FlowAnswer(declined=True)
        return FlowAnswer(typed=typed)
    return FlowAnswer(confirmed=True) if agreed("Go on?", sys.stdout) else FlowAnswer(declined=True)


def _in_terminal(command: TerminalCommand) -> FlowAnswer:
    """Ctrl+c there is for that program; answers in a pipe are not its input."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        done = subprocess.run(
            command.argv,
            cwd=command.cwd,
            env={**os.environ, **command.environment},
            stdin=None if sys.stdin.isatty() else subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        tell(clean(f"{command.argv[0]}: {error.strerror}."))
        return FlowAnswer(declined=True)
    finally:
        signal.signal(signal.SIGINT, before)
    return FlowAnswer(exit_status=done.returncode)


def _number(most: int) -> int | None:
    """From 0; None at the end of the input. Asks again for anything else."""
    while (said := read_line(f"Choose [1-{most}]: ", sys.stdout)) is not None:
        if said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= most:
            return int(said[:9]) - 1
        tell(f"A number from 1 to {most}.")
    return None


def _progress(sentence: str) -> None:
    tell(clean(sentence))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()
