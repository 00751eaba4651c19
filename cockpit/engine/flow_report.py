"""A flow that has ended, as the Markdown report of flows/report.py."""

from __future__ import annotations

from cockpit import __version__
from cockpit.flows import report
from cockpit.model.flow import Done, Ended, FlowState
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import size

_MARKS = {"ok": "well", "bad": "not well", "note": "noted", "unknown": "not known"}


def markdown(state: FlowState, snapshot: Snapshot | None) -> str:
    """What was seen, done, and how it came out; secrets are masked."""
    assert isinstance(state.prompt, Ended)
    seen = [report.Seen(f"{one.what} {one.sentence} ({_MARKS[one.mark]})") for one in state.found]
    return report.markdown(
        state.title,
        state.subject or "none in particular",
        seen,
        [_done(one) for one in state.done],
        state.prompt.sentence,
        _environment(snapshot) if snapshot is not None else {},
    )


def _done(one: Done) -> report.Done:
    preview = Preview(
        title=one.title,
        form="text",
        lines=one.lines,
        risk="confirm",
        loses=one.loses or "nothing",
        verify="",
    )
    outcome = Outcome(
        ok=one.ok,
        sentence=one.sentence,
        verified=one.verified,
        compared=one.compared,
        output=one.output,
        path=one.path,
    )
    return report.Done(preview, outcome, undone=one.undone)


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
