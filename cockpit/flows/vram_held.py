"""Memory is still full after the run stopped: who holds it, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cockpit.flows import kills, reruns
from cockpit.flows.flow import Check, Flow, Judged, Known, Remedy
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.run import Run
from cockpit.model.text import clean, clean_command, plural, sentence, size

_BASELINE_BYTES = 512 << 20
"""What a driver holds without any client is below this (rules of the family, section 6.1)."""


def _driver(known: Known) -> Judged:
    """Without it nobody knows who holds what."""
    error = known.snapshot.driver.error
    if error is None:
        return None
    return "bad", f"{clean(sentence(error.message))} What to do: cockpit fix first-run."


def _who(known: Known) -> Judged:
    if known.snapshot.driver.error is not None:
        return None
    told = kills.listed([one for one in known.holders() if one.vram_bytes])
    return ("note", f"{told}.") if told else ("ok", "No process holds memory here.")


def _strays(known: Known) -> Judged:
    found = [one for one in known.holders() if one.stray is not None]
    if known.snapshot.driver.error is not None:
        return None
    hidden = [one for one in known.holders() if not one.visible]
    if not found and hidden:
        words = f"{plural(len(hidden), 'holder')} of another namespace, or hidden"
        return "unknown", f"{words}: whether anybody waits for them cannot be seen from here."
    if not found:
        return "ok", "Every holder has somebody who waits for it, as far as can be seen."
    first = found[0].stray
    assert first is not None
    total = size(sum(one.vram_bytes or 0 for one in found))
    foreign = sum(not known.may_end(one) for one in found)
    of_others = f", {foreign} of them not yours" if foreign else ""
    words = f"{plural(len(found), 'stray')} with {total}{of_others}."
    why = first.sentence if len(found) == 1 else f"pid {found[0].pid}: {first.sentence}"
    return "bad", f"{words} {clean(sentence(why))}"


def _idle(known: Known) -> Judged:
    idle = [one for one in known.holders() if one.stray is None and kills.is_idle(one)]
    if not idle:
        return None
    words = ", ".join(f"{one.pid} ({size(one.vram_bytes)})" for one in idle[:4])
    return "note", f"Holding memory and computing nothing now: {words}."


def _others(known: Known) -> Judged:
    rows = [one for one in known.holders() if not known.may_end(one)]
    if not rows or known.uid == 0:
        return None
    held = sum(one.vram_bytes or 0 for one in rows)
    total = size(held or None)
    users = ", ".join(sorted({clean(one.user or "unknown") for one in rows}))
    return "note", f"{total} belong to {users}: only they, or root, can end those."


def unaccounted(known: Known) -> list[Ledger]:
    """Cards with more memory that has no process's name on it than a driver alone holds."""
    rows = [one for one in known.snapshot.ledger if known.gpu in (None, one.gpu)]
    return [one for one in rows if one.unaccounted_bytes > _BASELINE_BYTES]


def without_owner(known: Known) -> Judged:
    """Whether all used memory of the card has a process's name on it."""
    rows = [one for one in known.snapshot.ledger if known.gpu in (None, one.gpu)]
    over = unaccounted(known)
    if not rows:
        return None
    if not over:
        return "ok", "All used memory has a process's name on it."
    one = over[0]
    why = one.explanations[0].sentence if one.explanations else "Nothing explains it."
    return "bad", f"GPU {one.gpu}: {size(one.unaccounted_bytes)} have none. {clean(sentence(why))}"


def _diagnosed(known: Known) -> Judged:
    if known.finding is None or known.finding.flow != "vram-held":
        return None
    return "bad", clean(known.finding.explanation)


def _caches(known: Known) -> Iterator[Remedy]:
    """What an attached process that idles can give back without an end."""
    for run in known.snapshot.runs:
        process = next((one for one in known.holders() if one.pid == run.pid), None)
        if process is None or run.state != "running" or not known.may_end(process):
            continue
        cached = sum(max(0, (d.reserved_bytes or 0) - (d.active_bytes or 0)) for d in run.devices)
        if cached > _BASELINE_BYTES:
            yield Remedy(
                "operation",
                {"pid": run.pid, "start_ticks": run.start_ticks, "op": "empty_cache"},
                because=f"Its allocator keeps {size(cached)} that no tensor uses.",
            )
        if not _is_notebook(process):  # letting go of its frames collects as well
            yield from collect(run)


def collect(run: Run) -> Iterator[Remedy]:
    """Garbage of an attached run: what refers to itself in a circle waits for the collector."""
    if any((one.allocated_bytes or 0) > _BASELINE_BYTES for one in run.devices):
        yield Remedy(
            "operation",
            {"pid": run.pid, "start_ticks": run.start_ticks, "op": "gc"},
            because="Objects that refer to each other keep their tensors until they are collected.",
        )


def _is_notebook(process: Process) -> bool:
    return "ipykernel" in clean_command(process.command, process.name)


def _frames(known: Known) -> Iterator[Remedy]:
    """A notebook's traceback holds the tensors of the frames that failed."""
    attached = {one.pid for one in known.snapshot.runs if one.state == "running"}
    for one in known.holders():
        if not known.may_end(one) or not _is_notebook(one):
            continue
        identity = {"pid": one.pid, "start_ticks": one.start_ticks}
        because = "A notebook keeps the tensors of its last exception and of its outputs."
        if one.pid in attached:
            yield Remedy("operation", identity | {"op": "free_frames"}, because=because)
        else:
            yield Remedy("attach", identity, because=f"{because} To free them, look inside first.")


def own_holders(known: Known) -> Iterator[Remedy]:
    """What the user's other processes on the card can give back, and their end where they idle;
    nothing of the job that the flow is about."""
    ours = {one.pid for one in known.holders() if kills.is_same_job(known, one)}
    for offer in (_frames, _caches, kills.idle_holders):
        for one in offer(known):
            if not ours & {one.values.get("pid"), *one.pids}:
                yield one


def _advised(known: Known) -> Iterator[Remedy]:
    """The diagnosis's own fixes, by hand; what ends processes of this machine is offered above."""
    for one in reruns.from_diagnosis(known):
        is_kill = any(line.startswith("kill ") for line in one.values["lines"])
        yield replace(one, is_spare=True) if is_kill and known.is_live else one


FLOW = Flow(
    id="vram-held",
    title="GPU memory still full after the run stopped",
    checks=(
        Check("What does the diagnosis say?", _diagnosed),
        Check("Does the driver answer?", _driver),
        Check("Who holds it?", _who),
        Check("Strays?", _strays),
        Check("Idle holders?", _idle),
        Check("Other users?", _others),
        Check("Memory without a process?", without_owner),
    ),
    offers=(kills.strays, kills.survivors, _frames, _caches, kills.idle_holders, _advised),
    needs=frozenset(),
    good="No process holds memory that nobody waits for.",
)
