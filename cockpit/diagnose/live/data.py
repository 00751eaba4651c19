"""A run that waits for data: by its workers, by itself, or because there are too few CPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.look import Look, LookFrame
from cockpit.diagnose.live.power import normal_cap
from cockpit.diagnose.live.view import View
from cockpit.diagnose.live.where import doing, most_common_frame, place, short_place
from cockpit.model.finding import Evidence
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process

HOST_BUSY_PCT = 90.0
THROTTLED_PCT = 10.0


class Workers(NamedTuple):
    """The loader's children over all looks."""

    number: int
    states: Counter[str]
    cpu_pct: float | None
    """Mean of one, percent of a core."""

    def share(self, state: str) -> float:
        """Of the sightings in this state, 0 to 1."""
        total = sum(self.states.values())
        return self.states[state] / total if total else 0.0


def starved(
    view: View, gpu: Gpu, process: Process, util_pct: float, looks: Sequence[Look]
) -> Claim:
    """The claim for a GPU whose run was seen in the loader in most looks."""
    workers = workers_of(looks)
    kinds = Counter(doing(look.frames) for look in looks)
    waits, loads = kinds["loader"], kinds["loading"]
    itself = loads > waits
    frame = most_common_frame(looks, "loading" if itself else "loader")
    cause = "num_workers_low" if itself else _cause(view, looks, workers)
    seen = f"In {waits + loads} of {len(looks)} looks the training thread"
    verb = "made the batch itself" if itself else "waited in the DataLoader"
    where = f" at {short_place(frame)}" if frame is not None else ""
    return Claim(
        cause=cause,
        title=f"GPU {gpu.index}: waits for data, pid {process.pid}",
        says=(
            said(f"GPU {gpu.index} was {util_pct:.0f} % busy over the last 12 s."),
            said(f"{seen} {verb}{where}.", "stacks"),
            *_worker_words(workers, itself),
            *_cpu_words(view, looks),
        ),
        confidence=0.6 + 0.35 * (waits + loads) / len(looks),
        gpu=gpu.index,
        pid=process.pid,
        facts=_facts(frame, workers, looks, (waits + loads) / len(looks)),
        also=() if cause == "dataloader" else (("dataloader", "the storage may be slow as well"),),
        not_=_not(gpu),
        hold_s=4.0,
        clear_s=20.0,
    )


def _not(gpu: Gpu) -> tuple[str, ...]:
    cap = normal_cap(gpu)
    return (cap,) if cap is not None else ()


def workers_of(looks: Sequence[Look]) -> Workers:
    """How many there are and what they did."""
    states = Counter(worker.state for look in looks for worker in look.workers)
    used = [w.cpu_pct for look in looks for w in look.workers if w.cpu_pct is not None]
    count = max((len(look.workers) for look in looks), default=0)
    return Workers(count, states, sum(used) / len(used) if used else None)


def _cause(view: View, looks: Sequence[Look], workers: Workers) -> str:
    """Workers that want to run and cannot have too few CPUs; others are slow themselves."""
    throttled = [look.throttled_pct for look in looks if look.throttled_pct is not None]
    if throttled and sum(throttled) / len(throttled) >= THROTTLED_PCT:
        return "cpu_oversubscribed"
    cpus = next((look.cpus for look in reversed(looks) if look.cpus), None)
    crowded = workers.share("R") >= 0.6 and (workers.cpu_pct or 100.0) < 70.0
    if crowded and cpus is not None and workers.number > cpus:
        return "cpu_oversubscribed"
    if crowded and (view.snapshot.host.cpu_pct or 0.0) >= HOST_BUSY_PCT:
        return "cpu_oversubscribed"
    return "dataloader"


def _facts(
    frame: LookFrame | None, workers: Workers, looks: Sequence[Look], share: float
) -> dict[str, object]:
    return {
        "place": place(frame),
        "workers": workers.number or None,
        "worker_states": dict(workers.states) or None,
        "cores": next((look.cpus for look in reversed(looks) if look.cpus), None),
        "data_share": round(share, 2),
        "looks": len(looks),
    }


def _worker_words(workers: Workers, itself: bool) -> tuple[Evidence, ...]:
    if not workers.number:
        return (said("It has no worker processes.", "/proc"),) if itself else ()
    names = {"R": "computing", "S": "sleeping", "D": "waiting for the disk"}
    parts = [
        f"{100 * workers.share(state):.0f} % {name}"
        for state, name in names.items()
        if workers.states[state]
    ]
    cpu = f", {workers.cpu_pct:.0f} % of a core each" if workers.cpu_pct is not None else ""
    return (said(f"Its {workers.number} workers: {', '.join(parts) or 'gone'}{cpu}.", "/proc"),)


def _cpu_words(view: View, looks: Sequence[Look]) -> tuple[Evidence, ...]:
    words = []
    throttled = [look.throttled_pct for look in looks if look.throttled_pct is not None]
    if throttled and (mean := sum(throttled) / len(throttled)) >= 1.0:
        words.append(
            said(f"The CPU limit of its cgroup stopped it {mean:.0f} % of the time.", "/proc")
        )
    iowait = view.snapshot.host.iowait_pct
    if iowait is not None and iowait >= 5.0:
        words.append(said(f"The host waits for its disks {iowait:.0f} % of the CPU time.", "/proc"))
    return tuple(words)
