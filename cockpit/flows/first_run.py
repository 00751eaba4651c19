"""From a bare machine to the first training step on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import looks, no_cuda, reruns
from cockpit.flows.flow import Flow, Known, Remedy


def _first_step(known: Known) -> Iterator[Remedy]:
    """Once no step fails: the small success, seen with one's own eyes."""
    if known.checkup is not None and not any(one.status == "fail" for one in known.checkup.checks):
        yield Remedy(
            "first_step",
            {"python": known.checkup.subject.python},
            final=True,
            because="Every step below is in order; this is the proof.",
        )


FLOW = Flow(
    id="first-run",
    title="The first training step on this machine",
    checks=(looks.checkup,),
    offers=(_first_step, no_cuda.installs, reruns.from_checkup),
    needs=frozenset({"checkup"}),
)
