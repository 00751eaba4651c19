"""Which keys do something on the troubleshoot page right now: the words of its key line."""

from __future__ import annotations

from typing import NamedTuple

from cockpit.model.flow import Choose, Ended, FlowState
from cockpit.model.remedy import Preview
from cockpit.tui.render.flow_page import Mode, Whole
from cockpit.tui.render.flow_preview import is_by_hand

KeyWord = tuple[str, str]
"""Id of a binding, and what its key does now."""


class Keys(NamedTuple):
    """What the words depend on."""

    mode: Mode
    whole: Whole | None
    state: FlowState | None
    option: Preview | None
    """The fix under the cursor, or the one that is asked about."""
    is_cut: bool
    """It is longer than its pane."""
    end_seen: bool


def can_be_edited(preview: Preview | None) -> bool:
    """Only a command line that may be run."""
    if preview is None or preview.refusal is not None:
        return False
    return preview.form == "command" and bool(preview.lines)


def _starts(preview: Preview | None) -> bool:
    """A run that is started again: only that can be started elsewhere."""
    return preview is not None and any("cockpit run " in line for line in preview.lines)


def key_words(keys: Keys) -> list[KeyWord]:
    """The ones that count first; where room is short the last ones are left out."""
    if keys.whole is None:
        return _by_mode(keys)
    # A whole preview is agreed to like the part of it that the page has room for.
    yes = [one for one in _by_mode(keys) if one[0] == "flow.confirm"]
    return [*(yes if keys.whole == "preview" else []), ("flow.leave", "back")]


def _by_mode(keys: Keys) -> list[KeyWord]:
    if keys.mode == "busy":
        cancel = [("flow.cancel", "cancel")] if keys.state is not None else []
        return [*cancel, ("flow.leave", "leave; it goes on")]
    if keys.mode == "failed":
        return [("flow.report", "try again"), ("flow.leave", "leave")]
    if keys.mode == "ended":
        return _ended(keys)
    if keys.mode in ("confirm", "terminal"):
        return _confirming(keys)
    if keys.mode == "edit":
        return [("flow.confirm", "take this command"), ("flow.leave", "back")]
    if keys.mode == "undo":
        return [("flow.confirm", _yes(keys, "take it back")), ("flow.leave", "back")]
    return _choosing(keys)


def _yes(keys: Keys, words: str) -> str:
    return words if keys.end_seen else "see the rest first"


def _found(keys: Keys) -> list[KeyWord]:
    return [("flow.found", "found")] if keys.state is not None and keys.state.found else []


def _whole(keys: Keys) -> list[KeyWord]:
    return [("flow.whole", "whole")] if keys.is_cut and keys.option is not None else []


def _copy(keys: Keys, words: str) -> list[KeyWord]:
    return [("flow.copy", words)] if keys.option is not None and keys.option.lines else []


def _ended(keys: Keys) -> list[KeyWord]:
    prompt = keys.state.prompt if keys.state is not None else None
    report = [("flow.report", "report"), ("flow.copy", "copy it"), ("flow.write", "write it")]
    has = isinstance(prompt, Ended) and prompt.report
    return [*(report if has else []), *_found(keys), ("flow.leave", "leave")]


def _confirming(keys: Keys) -> list[KeyWord]:
    here = keys.mode == "confirm"
    yes = "run it" if here else "run it in this terminal"
    copy = _copy(keys, "copy" if here else "copy it instead")
    back = ("flow.leave", "back, nothing runs")
    return [("flow.confirm", _yes(keys, yes)), back, *_whole(keys), *copy, *_found(keys)]


def _choosing(keys: Keys) -> list[KeyWord]:
    state = keys.state
    undoable = state is not None and isinstance(state.prompt, Choose) and state.prompt.undoable
    undo = [("flow.undo", "undo")] if undoable else []
    edit = [("flow.edit", "edit")] if can_be_edited(keys.option) else []
    where = [("flow.tmux", "in tmux")] if edit and _starts(keys.option) else []
    by_hand = keys.option is not None and bool(keys.option.lines) and is_by_hand(keys.option)
    leave = "leave" if state is not None and state.done else "leave, nothing was changed"
    return [
        ("flow.confirm", "copy it" if by_hand else "choose"),
        ("flow.leave", leave),
        *_whole(keys),
        *edit,
        *undo,
        *([] if by_hand else _copy(keys, "copy")),
        *_found(keys),
        *where,
    ]
