"""Out of memory: whose memory it is, why it did not fit, and what makes it fit."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import frameworks, kills, looks, reruns, vram_held
from cockpit.flows.flow import Check, Flow, Judged, Known, Remedy
from cockpit.model.text import clean, plural, size

_OUR_SIZE = frozenset(
    {"oom_peak", "oom_growth", "oom_on_rank", "oom_disguised", "oom_graph_pools", "recovered"}
)
"""Causes for which a smaller need of this program helps."""


def _is_our_size(known: Known) -> bool:
    """JAX's pool is what its program fills; that of a serving engine has options of its own."""
    is_jax = known.cause == "oom_pool_budget" and known.framework == "jax"
    return known.cause in _OUR_SIZE or is_jax


def _asked(known: Known) -> Judged:
    if known.finding is None or known.finding.flow != "oom":
        return None
    if known.is_live:
        return "bad", f"{clean(known.finding.title)}. Nothing has failed yet."
    tried, free = known.fact("tried_bytes"), known.fact("free_bytes")
    total = known.fact("total_bytes")
    if not isinstance(tried, int):
        return "bad", clean(known.finding.title) + "."
    words = f"{size(tried)} were asked for"
    if isinstance(free, int):
        words += f" with {size(free)} free"
    if isinstance(total, int):
        words += f" of {size(total)}"
    return "bad", f"{words}. {clean(known.finding.title)}."


def _whose(known: Known) -> Judged:
    others = known.cause == "oom_other_process"
    rows = [one for one in known.holders() if one.vram_bytes]
    now = sum(one.vram_bytes or 0 for one in rows)
    where = f" on GPU {known.gpu}" if known.gpu is not None else ""
    if others:
        held = (
            f" Now they are {plural(len(rows), 'process')} with {size(now)}{where}" if rows else ""
        )
        told = f": {kills.listed(rows)}." if rows else ""
        return "bad", f"Other processes had filled the card.{held}{told}"
    if known.snapshot.driver.error is not None:
        return None
    if not rows and vram_held.unaccounted(known):
        return None  # the next row says it
    if not rows:
        return "ok", f"Nobody holds memory{where} now."
    held = f"{plural(len(rows), 'process')} with {size(now)}{where}"
    return "note", f"Now {held}: {kills.listed(rows)}."


def _without_owner(known: Known) -> Judged:
    """Said only where there is some: no list of processes shows it."""
    judged = vram_held.without_owner(known)
    if judged is None or judged[0] != "bad":
        return None
    return looks.now(known, ("bad", f"{judged[1]} More of it: cockpit fix vram-held."))


def _strays(known: Known) -> Judged:
    if known.snapshot.driver.error is not None:
        return None
    found = [one for one in known.holders() if one.stray is not None]
    if not found:
        return "ok", "None holds memory there."
    total = size(sum(one.vram_bytes or 0 for one in found))
    return "bad", f"{plural(len(found), 'stray')} with {total}, which nobody waits for."


def _fragmentation(known: Known) -> Judged:
    stranded = known.fact("reserved_unalloc_bytes")
    tried = known.fact("tried_bytes")
    if not isinstance(stranded, int) or not isinstance(tried, int):
        return None
    words = f"{size(stranded)} reserved but unused, {size(tried)} asked for"
    return (
        ("bad", f"{words}: yes.") if known.cause == "oom_fragmentation" else ("ok", f"{words}: no.")
    )


def _growth(known: Known) -> Judged:
    live = [one for one in known.snapshot.findings if one.cause == "oom_growth"]
    if known.cause == "oom_growth":
        assert known.finding is not None
        if known.is_live and known.finding.evidence:
            told = " ".join(clean(one.text) for one in known.finding.evidence[:2])
            return "bad", told
        return "bad", clean(known.finding.explanation)
    if live:
        return "bad", clean(live[0].title) + "."
    return None


def _cap(known: Known) -> Judged:
    if known.cause != "oom_fraction_cap":
        return None
    return "bad", "A per-process memory fraction refused it; the card itself had room."


def _expandable(known: Known) -> Iterator[Remedy]:
    """For fragmentation first of all; for others it frees nothing."""
    if known.cause != "oom_fragmentation":
        return
    yield from reruns.rerun(
        known,
        title="let segments grow (expandable_segments)",
        because="The stranded memory becomes usable.",
        setting="expandable_segments",
    )
    run = known.run
    if run is not None and run.state == "running":
        values = {"pid": run.pid, "start_ticks": run.start_ticks, "op": "set"}
        values |= {"name": "expandable_segments", "value": True}
        yield Remedy("operation", values, because="For new segments of the run that goes on.")


def _as_it_was(known: Known) -> Iterator[Remedy]:
    """The same command again, once the card is free."""
    freed = any(one.verified and not one.is_step for one in known.done)
    has_room = bool(known.snapshot.gpus) and not _is_crowded(known)
    if known.cause == "oom_other_process" and (freed or has_room):
        yield from reruns.rerun(
            known, title="start the run again as it was", because=_room_words(known)
        )


def _fullest(known: Known) -> tuple[int, int] | None:
    """(used, total) of the card that it is about; of several the fullest: it may need that one.

    What is used counts, not what processes are seen to hold: a container's or another user's may
    not be listed. Unified memory is the host's, there only holders count.
    """
    held = sum(one.vram_bytes or 0 for one in known.holders())
    rows = [
        (held if one.unified_memory else one.memory_used_bytes or held, one.memory_total_bytes)
        for one in known.snapshot.gpus
        if known.gpu in (None, one.index) and one.memory_total_bytes
    ]
    return max(rows, key=lambda one: one[0] / one[1], default=None)


def _is_crowded(known: Known) -> bool:
    """More than a tenth of the card is in use, by whomever."""
    room = _fullest(known)
    return room is not None and room[0] > room[1] / 10


def _room_words(known: Known) -> str:
    room = _fullest(known)
    if room is None:
        return "Nobody is seen to hold memory there now."
    used, total = room
    return f"{size(max(0, total - used))} of {size(total)} are free there now."


def _other_gpu(known: Known) -> Iterator[Remedy]:
    if known.cause == "oom_other_process" and len(known.snapshot.gpus) > 1:
        yield from reruns.rerun(
            known,
            title="start it on the freest GPU",
            because="There the other processes are not in the way.",
            freest_gpu=True,
        )


def _evaluation(known: Known) -> Iterator[Remedy]:
    """Before the batch of the training, which is not what was too large."""
    if not known.fact("evaluates") or known.cause not in _OUR_SIZE:
        return
    because = "It ran out in the evaluation"
    yield from reruns.rerun(
        known,
        title="halve the batch of the evaluation",
        because=f"{because}: the training and its batch stay as they are.",
        halve="eval_batch",
    )
    yield from reruns.patch(known, "no_grad", f"{because}; without gradients it keeps no graph.")


def _smaller_batch(known: Known) -> Iterator[Remedy]:
    big = known.cause == "oom_other_process" and known.fact("own_is_much")
    if _is_our_size(known) or known.cause == "oom_fragmentation" or big:
        yield from reruns.rerun(
            known,
            title="halve the batch",
            because="Activations shrink with the batch; a known accumulation is doubled with it.",
            halve="batch",
        )
        because = "Where it has an option for the batch, half of it can be tried."
        yield from reruns.ask_help(known, "batch", because)


def _look_inside(known: Known) -> Iterator[Remedy]:
    """Before it fails: whose tensors grow is seen from inside the run."""
    one, run = known.process, known.run
    if run is not None and run.state == "running":
        because = "What grows, or is large, is seen from inside, with the name that holds it."
        yield Remedy("tensors", {"pid": run.pid}, because=because, is_look=True)
        yield from vram_held.collect(run)
    elif known.is_live and one is not None and run is None and known.may_end(one):
        because = "It has not failed yet; its largest tensors and who holds them can then be shown."
        yield Remedy("attach", {"pid": one.pid, "start_ticks": one.start_ticks}, because=because)


def _own_first(known: Known) -> Iterator[Remedy]:
    """The process that fills the card may be one's own: a notebook, a run that keeps a cache."""
    if known.cause == "oom_other_process":
        yield from vram_held.own_holders(known)


def _own_later(known: Known) -> Iterator[Remedy]:
    """Where the program itself is too big, what others give back may be enough all the same."""
    if _is_our_size(known) or known.cause in ("oom_fragmentation", "oom_pool_budget"):
        yield from vram_held.own_holders(known)


def _end_it(known: Known) -> Iterator[Remedy]:
    """Before it fills the card; afterwards it can be started again with half the batch."""
    if known.is_live and known.command is None:
        yield from kills.job(known, "Ended now, it fails nobody else who allocates on this card.")


def _growing(known: Known) -> Iterator[Remedy]:
    if known.cause == "oom_growth":
        yield from reruns.patch(known, "detach_loss", "A kept loss keeps its step's activations.")
        yield from reruns.patch(known, "no_grad", "Evaluation without gradients keeps no graph.")


def _patches(known: Known) -> Iterator[Remedy]:
    if _is_our_size(known):
        yield from reruns.in_bf16(known, "Halves the activations.")
        because = "Most activations are computed again instead of kept: about 30 % more time."
        yield from reruns.change(known, "checkpointing", "on", "recompute activations", because)
        yield from reruns.patch(known, "gradient_checkpointing", because)
        yield from frameworks.smaller(known)


def _fewer_workers(known: Known) -> Iterator[Remedy]:
    """It was the host's memory that ran out, which each worker takes its share of."""
    if known.cause == "host_oom":
        because = "Each worker has its own copy of what the data set touches."
        title = "load data in half as many workers"
        yield from reruns.change(known, "workers", "half", title, because)
        because = "It may have an option for the loader's workers."
        yield from reruns.ask_help(known, "workers", because)


def _good(known: Known) -> str:
    if known.snapshot.driver.error is not None:
        return "Without the driver nobody can tell whether memory is short: cockpit fix first-run."
    return "Nothing is out of memory now."


FLOW = Flow(
    id="oom",
    title="Out of memory",
    checks=(
        Check("What failed?", _asked),
        Check("Whose memory?", _whose),
        Check("Memory without a process?", _without_owner),
        Check("Strays?", _strays),
        Check("A memory limit?", _cap),
        Check("Fragmentation?", _fragmentation),
        Check("Growing?", _growth),
        Check("Can it be started again?", looks.command_line),
    ),
    offers=(
        reruns.after_patch,
        kills.strays,
        kills.survivors,
        _own_first,
        _look_inside,
        _as_it_was,
        _expandable,
        _other_gpu,
        reruns.own_device,
        _growing,
        _evaluation,
        frameworks.serving,
        _smaller_batch,
        frameworks.jax,
        _patches,
        _fewer_workers,
        _own_later,
        kills.end_first,
        _end_it,
        reruns.from_diagnosis,
    ),
    good=_good,
    is_of_a_run=True,
)
