"""What one step of a checkup comes to, before it becomes a Check, and what the steps share."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.diagnose.answer import diagnose
from cockpit.model.checkup import Check, CheckStatus
from cockpit.model.checkup_facts import Facts
from cockpit.model.finding import Evidence, Fix

SPEAKS = frozenset(
    (
        *("lib_rm_version_mismatch", "no_permission", "unknown", "no_devices", "no_such_gpu"),
        *("gpu_is_lost", "irq_issue", "insufficient_power", "timeout"),
    )
)
"""Errors of NVML that only a loaded driver (or one that hangs) gives."""

Done = Mapping[str, Check]
"""The steps before, by id."""


@dataclass(frozen=True)
class Verdict:
    """Status and sentence, and what the repairs of the cause need to know."""

    status: CheckStatus
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    fixes: tuple[Fix, ...] = ()
    """Before those of the cause."""


def passed(sentence: str, *evidence: Evidence) -> Verdict:
    """All is well."""
    return Verdict("pass", sentence, evidence)


def silent(reason: str) -> Verdict:
    """Nothing to say, and why."""
    return Verdict("not_applicable", reason)


def seen(source: str, text: str) -> Evidence:
    """One thing that was read, and where."""
    return Evidence(text=text, line=None, source=source)


def told(source: str, text: str | None, last: int = 4) -> tuple[Evidence, ...]:
    """The last lines of foreign words."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return tuple(seen(source, line[:400]) for line in lines[-last:])


def command(title: str, value: str, why: str, *, admin: bool = False, verify: str = "") -> Fix:
    """A command to type."""
    return Fix(
        title=title,
        kind="command",
        value=value,
        risk="admin" if admin else "safe",
        why=why,
        loses="nothing",
        verify=verify or "run `cockpit doctor` again",
    )


def setting(title: str, value: str, why: str) -> Fix:
    """An environment variable for the next start."""
    return Fix(
        title=title,
        kind="env",
        value=value,
        risk="safe",
        why=why,
        loses="nothing",
        verify="run `cockpit doctor` again",
    )


def driver_speaks(facts: Facts) -> bool:
    """NVML says something that it could not without a driver in the kernel."""
    error = facts.snapshot.driver.error
    return error is None or error.code in SPEAKS


def kernel_is_hidden(facts: Facts) -> bool:
    """A driver answers, and the kernel shows nothing of it: a sandbox, or a stand-in for it."""
    kernel = facts.kernel
    seen_here = kernel is not None and (kernel.gpus or kernel.module_version or kernel.wsl)
    return driver_speaks(facts) and not seen_here and not facts.nodes


def waits_for(done: Done, *ids: str) -> Verdict | None:
    """``not_applicable`` where a step that this one needs did not pass."""
    for id_ in ids:
        before = done.get(id_)
        if before is not None and before.status == "fail":
            return silent(f"Not tried: {before.title} failed.")
    return None


def cause_in(text: str | None) -> str | None:
    """The known cause in a traceback or a warning, by the signs that logs are read with."""
    if not text:
        return None
    found = diagnose(io.BytesIO(text.encode()))
    return None if found.cause in ("unknown", "benign", "recovered") else found.cause
