"""From a bare machine to the first training step on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import looks, no_cuda, reruns
from cockpit.flows.flow import Check, Flow, Known, Remedy


def _first_step(known: Known) -> Iterator[Remedy]:
    """Once torch is there and no step fails: the small success, seen with one's own eyes."""
    checkup = known.checkup
    if checkup is None or any(one.status == "fail" for one in checkup.checks):
        return
    if any(one.id == "interpreter" and one.status == "pass" for one in checkup.checks):
        yield Remedy(
            "first_step",
            {"python": checkup.subject.python},
            final=True,
            because="Every step before it is in order; this is the proof.",
        )


def _which_python(known: Known) -> Iterator[Remedy]:
    """Where nobody has torch, only the user knows into which environment it belongs."""
    checks = known.checkup.checks if known.checkup is not None else ()
    is_asked = any(one.id == "interpreter" and one.status == "warn" for one in checks)
    if is_asked and known.snapshot.gpus:
        values = {
            "title": "Name the Python that is to train",
            "lines": (
                "python3 -m venv ~/venv    # where there is none yet",
                "cockpit fix first-run -- ~/venv/bin/python",
            ),
            "loses": "nothing",
            "verify": "",
        }
        yield Remedy("explain", values, because="torch is then offered for it.")


FLOW = Flow(
    id="first-run",
    title="The first training step on this machine",
    checks=(
        Check("Does the driver answer?", looks.driver),
        Check("Whose Python?", no_cuda.whose_python),
        looks.checkup,
    ),
    offers=(
        _first_step,
        no_cuda.installs,
        _which_python,
        no_cuda.from_checkup,
        reruns.from_driver,
    ),
    good=looks.works,
    needs=frozenset({"checkup", "command"}),
)
