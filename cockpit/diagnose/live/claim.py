"""What a rule says: a claim. And how a claim that held becomes a Finding with its fixes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cockpit.diagnose.fixes import fill, render
from cockpit.diagnose.tables import fixes_machine, fixes_memory, fixes_runs
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.model.event import Severity
from cockpit.model.finding import Also, Evidence, Finding
from cockpit.model.text import clean

Key = tuple[str, int | None, int | None]
"""Cause, GPU, pid: what is one finding over time."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A cause that one snapshot and its past allow. It is shown once it has held."""

    cause: str
    title: str
    """Short: it shares one line of 80 columns with others."""
    says: tuple[Evidence, ...]
    confidence: float
    gpu: int | None = None
    pid: int | None = None
    severity: Severity | None = None
    """None: the cause's own."""
    facts: dict[str, Any] = field(default_factory=dict)
    also: tuple[tuple[str, str], ...] = ()
    not_: tuple[str, ...] = ()
    hold_s: float = 5.0
    """It has to be claimed for so long before it is shown; 0: at once."""
    share: float = 0.6
    """In so many of the snapshots of that time: readings flicker."""
    clear_s: float = 15.0
    """It disappears after so long without a claim."""
    at_once: bool = False
    """A single snapshot can tell it: ``cockpit snapshot`` does."""
    grouped: bool = False
    """One for the GPU (or the machine), whichever pid stands for it now."""

    @property
    def key(self) -> Key:
        """What stays the same while the numbers move."""
        return self.cause, self.gpu, None if self.grouped else self.pid

    @property
    def weight(self) -> Severity:
        """The severity that it is shown with."""
        return self.severity or CAUSES[self.cause].severity


def said(text: str, source: str = "NVML") -> Evidence:
    """One sentence of evidence and where its numbers come from; harmless for a terminal."""
    return Evidence(text=clean(text), line=None, source=source)


def finding_of(claim: Claim) -> Finding:
    """With the explanation and the repairs of its cause, filled with this claim's values."""
    cause = CAUSES[claim.cause]
    facts = {"gpu": claim.gpu, "pid": claim.pid, **claim.facts}
    # Places and commands are data from outside.
    known = {
        name: clean(value) if isinstance(value, str) else value
        for name, value in facts.items()
        if value is not None
    }
    repair = _REPAIRS.get(claim.cause)
    return Finding(
        flow=cause.flow,
        cause=claim.cause,
        severity=claim.weight,
        confidence=claim.confidence,
        title=clean(claim.title),
        explanation=fill(cause.explanation, known),
        evidence=claim.says,
        facts=known,
        fixes=render(repair, known) if repair is not None else (),
        also=tuple(Also(cause=other, why=why) for other, why in claim.also),
        not_=claim.not_,
        gpu=claim.gpu,
        pid=claim.pid,
    )


_REPAIRS = fixes_memory.REPAIRS | fixes_machine.REPAIRS | fixes_runs.REPAIRS
