"""``cockpit fix --plain``: a guided flow line by line, for dumb terminals and scripts.

What is shown goes to stdout, progress to stderr. Three kinds of prompt wait for input, and nothing
else does: ``[y/N] ``, ``Choose [1-N]: `` and ``type X to go on: ``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from cockpit.commands.ask import answer, first_tick, open_link, remove_log, tell
from cockpit.commands.kill import parse_target
from cockpit.engine.link import Link
from cockpit.engine.protocol import AnswerFlow, StartFlow
from cockpit.errors import CockpitError, LinkError
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
from cockpit.model.remedy import Preview
from cockpit.model.text import clean
from cockpit.settings import Settings

WIDTH = 96
PATIENCE_S = 24 * 3600.0
"""A fix may be a training that runs to its end."""
MARKS = {"ok": "ok  ", "bad": "!!  ", "note": "-   ", "unknown": "?   "}
_RISKS = {"safe": "changes nothing", "confirm": "changes something", "admin": "administrator"}


def request_of(
    flow: FlowId | None, *, pid: str | None, log: str | None, words: list[str]
) -> FlowRequest:
    """From the command line. Raises UsageError."""
    target = parse_target(pid) if pid is not None else None
    return FlowRequest(
        flow=flow,
        pid=target.pid if target is not None else None,
        start_ticks=target.start_ticks if target is not None else None,
        log=os.path.abspath(log) if log is not None else None,
        command=tuple(words),
        cwd=os.getcwd(),
    )


def run(settings: Settings, request: FlowRequest, *, dry_run: bool) -> int:
    """0 only when a fix was seen to help; else 1. Raises CockpitError with a sentence."""
    link = open_link(settings)
    try:
        first_tick(link)
        return _Walk(link).to_the_end(request, dry_run=dry_run)
    finally:
        link.close(may_kill=False)
        remove_log(link)


class _Walk:
    """One flow, from its start to its end."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._found_shown: set[str] = set()
        self._done_shown = 0
        self._headed = ""

    def to_the_end(self, request: FlowRequest, *, dry_run: bool) -> int:
        id_ = self._link.next_id()
        state = self._given(StartFlow(id=id_, request=request), id_)
        while True:
            self._show(state)
            prompt = state.prompt
            if isinstance(prompt, Ended):
                print(f"\n{clean(prompt.sentence)}", flush=True)
                return 0 if prompt.verified else 1
            if dry_run and isinstance(prompt, Choose):
                _print_all(prompt)
                self._send(state, FlowAnswer(leave=True))
                return 1
            state = self._next(state)

    def _next(self, state: FlowState) -> FlowState:
        """Ask until there is an answer that the engine takes."""
        while True:
            said = _ask(state)
            try:
                return self._send(state, said)
            except LinkError:
                raise
            except CockpitError as error:
                tell(clean(str(error)))
                if said.leave or not sys.stdin.readable():
                    raise
                if isinstance(state.prompt, Confirm | InTerminal):
                    return self._send(state, FlowAnswer(declined=True))

    def _send(self, state: FlowState, said: FlowAnswer) -> FlowState:
        id_ = self._link.next_id()
        return self._given(AnswerFlow(id=id_, flow=state.id, answer=said), id_)

    def _given(self, message: StartFlow | AnswerFlow, id_: int) -> FlowState:
        state = answer(self._link, message, id_, PATIENCE_S).flow
        if state is None:
            raise CockpitError("The engine answered without a flow.")
        return state

    # -- showing

    def _show(self, state: FlowState) -> None:
        head = " · ".join(clean(one) for one in (state.title, state.subject) if one)
        if head != self._headed:
            self._headed = head
            print(f"\n{head}", flush=True)
        for row in state.done[self._done_shown :]:
            print("\n".join(_done_lines(row)), flush=True)
        self._done_shown = len(state.done)
        for found in state.found:
            line = f"  {MARKS[found.mark]}{found.what}  {found.sentence}"
            if line not in self._found_shown:
                self._found_shown.add(line)
                print("\n".join(_wrapped(line, "      ")), flush=True)


def _ask(state: FlowState) -> FlowAnswer:
    prompt = state.prompt
    if isinstance(prompt, Ask):
        return _ask_question(prompt)
    if isinstance(prompt, Choose):
        return _ask_choice(prompt)
    if isinstance(prompt, Confirm):
        return _ask_confirmation(prompt.preview)
    assert isinstance(prompt, InTerminal)
    command = prompt.command
    done = subprocess.run(
        command.argv, cwd=command.cwd, env={**os.environ, **command.environment}, check=False
    )
    return FlowAnswer(exit_status=done.returncode)


def _ask_question(prompt: Ask) -> FlowAnswer:
    print(f"\n{clean(prompt.question)}")
    for number, text in enumerate(prompt.texts, 1):
        print(f"  {number}. {clean(text)}")
    picked = _number(len(prompt.texts))
    return FlowAnswer(leave=True) if picked is None else FlowAnswer(option=picked)


def _ask_choice(prompt: Choose) -> FlowAnswer:
    print("\nWhat can be done:")
    for number, preview in enumerate(prompt.options, 1):
        print("\n".join(_option_lines(number, preview)))
    number = len(prompt.options)
    for title in prompt.undoable:
        number += 1
        print(f"  {number}. take back: {clean(title)}")
    print(f"  {number + 1}. leave; nothing more is changed")
    picked = _number(number + 1)
    if picked is None or picked == number:
        return FlowAnswer(leave=True)
    if picked >= len(prompt.options):
        return FlowAnswer(undo=picked - len(prompt.options))
    return FlowAnswer(option=picked)


def _ask_confirmation(preview: Preview) -> FlowAnswer:
    print("\n".join(_preview_lines(preview, "  ")), flush=True)
    if preview.typed is not None:
        typed = _read(f"type {clean(preview.typed)} to go on: ")
        if typed is None or typed != preview.typed:
            tell("Not confirmed; nothing was done.")
            return FlowAnswer(declined=True)
        return FlowAnswer(typed=typed)
    said = _read(f"{_sentence_case(clean(preview.title))}? [y/N] ")
    if said is not None and said.lower() in ("y", "yes"):
        return FlowAnswer(confirmed=True)
    return FlowAnswer(declined=True)


def _number(most: int) -> int | None:
    """From 0; None at the end of the input. Asks again for anything else."""
    while (said := _read(f"Choose [1-{most}]: ")) is not None:
        if said.isascii() and said.isdigit() and 1 <= int(said) <= most:
            return int(said) - 1
        tell(f"A number from 1 to {most}.")
    return None


def _read(prompt: str) -> str | None:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


# -- lines


def _print_all(prompt: Choose) -> None:
    print("\nWhat would run:")
    for number, preview in enumerate(prompt.options, 1):
        print(f"  {number}. {clean(preview.title)}")
        print("\n".join(_preview_lines(preview, "     ")), flush=True)


def _option_lines(number: int, preview: Preview) -> Iterator[str]:
    cannot = "  [cannot be run]" if preview.refusal is not None else ""
    yield f"  {number}. {clean(preview.title)}  [{_RISKS[preview.risk]}]{cannot}"
    if preview.because:
        yield from _wrapped(f"     {preview.because}", "     ")
    if preview.refusal is not None:
        yield from _wrapped(f"     {preview.refusal}", "     ")


def _preview_lines(preview: Preview, indent: str) -> Iterator[str]:
    for line in preview.lines:
        yield f"{indent}  {clean(line)}"
    if preview.refusal is not None:
        yield from _wrapped(f"{indent}It cannot be run: {preview.refusal}", indent)
    if preview.loses:
        yield from _wrapped(f"{indent}You lose: {preview.loses}", indent)
    if preview.verify:
        yield from _wrapped(f"{indent}Afterwards: {preview.verify}", indent)
    if preview.undo is not None:
        yield from _wrapped(f"{indent}Undo: {preview.undo}", indent)


def _done_lines(row: Done) -> Iterator[str]:
    result = {True: "helped", False: "did not help", None: "not verified"}[row.verified]
    if not row.ok:
        result = "failed"
    yield f"\n  [{result}] {clean(row.title)}"
    yield from _wrapped(f"    {row.sentence}", "    ")
    for one in row.compared:
        yield f"    {clean(one.what)}: {clean(one.before)} -> {clean(one.after)}"
    if not row.ok or row.verified is False:
        for line in row.output[-8:]:
            yield f"    | {clean(line)}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(clean(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [
        ""
    ]


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
