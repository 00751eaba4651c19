"""From the remedies that a flow names to the fixes that can be chosen: made, previewed, few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from cockpit.act.action import Action
from cockpit.engine import remedies
from cockpit.engine.machine import Machine
from cockpit.errors import RefusedError, TargetGoneError
from cockpit.flows.flow import Known, Remedy
from cockpit.flows.machine import MOST_OFFERED
from cockpit.model.remedy import Preview

READONLY = "Read-only: nothing is run."


@dataclass(frozen=True)
class Ready:
    """A fix that can be chosen."""

    remedy: Remedy
    action: Action
    preview: Preview


def made(
    wanted: Iterable[Remedy], known: Known, machine: Machine, *, readonly: bool
) -> list[Ready]:
    """In the same order; without those that do not apply here, and without advice that only says
    in words what one of the others does."""
    found: list[Ready] = []
    for remedy in wanted:  # one by one: each kill is a plan of the machine's, and it keeps few
        one = _made(remedy, known, machine, readonly)
        if one is not None:
            found.append(one)
        if sum(not one.remedy.is_spare for one in found) >= MOST_OFFERED:
            break
    if any(one.preview.refusal is None for one in found):
        found = [one for one in found if not one.remedy.is_spare]
    return found[:MOST_OFFERED]


def _made(remedy: Remedy, known: Known, machine: Machine, readonly: bool) -> Ready | None:
    """None: it does not apply here, or the policy forbids it."""
    try:
        action = remedies.build(remedy, known, machine)
        if action is None:
            return None
        preview = action.preview()
    except (TargetGoneError, RefusedError):  # gone since it was looked at; a recording
        return None
    if preview.refusal is not None and remedy.kind == "kill" and not readonly:
        return None  # the checks say whose it is
    return ready(remedy, action, preview, readonly)


def ready(remedy: Remedy, action: Action, preview: Preview, readonly: bool) -> Ready:
    """With the flow's own words, and refused where nothing may be run."""
    title = str(remedy.values.get("title") or preview.title)
    preview = replace(preview, title=title, because=remedy.because)
    if readonly and remedy.kind != "explain":
        preview = replace(preview, refusal=READONLY)
    return Ready(remedy, action, preview)
