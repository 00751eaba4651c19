"""The first training step on the GPU, seen with one's own eyes: the checkup's small success."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.engine.machine import Machine
from cockpit.model.checkup import CheckupRequest
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.text import clean

PROOF = "small_success"
"""Id of the checkup's step that trains."""


@dataclass(frozen=True)
class FirstStep:
    """An Action."""

    machine: Machine
    python: str | None

    def preview(self) -> Preview:
        """Small: below 64 MiB and a context, for a second."""
        which = f" --python {clean(self.python)}" if self.python else ""
        return Preview(
            title="train a small model on the GPU",
            form="command",
            lines=(f"cockpit doctor{which}",),
            risk="safe",
            loses="nothing; idle GPUs only, a second each",
            verify="forward, backward and an update on the GPU agree with the CPU",
        )

    def run(self, console: Console) -> Outcome:
        """Raises CockpitError."""
        told = self.machine.checkup(CheckupRequest(python=self.python), console.say)
        rows = [one for one in told.checks if one.id == PROOF]
        failed = [one for one in told.checks if one.status == "fail"]
        if failed:
            return Outcome(ok=True, verified=False, sentence=failed[0].sentence)
        if not rows or rows[0].status == "not_applicable":
            why = rows[0].sentence if rows else "The checkup has no such step."
            return Outcome(ok=True, verified=None, sentence=why)
        return Outcome(ok=True, verified=rows[0].status == "pass", sentence=rows[0].sentence)
