"""Takes an installation of torch back: the versions of before, and nothing that came with it."""

from __future__ import annotations

import os

import msgspec

from cockpit.act import interpreter as interpreters
from cockpit.act.action import Console
from cockpit.act.child import Ended
from cockpit.act.pip import Pip, masked, pip_of
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Compared, Outcome, UndoRecord
from cockpit.model.text import clean, plural

Changed = dict[str, tuple[str | None, str | None]]
"""Normalised name → its line of ``pip freeze`` before and after; None: it was not there."""


def undo(record: UndoRecord, console: Console) -> Outcome:
    """Raises RefusedError when the environment has been changed since, or is not ours any more."""
    data = record.data
    python = data["python"]
    found = interpreters.ask(python, int(data["uid"]))
    why = interpreters.refusal(found, python)
    if why is not None:
        raise RefusedError(why)
    if found.prefix != data["prefix"]:
        raise RefusedError(f"{clean(python)} belongs to another environment now.")
    if not os.path.isdir(data["folder"]):
        raise CockpitError(f"The kept versions in {clean(data['folder'])} are gone.")
    changed = _changed(data["changed"])
    pip = pip_of(found, python, data["folder"])
    now = pip.freeze()
    other = [name for name, (_, after) in changed.items() if now.get(name) != after]
    if other:
        raise RefusedError(
            f"{clean(', '.join(other))} changed since in {clean(found.prefix)}: "
            f"take what you need from {clean(data['folder'])}/freeze.txt by hand."
        )
    ended = _restore(pip, changed, data["host"], console)
    return _outcome(pip, changed, ended)


def _changed(text: str) -> Changed:
    try:
        return msgspec.json.decode(text, type=Changed)
    except msgspec.MsgspecError as error:
        raise CockpitError(f"The record of what was changed cannot be read: {error}.") from error


def _restore(pip: Pip, changed: Changed, host: str, console: Console) -> Ended:
    """First the old ones, in one command, which replaces nothing before it has all of them."""
    old = [_spec(before) for before, _ in changed.values() if before is not None]
    new = [name for name, (before, _) in changed.items() if before is None]
    ended = Ended(0, ())
    for source in _sources(old, host) if old else ():
        argv = pip.install([*source, "--no-deps", "--force-reinstall", *old])
        console.say(masked(" ".join(argv)))
        ended = pip.run(argv, console)
        if ended.ok or ended.interrupted:
            break
    if ended.ok and new:
        argv = pip.remove(new)
        console.say(" ".join(argv))
        ended = pip.run(argv, console)
    return ended


def _spec(line: str) -> str:
    """``torch==2.7.0+cpu``, or ``torch @ file:///…`` of what came from a file or repository."""
    return line.removeprefix("-e ")


def _sources(specs: list[str], host: str) -> list[list[str]]:
    """Local versions are only on torch's indexes, each on the one of its name."""
    tags = sorted({spec.partition("+")[2] for spec in specs if "==" in spec and "+" in spec})
    more = [word for tag in tags for word in ("--extra-index-url", f"{host}/{tag}")]
    if len(tags) == 1:
        # where all is on one index, no other has to answer
        return [["--index-url", f"{host}/{tags[0]}"], more]
    return [more]


def _outcome(pip: Pip, changed: Changed, ended: Ended) -> Outcome:
    try:
        now = pip.freeze()
    except CockpitError as error:
        sentence = f"Whether all is as before cannot be seen: {error}"
        return Outcome(ok=False, sentence=sentence, output=ended.lines[-20:], path=pip.folder)
    wrong = [name for name, (before, _) in changed.items() if now.get(name) != before]
    compared = tuple(
        Compared(what=name, before=clean(after or "none"), after=clean(now.get(name, "none")))
        for name, (_, after) in changed.items()
    )
    if wrong:
        reason = ended.last("ERROR: ")
        sentence = f"{clean(', '.join(wrong))} could not be taken back"
        sentence += f": {reason}" if reason else ": it was stopped." if ended.interrupted else "."
    else:
        sentence = f"{plural(len(changed), 'package')} as before."
    return Outcome(
        ok=not wrong,
        sentence=sentence,
        verified=not wrong,
        compared=compared,
        output=ended.lines[-20:],
        path=pip.folder,
    )
