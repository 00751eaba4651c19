"""Offers that start the run again, changed or not, patch its source, or explain what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cockpit.flows.flow import Known, Remedy
from cockpit.model.finding import Fix

_ONLY_TOLD = ("hardware", "wait")


def rerun(
    known: Known,
    *,
    title: str,
    because: str,
    setting: str | None = None,
    environment: Mapping[str, str] | None = None,
    unset: tuple[str, ...] = (),
    freest_gpu: bool = False,
    halve_batch: bool = False,
    final: bool = True,
) -> Iterator[Remedy]:
    """The run's own command with one thing changed. None where its command is not known."""
    if known.command is None:
        return
    values: dict[str, Any] = {
        "title": title,
        "of": known.command.argv,  # half of 16 is another fix than half of 32
        "setting": setting,
        "environment": tuple(sorted((environment or {}).items())),
        "unset": unset,
        "freest_gpu": freest_gpu,
        "halve_batch": halve_batch,
    }
    yield Remedy("relaunch", values, because=because, final=final)


def change(known: Known, meaning: str, value: str, title: str, because: str) -> Iterator[Remedy]:
    """With one argument of its own command line changed (its meaning, as act/command_table has
    it); the engine drops the offer where the command has no such argument."""
    if known.command is not None:
        values = {"title": title, "of": known.command.argv, "change": (meaning, value)}
        yield Remedy("relaunch", values, because=because, final=True)


def patch(known: Known, kind: str, because: str, **facts: Any) -> Iterator[Remedy]:
    """A change to the source, where the diagnosis names file and line."""
    place = known.fact("place")
    if isinstance(place, str):
        values = {"kind": kind, "place": place, "facts": tuple(sorted(facts.items()))}
        yield Remedy("patch", values, because=because)


def after_patch(known: Known) -> Iterator[Remedy]:
    """The run again, once its source or its environment was changed in this flow."""
    changed = [one for one in known.done if one.ok and one.undo is not None and not one.undone]
    if changed:
        yield from rerun(
            known,
            title=f"run it again after: {changed[-1].title}",
            because="Only a run shows whether the change helped.",
        )


def from_diagnosis(known: Known) -> Iterator[Remedy]:
    """What the diagnosis advises and the cockpit cannot do itself: told, with the exact words."""
    finding = known.finding
    if finding is None:
        return
    for fix in finding.fixes:
        if fix.risk == "admin" and fix.kind == "command":
            yield _told("admin", fix)
        elif fix.kind in _ONLY_TOLD or fix.kind == "command" or known.command is None:
            yield _told("explain", fix)


def _told(kind: str, fix: Fix) -> Remedy:
    values = {
        "title": fix.title,
        "lines": tuple(fix.value.splitlines()),
        "loses": fix.loses,
        "verify": fix.verify,
    }
    return Remedy(kind, values, because=fix.why)


def from_checkup(known: Known) -> Iterator[Remedy]:
    """What the steps of the checkup that fail advise."""
    for check in known.checkup.checks if known.checkup is not None else ():
        if check.status == "fail":
            for fix in check.fixes:
                yield _told("admin" if fix.risk == "admin" else "explain", fix)
