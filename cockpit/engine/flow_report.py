"""A flow that has ended, as the Markdown report of flows/report.py."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit import __version__
from cockpit.flows import report
from cockpit.model.flow import Ended, FlowState, Found
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import size


def markdown(state: FlowState, at_first: Sequence[Found], snapshot: Snapshot | None) -> str:
    """What was seen, done, and how it came out; secrets are masked.

    ``at_first``: what was found before anything was done; empty for a flow that was taken up again.
    """
    assert isinstance(state.prompt, Ended)
    return report.markdown(
        state.title,
        state.subject or "none in particular",
        at_first or state.found,
        state.done,
        state.prompt.sentence,
        _environment(snapshot) if snapshot is not None else {},
        seen_last=state.found if at_first and state.done else (),
    )


def _environment(snapshot: Snapshot) -> dict[str, str]:
    rows = {"gpu-cockpit": __version__, "taken at": snapshot.taken_at}
    if snapshot.driver.version is not None:
        rows["driver"] = snapshot.driver.version
    for gpu in snapshot.gpus:
        rows[f"GPU {gpu.index}"] = (
            f"{gpu.name or '?'}, {size(gpu.memory_used_bytes)} of "
            f"{size(gpu.memory_total_bytes)} used"
        )
    return rows
