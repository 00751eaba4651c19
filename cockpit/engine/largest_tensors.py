"""The largest tensors of an attached run, and who holds them: a fix that only looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cockpit.act.action import Console
from cockpit.engine.machine import Machine
from cockpit.errors import CockpitError
from cockpit.model.memory import Census
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.text import clean, plural, size

MOST = 12
_PARTLY = "Not all was looked at: these are lower bounds."


@dataclass(frozen=True)
class LargestTensors:
    """Asks the run's agent, which looks in slices of a millisecond, for 2 s at most."""

    machine: Machine
    pid: int

    def preview(self) -> Preview:
        """Asks nobody."""
        return Preview(
            title=f"show the largest tensors of pid {self.pid}",
            form="operation",
            lines=(
                f"ask the agent of pid {self.pid} which tensors its variables lead to",
                "in slices of 1 ms between its own work, for 2 s at most",
            ),
            risk="safe",
            loses="nothing; a step may take a little longer",
            verify="nothing is changed: the largest tensors and their names are shown",
        )

    def run(self, console: Console) -> Outcome:
        """Raises CockpitError with the agent's own sentence."""
        console.say(f"looking at the tensors of pid {self.pid}")
        found = self.machine.ask_run(self.pid, "census", True)
        if not isinstance(found, Census):
            raise CockpitError(f"pid {self.pid} answered something else than was asked.")
        return Outcome(ok=True, sentence=_sentence(found), output=tuple(_lines(found)))


def _sentence(census: Census) -> str:
    count = sum(one.count for one in census.groups)
    if not count:
        return "No tensor was found: the program keeps them where the agent cannot look."
    total = size(sum(one.bytes for one in census.groups))
    partly = "" if census.complete else f" {_PARTLY}"
    return f"{plural(count, 'tensor')} with {total} were found.{partly}"


def _lines(census: Census) -> Iterator[str]:
    """Those of a GPU first: ``4.0 GiB  cuda:0  float32 [4096, 262144]  tensor  losses[3]``."""
    rows = sorted(census.biggest, key=lambda one: (one.device == "cpu", -one.bytes))
    for one in rows[:MOST]:
        shape = ", ".join(str(number) for number in one.shape)
        words = (size(one.bytes), one.device, f"{one.dtype} [{shape}]", one.kind, one.holder)
        yield clean("  ".join(word for word in words if word))
