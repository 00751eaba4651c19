"""What is wrong, why we think so, what to do. One struct for live findings, logs, doctor."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from cockpit.model.event import Severity


class Fix(Struct, frozen=True, kw_only=True):
    """One thing to do about a finding."""

    title: str
    kind: Literal["command", "env", "code-change", "in-process", "kill", "hardware", "wait"]
    value: str
    risk: Literal["safe", "confirm", "admin"]
    why: str
    loses: str
    verify: str


class Evidence(Struct, frozen=True, kw_only=True):
    """A sentence or a log line that a finding rests on."""

    text: str
    line: int | None
    source: str


class Also(Struct, frozen=True, kw_only=True):
    """A second cause that the same evidence allows."""

    cause: str
    why: str


class Finding(Struct, frozen=True, kw_only=True):
    """One diagnosis."""

    flow: str
    cause: str
    severity: Severity
    confidence: float
    title: str
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    facts: dict[str, Any] = {}
    fixes: tuple[Fix, ...] = ()
    also: tuple[Also, ...] = ()
    not_: tuple[str, ...] = field(default=(), name="not")
    """What it is not, each with its reason (``not`` in JSON, a word that Python reserves)."""
    gpu: int | None = None
    pid: int | None = None
