"""A job on several GPUs that hangs: where each rank is, which one is elsewhere, and a new start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cockpit.flows import kills, looks, reruns
from cockpit.flows.flow import Check, Flow, Judged, Known, Mark, Remedy
from cockpit.model.flight import FlightKind, FlightRow, is_users_own
from cockpit.model.flow import Found
from cockpit.model.memory import Stacks
from cockpit.model.text import clean, plural, sentence

IDLE_PCT, SPIN_PCT = 10.0, 95.0
"""Utilisation of a GPU whose rank computes nothing, and of one whose rank waits in NCCL."""
_MARKS: dict[FlightKind, Mark] = {
    "behind": "bad",
    "mismatch": "bad",
    "not_begun": "bad",
    "same": "note",
    "alone": "note",
    "missing": "unknown",
    "unread": "unknown",
}


def place_of(stacks: Stacks) -> str:
    """Where the training thread is: its innermost frame that is the user's own."""
    thread = next((one for one in stacks.threads if one.is_training), None)
    if thread is None or not thread.frames:
        return "no Python frame"
    own = [one for one in thread.frames if is_users_own(one)]
    return clean((own or thread.frames)[0])


def grouped(known: Known) -> dict[str, list[int]]:
    """Place → pids of the ranks that are there, the fullest place first."""
    places: dict[str, list[int]] = defaultdict(list)
    for pid, stacks in known.stacks.items():
        places[place_of(stacks)].append(pid)
    return dict(sorted(places.items(), key=lambda one: -len(one[1])))


def odd_one(known: Known) -> tuple[int, str] | None:
    """(pid, place) of the rank that is not where all others are; None: no single one.

    Of two ranks the one that is not inside a collective is the odd one. Where both are in lines of
    the user's (NCCL is waited for in ``loss.item()``), the GPUs tell.
    """
    places = grouped(known)
    if len(places) != 2:
        return None
    outside = {
        place: pids
        for place, pids in places.items()
        if not any(_in_collective(known.stacks[pid]) for pid in pids)
    }
    if len(outside) == 1 and len(next(iter(outside.values()))) == 1:
        place, pids = next(iter(outside.items()))
        return pids[0], place
    place, pids = list(places.items())[-1]
    if len(known.stacks) > 2:
        return (pids[0], place) if len(pids) == 1 else None
    return _idle_one(known, places)


def _idle_one(known: Known, places: dict[str, list[int]]) -> tuple[int, str] | None:
    """Whoever waits in NCCL keeps its GPU at 100 %; the one that is waited for does not."""
    busy = {pid: _utilization(known, pid) for pid in known.stacks}
    idle = [pid for pid, pct in busy.items() if pct is not None and pct < IDLE_PCT]
    if len(idle) != 1:
        return None
    if any(pct is None or pct < SPIN_PCT for pid, pct in busy.items() if pid != idle[0]):
        return None
    return idle[0], next(place for place, pids in places.items() if idle[0] in pids)


def _utilization(known: Known, pid: int) -> float | None:
    """Of the GPU that a process is on; None: of none, of several, or not known."""
    process = next((one for one in known.snapshot.processes if one.pid == pid), None)
    if process is None or len(process.devices) != 1:
        return None
    index = process.devices[0].gpu
    return next((g.utilization_pct for g in known.snapshot.gpus if g.index == index), None)


def _in_collective(stacks: Stacks) -> bool:
    thread = next((one for one in stacks.threads if one.is_training), None)
    words = ("distributed_c10d", "/nn/parallel/", "torch/distributed/", "all_reduce", "barrier")
    return thread is not None and any(word in one for one in thread.frames[:8] for word in words)


def recorded(known: Known) -> tuple[FlightRow, int | None] | None:
    """The row of the flight recorder that accuses one rank, and its pid while it lives.

    None: it accuses nobody, or several.
    """
    rows = [one for one in known.flight if one.ranks]
    accused = {rank for one in rows for rank in one.ranks}
    if len(accused) != 1:
        return None
    rank = next(iter(accused))
    alive = [one.pid for one in known.snapshot.processes if one.rank == rank]
    return rows[0], next((pid for pid in known.stacks if pid in alive), None)


def rank_name(known: Known, pid: int) -> str:
    """``rank 3 (pid 4711)``."""
    process = next((one for one in known.snapshot.processes if one.pid == pid), None)
    if process is None or process.rank is None:
        return f"pid {pid}"
    return f"rank {process.rank} (pid {pid})"


def _ranks(known: Known) -> Iterator[Found]:
    for place, pids in grouped(known).items():
        names = ", ".join(rank_name(known, pid) for pid in pids[:4])
        more = f" and {len(pids) - 4} more" if len(pids) > 4 else ""
        what = f"{plural(len(pids), 'rank')} here"
        yield Found(mark="note", what=what, sentence=f"{place}: {names}{more}.")


def _flight(known: Known) -> Iterator[Found]:
    what = "What does the flight recorder say?"
    for row in known.flight:
        yield Found(mark=_MARKS[row.kind], what=what, sentence=sentence(row.sentence))


def _odd(known: Known) -> Judged:
    odd = odd_one(known)
    if odd is not None:
        return "bad", f"{rank_name(known, odd[0])} is at {odd[1]}; the others wait for it."
    named = recorded(known)
    if named is not None:
        pid = named[1]
        if pid is None:
            return None
        at = f"{rank_name(known, pid)} is at {place_of(known.stacks[pid])}"
        return "bad", f"{at}; by the flight recorder the others wait for it."
    if len(known.stacks) < 2:
        return None
    return "unknown", "No single rank is elsewhere than the others."


def _guilty_line(known: Known) -> tuple[str, str] | None:
    """(place, why just this one): by the stacks, for they are of now; else by the dumps."""
    waiting = "This is the line at which the others are kept waiting."
    odd = odd_one(known)
    if odd is not None:
        return odd[1], waiting
    named = recorded(known)
    if named is None:
        return None
    row, pid = named
    if pid is not None:
        return place_of(known.stacks[pid]), waiting
    if row.place is None:
        return None
    behind = "The rank came to this collective, and not to the next one."
    other = "The rank's call that the others do not go on with."
    return clean(row.place), behind if row.kind == "behind" else other


def _edit(known: Known) -> Iterator[Remedy]:
    guilty = _guilty_line(known)
    if guilty is not None:
        file, _, rest = guilty[0].rpartition(":")
        line = rest.split(" ")[0]
        if file and line.isdigit():
            yield Remedy(
                "edit",
                {
                    "place": f"{file}:{line}",
                    "suggestion": "All ranks have to make the same calls: no collective inside a "
                    "branch that only some take, no long work of one rank before one.",
                },
                because=guilty[1],
            )


def _end(known: Known) -> Iterator[Remedy]:
    yield from kills.job(known, "One rank alone cannot be ended: the others would hang on.")


def _other_port(known: Known) -> Iterator[Remedy]:
    """As it was, it would meet the same port again."""
    if known.cause == "port_in_use":
        yield from reruns.rerun(
            known,
            title="start it again with another master port",
            because="The port that the ranks meet at is taken by another process.",
            setting="master_port",
        )


def _again(known: Known) -> Iterator[Remedy]:
    """With what makes the next hang tell more, once this job is gone."""
    if known.process is None and known.cause != "port_in_use" and not known.ended_well:
        yield from reruns.rerun(
            known,
            title="start it again with the diagnostics on",
            because="If it hangs again, each rank writes down its last collectives when NCCL's "
            "time-out comes (10 minutes, if the run sets no other): this flow then compares them.",
            setting="hang_diagnostics",
        )
        if not reruns.changed(known):
            because = "If it hung by chance only; the same hang may come again."
            yield from reruns.rerun(known, title="start it again as it was", because=because)
    if known.cause == "p2p_acs":
        yield from reruns.rerun(
            known,
            title="start it again without peer-to-peer",
            because="PCIe peer traffic does not arrive; without it NCCL goes through host memory.",
            setting="nccl_p2p_off",
        )


FLOW = Flow(
    id="multi-gpu",
    title="A job on several GPUs hangs or fails",
    checks=(
        Check("What does the diagnosis say?", looks.diagnosed),
        looks.live,
        _ranks,
        _flight,
        Check("The odd one?", _odd),
        Check("Xids?", looks.xids),
        Check("Can it be started again?", looks.command_line),
    ),
    offers=(
        reruns.after_patch,
        _edit,
        reruns.own_device,
        _end,
        kills.survivors,
        _other_port,
        _again,
        reruns.from_diagnosis,
    ),
    questions=(looks.WHICH,),
    needs=frozenset({"command", "stacks", "flight"}),
    good="All ranks go on.",
    is_of_a_run=True,
)
