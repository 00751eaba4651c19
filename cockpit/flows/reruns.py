"""Offers that start the run again, changed or not, patch its source, or explain what to do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from cockpit.flows.flow import Known, Remedy
from cockpit.model.finding import Fix
from cockpit.model.flow import Done

_ONLY_TOLD = ("hardware", "wait")
_SHOWN = "nvidia-smi --query-compute-apps"
"""Who holds memory: the flow's own checks say it."""
_WITH_BUDGET = ("vllm", "jax")
_BUDGET_OPTIONS = ("--gpu-memory-utilization", "--max-model-len")
_WITHOUT_TORCH = ("tensorflow", "jax")
_RUN = re.compile(r"python <script>|<command>")
_OPEN = re.compile(r"<\w[^<>\n]*>")
"""What an answer could not fill in, such as ``<image>``."""
PIP = " pip install "
"""The cockpit can do that itself, looked at and taken back; by hand where it cannot."""


def rerun(
    known: Known,
    *,
    title: str,
    because: str,
    setting: str | None = None,
    environment: Mapping[str, str] | None = None,
    unset: tuple[str, ...] = (),
    freest_gpu: bool = False,
    halve: str | None = None,
    after: int = 0,
) -> Iterator[Remedy]:
    """The run's own command with one thing changed. None where its command is not known.

    ``halve``: ``batch`` or ``eval_batch``.

    ``after``: so many changes of its source; with one more it is another fix.
    """
    if known.command is None:
        return
    values: dict[str, Any] = {
        "title": title,
        "of": known.command.argv,  # half of 16 is another fix than half of 32
        "setting": setting,
        "environment": tuple(sorted((environment or {}).items())),
        "unset": unset,
        "freest_gpu": freest_gpu,
        "halve": halve,
        "after": after,
    }
    yield Remedy("relaunch", values, because=because, final=True)


def change(known: Known, meaning: str, value: str, title: str, because: str) -> Iterator[Remedy]:
    """With one argument of its own command line changed (its meaning, as act/command_table has
    it); the engine drops the offer where the command has no such argument."""
    if known.command is not None:
        values = {"title": title, "of": known.command.argv, "change": (meaning, value)}
        yield Remedy("relaunch", values, because=because, final=True)


def ask_help(known: Known, meaning: str, because: str) -> Iterator[Remedy]:
    """The script itself, for an option that neither its source nor its command line shows; the
    engine drops the offer where one of these does."""
    if known.command is not None:
        values = {"meaning": meaning, "of": known.command.argv}
        yield Remedy("ask_help", values, because=because, is_step=True)


def patch(known: Known, kind: str, because: str, **facts: Any) -> Iterator[Remedy]:
    """A change to the source, where the diagnosis names file and line. All kinds are PyTorch's."""
    place = known.fact("place")
    if isinstance(place, str) and known.framework == "pytorch":
        values = {"kind": kind, "place": place, "facts": tuple(sorted(facts.items()))}
        yield Remedy("patch", values, because=because)


def in_bf16(known: Known, because: str) -> Iterator[Remedy]:
    """By an option of its own, else in its source; not for a card that would compute it slowly."""
    if known.has_bf16:
        yield from change(known, "precision", "bf16", "compute in bf16", because)
        yield from patch(known, "autocast_bf16", because)


def own_device(known: Known) -> Iterator[Remedy]:
    """Where all ranks came onto one card: each takes its own, and no checkpoint goes back to it."""
    if known.cause in ("duplicate_gpu", "oom_ranks_on_one_gpu"):
        yield from patch(known, "set_device", "Each rank has to take its own card.")
    if known.cause == "oom_ranks_on_one_gpu":
        because = "What was saved on GPU 0 is loaded to GPU 0 by every rank."
        yield from patch(known, "map_location", because)


def changed(known: Known) -> list[Done]:
    """What was changed in this flow, and not taken back: source or environment of the run."""
    return [
        one
        for one in known.done
        if one.ok and not one.undone and one.undo is not None and one.undo.kind in ("patch", "pip")
    ]


def after_patch(known: Known) -> Iterator[Remedy]:
    """The run again, once its source or its environment was changed in this flow."""
    rows = changed(known)
    if rows:
        yield from rerun(
            known,
            title="run it again with what was changed",
            because=f"Only a run shows whether this helped: {rows[-1].title}.",
            after=len(rows),
        )


def from_diagnosis(known: Known) -> Iterator[Remedy]:
    """What the diagnosis advises and the cockpit cannot do itself: told, with the exact words."""
    finding = known.finding
    if finding is None:
        return
    for fix in finding.fixes:
        if fix.value.startswith(_SHOWN) or _is_of_another_framework(known, fix):
            continue
        if fix.risk == "admin" and fix.kind == "command":
            yield _told(known, "admin", fix)
        elif fix.kind in _ONLY_TOLD or fix.kind == "command":
            yield _told(known, "explain", fix, is_spare=PIP in fix.value or _is_run(known, fix))
        else:
            yield _told(known, "explain", fix, is_spare=known.command is not None)


def _is_of_another_framework(known: Known, fix: Fix) -> bool:
    """Words about torch help no program of another one."""
    text = fix.value.lower()
    is_of_torch = "torch" in text or "gradient_checkpointing" in text
    return is_of_torch and known.framework in _WITHOUT_TORCH


def _is_run(known: Known, fix: Fix) -> bool:
    """An option that the cockpit changes itself where it starts the engine (frameworks.py)."""
    starts = known.command is not None and known.framework in _WITH_BUDGET
    return starts and fix.value.startswith(_BUDGET_OPTIONS)


def filled(known: Known, text: str) -> str:
    """With the run's own command line, and the file of its log, where they are known."""
    if known.command is not None:
        command = shlex.join(known.command.argv)
        text = _RUN.sub(lambda _: command, text)
    if known.request.log is not None:
        text = text.replace("<this log>", shlex.quote(known.request.log))
    return text


def _told(known: Known, kind: str, fix: Fix, *, is_spare: bool = False) -> Remedy:
    """What only the user knows makes it words: that is no command yet."""
    value, because = filled(known, fix.value), fix.why
    if _OPEN.search(value):
        kind = "explain"
        because = "; ".join(filter(None, (because, "what stands in <...> is yours to fill in")))
    values = {
        "title": fix.title,
        "lines": tuple(value.splitlines()),
        "loses": fix.loses,
        "verify": fix.verify,
    }
    return Remedy(kind, values, because=because, is_spare=is_spare)


def from_driver(known: Known) -> Iterator[Remedy]:
    """What makes the driver answer, where no checkup could look at its steps."""
    error = known.snapshot.driver.error
    if error is not None and error.advice and known.checkup is None:
        values = {
            "title": "Make the driver answer",
            "lines": error.advice,
            "loses": "nothing",
            "verify": "nvidia-smi lists the GPUs",
        }
        yield Remedy("explain", values, because="Without the driver nothing else can be looked at.")


def from_checkup(known: Known) -> Iterator[Remedy]:
    """What the steps of the checkup that fail advise, and what the diagnosis has besides that.

    The checkup comes first: it has the run's own interpreter and build in its words.
    """
    fixes = [
        fix
        for check in (known.checkup.checks if known.checkup is not None else ())
        if check.status == "fail"
        for fix in check.fixes
    ]
    for fix in fixes:
        is_admin = fix.risk == "admin" and fix.kind == "command"
        yield _told(known, "admin" if is_admin else "explain", fix, is_spare=PIP in fix.value)
    told = {fix.title for fix in fixes}
    for remedy in from_diagnosis(known):
        if remedy.values["title"] not in told:
            yield remedy
