"""Which flow it is, where none was named, or where the log is of another one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.flows import FLOWS, reruns
from cockpit.flows.flow import Known
from cockpit.flows.vram_held import unaccounted
from cockpit.model.flow import FlowId, Found
from cockpit.model.ledger import Ledger
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean, sentence

HARMLESS = frozenset({"benign", "recovered"})
MOST_TOLD = 3
"""Of the runs that failed: the choice of the run shows them all."""
SURE = 0.8
"""Confidence from which a log's finding counts more than the flow that was asked for."""
_NAMES: dict[FlowId, str] = {
    "oom": "an out-of-memory",
    "no-cuda": "training on the CPU by mistake",
    "kernel-fault": "an error of a kernel or device",
    "slow": "a run that is only slow",
    "multi-gpu": "a failure between several GPUs",
    "vram-held": "memory that is held by an ended run",
    "first-run": "a first step that fails",
}
_EXPLAINED = frozenset({"context_overhead", "unified_memory", "mig", "readings_raced", "graphics"})


def shows_trouble(snapshot: Snapshot) -> bool:
    """There is no need to wait for more."""
    if snapshot.findings or snapshot.driver.error is not None:
        return True
    return any(one.stray is not None for one in snapshot.processes)


def flow_of(known: Known, by_finding: FlowId | None) -> FlowId | None:
    """By the driver, an error, own strays, memory without an owner, or a warning: in this order."""
    asked, finding = known.request, known.finding
    if asked.has_subject:
        return by_finding
    if known.snapshot.driver.error is not None:
        return "first-run"
    if by_finding is not None and finding is not None and finding.severity == "error":
        return by_finding
    if any(one.stray and known.may_end(one) for one in known.snapshot.processes):
        return "vram-held"
    if any(_is_unexplained(one) for one in unaccounted(known)):
        return "vram-held"
    return by_finding


def _is_unexplained(ledger: Ledger) -> bool:
    return not any(one.kind in _EXPLAINED for one in ledger.explanations)


def seen(known: Known) -> Found:
    """What stands above the question what is wrong."""
    what, finding = "Anything seen?", known.finding
    if known.snapshot.driver.error is not None:
        words = clean(sentence(known.snapshot.driver.error.message))
        return Found(mark="bad", what=what, sentence=f"The driver: {words}")
    if finding is None:
        nothing = "Nothing that the cockpit can see is wrong just now."
        return Found(mark="ok", what=what, sentence=nothing)
    mark = {"unknown": "unknown", "benign": "ok", "recovered": "ok"}.get(finding.cause, "bad")
    return Found(mark=mark, what=what, sentence=f"{clean(finding.title)}.")  # type: ignore[arg-type]


def failed(runs: Sequence[str]) -> Iterator[Found]:
    """Kept runs that failed: one of them may be what is wrong."""
    for run in runs[:MOST_TOLD]:
        yield Found(mark="note", what="Failed lately", sentence=f"{run}.")
    if runs:
        more = f"{len(runs) - MOST_TOLD} more. " if len(runs) > MOST_TOLD else ""
        words = f"{more}Say what it was; then the run can be chosen."
        yield Found(mark="note", what="Is it one of these?", sentence=words)


def is_harmless(known: Known) -> bool:
    """Of a log, and certain. Where it only shows no error, the user may still know of one."""
    finding = known.finding
    if finding is None or known.is_live:
        return False
    return finding.cause in HARMLESS and finding.confidence >= SURE


def harmless(known: Known) -> Iterator[Found]:
    """What the log shows, what ended the run instead, and what is advised about that."""
    finding = known.finding
    assert finding is not None
    words = f"{clean(finding.title)}. {clean(finding.explanation)}"
    yield Found(mark="ok", what="What does the log say?", sentence=words)
    for one in finding.evidence[:2]:
        yield Found(mark="note", what="Seen", sentence=clean(one.text))
    fatal = known.fact("fatal")
    if isinstance(fatal, str):
        yield Found(mark="bad", what="What ended the run?", sentence=clean(fatal))
    for fix in finding.fixes:
        words = clean(f"{fix.title}: {reruns.filled(known, fix.value)}")
        yield Found(mark="note", what="Advice", sentence=words)


def nothing_to_repair(known: Known) -> str:
    """How such a flow ends."""
    fatal = known.fact("fatal")
    if isinstance(fatal, str):
        return f"Nothing to repair on the GPU. What really ended the run: {clean(fatal)}"
    return "Nothing to repair: what this log shows is no failure, or the run got over it."


def other_flow(asked: FlowId, known: Known, by_finding: FlowId | None) -> FlowId | None:
    """The one that a log is of, where that is certain, and not the one that was asked for."""
    finding = known.finding
    if by_finding is None or by_finding == asked or finding is None or known.done:
        return None
    if known.is_live or known.process is not None or finding.confidence < SURE:
        return None
    return None if (asked, by_finding) == ("first-run", "no-cuda") else by_finding


def goes_on_as(asked: FlowId, other: FlowId, known: Known) -> tuple[Found, ...]:
    """Said first of all."""
    assert known.finding is not None
    title = clean(known.finding.title)
    words = f"This is not {_NAMES[asked]}: {title}. It goes on as: {FLOWS[other].title}."
    return (Found(mark="note", what="The right flow?", sentence=words),)


def failed_otherwise(asked: FlowId, known: Known) -> tuple[Found, ...]:
    """What the run that a fix has started failed of, where this flow is not about that."""
    finding = known.finding
    if not known.failed_anew or finding is None or finding.flow == asked:
        return ()
    more = f" More of it: cockpit fix {finding.flow}." if finding.flow in FLOWS else ""
    words = f"{clean(finding.title)}.{more}"
    return (Found(mark="bad", what="What did the new run fail of?", sentence=words),)
