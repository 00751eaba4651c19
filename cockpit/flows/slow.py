"""Slower than expected: data first, then the CPU, clocks, neighbours, and the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import kills, looks, reruns
from cockpit.flows.flow import Check, Flow, Judged, Known, Remedy, is_about
from cockpit.model.profile import StepProfile
from cockpit.model.text import clean, plural

DATA_CAUSES = frozenset({"dataloader", "num_workers_low"})
"""One trouble, seen from two sides."""
_HOT = frozenset({"thermal", "power_brake", "power_limit_lowered"})
"""Causes that no look inside the run and no other start of it changes."""
_HEAT = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
PROFILED_STEPS = 10
MUCH_OF_A_STEP = 0.3
"""From here on waiting for data is worth a change."""
MOST_WORKERS = 16


def _profile_of(known: Known) -> StepProfile | None:
    """The last one that was taken in this flow."""
    return next((one.profile for one in reversed(known.done) if one.profile is not None), None)


def _is_off_gpu(known: Known) -> bool:
    """The run that it is about is on no card, though this machine has one."""
    run, its = known.run, known.process
    if run is None or run.state != "running" or not known.snapshot.gpus:
        return False
    return not (its is not None and its.devices) and not any(d.reserved_bytes for d in run.devices)


def _causes(known: Known) -> frozenset[str]:
    rows = {
        one.cause
        for one in known.snapshot.findings
        if one.flow == "slow" and (one.pid is None or is_about(one, known.request.pid))
    }
    profile = _profile_of(known)
    if profile is not None and profile.data_share >= MUCH_OF_A_STEP:
        rows.add("dataloader")
    return frozenset((rows | {known.cause}) - {""})


def _pace(known: Known) -> Judged:
    run = known.run
    if run is None or run.steps_per_s is None:
        return None
    return "note", f"{run.steps_per_s:.3g} steps a second; it is at step {run.step}."


def _time_of_a_step(known: Known) -> Judged:
    profile = _profile_of(known)
    if profile is None:
        return None
    waits = profile.data_share >= MUCH_OF_A_STEP
    return ("bad" if waits else "note"), profile.sentence


def _device(known: Known) -> Judged:
    if not _is_off_gpu(known):
        return None
    how = f"cockpit fix no-cuda --pid {known.request.pid}"
    return "bad", f"It holds no memory of any GPU: it computes on the CPU. Not meant so? {how}"


def _clocks(known: Known) -> Judged:
    return looks.now(known, _clocks_now(known), _HOT)


def _clocks_now(known: Known) -> Judged:
    if known.snapshot.driver.error is not None or _is_off_gpu(known):
        return None
    for one in known.snapshot.gpus:
        if known.gpu not in (None, one.index):
            continue
        hot = sorted(set(one.throttle_reasons or ()) & _HEAT)
        if hot:
            words = ", ".join(hot)
            return "bad", f"GPU {one.index} is slowed down: {words} at {one.temperature_c} °C."
    return "ok", "Neither heat nor a power brake slows the card."


def _neighbours(known: Known) -> Judged:
    others = [
        one
        for one in known.holders()
        if not kills.is_same_job(known, one) and not kills.is_idle(one)
    ]
    if known.request.pid is None or _is_off_gpu(known):
        return None
    if not others:
        return "ok", "Nobody else computes on this card."
    first = kills.words(others[0])
    if len(others) == 1:
        return "bad", f"1 other process computes there: {first}."
    return "bad", f"{plural(len(others), 'other process')} compute there, such as {first}."


def _is_only_hot(known: Known) -> bool:
    """Heat or power is what there is: by a finding, or by what the driver says of the clocks."""
    causes = _causes(known)
    judged = _clocks_now(known) if not known.is_of_log else None
    return (bool(causes) and causes <= _HOT) or (
        not causes and judged is not None and judged[0] == "bad"
    )


def _profile(known: Known) -> Iterator[Remedy]:
    if _is_only_hot(known):
        return
    run = known.run
    if run is not None and run.state == "running" and not _profiled(known):
        values = {"pid": run.pid, "start_ticks": run.start_ticks, "op": "profile"}
        yield Remedy(
            "operation",
            values | {"steps": PROFILED_STEPS},
            because="It tells how the time of a step is spent: data, copies, kernels, NCCL.",
            is_look=True,
        )
    elif known.process is not None and run is None and known.process.framework == "pytorch":
        yield Remedy(
            "attach",
            {"pid": known.process.pid, "start_ticks": known.process.start_ticks},
            because="With a look inside the run, steps can be counted and profiled.",
        )


def _profiled(known: Known) -> bool:
    return _profile_of(known) is not None


def _precision(known: Known) -> Iterator[Remedy]:
    if "no_mixed_precision" not in _causes(known):
        return
    run = known.run
    if run is not None and run.state == "running":
        values = {"pid": run.pid, "start_ticks": run.start_ticks, "op": "set"}
        values |= {"name": "matmul_precision", "value": "high"}
        yield Remedy("operation", values, because="fp32 products on the tensor cores (TF32), live.")
    yield from reruns.in_bf16(known, "The tensor cores idle while fp32 is computed.")


def _data(known: Known) -> Iterator[Remedy]:
    if not _causes(known) & DATA_CAUSES:
        return
    workers = workers_for(known)
    title = f"load data in {plural(workers, 'worker')}"
    because = "The GPU waits for data; workers make the next batches while it computes."
    yield from reruns.change(known, "workers", str(workers), title, because)
    yield from reruns.ask_help(known, "workers", "It may have an option for the loader's workers.")
    yield from reruns.patch(known, "dataloader", because, workers=workers)


def workers_for(known: Known) -> int:
    """Cores for each rank, at most so many; the loader's own process keeps one."""
    ranks = max(1, (known.process.world_size or 1) if known.process is not None else 1)
    return max(1, min(MOST_WORKERS, (known.snapshot.host.cpu_count or 2) // ranks - 1))


def _cores(known: Known) -> Iterator[Remedy]:
    if "cpu_oversubscribed" in _causes(known):
        because = "More threads than cores only wait for each other."
        yield from reruns.change(
            known, "workers", str(max(1, workers_for(known) // 2)), "fewer workers", because
        )
        yield from reruns.rerun(
            known, title="one thread a process", because=because, setting="one_thread"
        )


def _memory(known: Known) -> Iterator[Remedy]:
    """An allocator that gives blocks back at every step to find room makes the device wait."""
    if "alloc_retries" not in _causes(known):
        return
    because = "Memory is so tight that the allocator empties its cache again and again."
    yield from reruns.rerun(
        known,
        title="let segments grow (expandable_segments)",
        because=because,
        setting="expandable_segments",
    )
    yield from reruns.rerun(
        known,
        title="halve the batch",
        because="With less of the card in use nothing has to be given back.",
        halve="batch",
    )


def _sync(known: Known) -> Iterator[Remedy]:
    if "sync" in _causes(known):
        because = "Each such line makes the CPU wait until the GPU has finished."
        yield from reruns.patch(known, "sync_free", because)


def _neighbour(known: Known) -> Iterator[Remedy]:
    if "shared_gpu" in _causes(known) and len(known.snapshot.gpus) > 1:
        yield from reruns.rerun(
            known,
            title="start it on the freest GPU",
            because="Two jobs on one card take turns.",
            freest_gpu=True,
        )


def _end_first(known: Known) -> Iterator[Remedy]:
    """A changed command or source counts from the next start on; only where there is a change."""
    changes = (_precision, _data, _sync, _cores, _memory, _neighbour)
    offered = {one.kind for offer in changes for one in offer(known)}
    if known.process is not None and offered & {"relaunch", "patch"}:
        yield from kills.job(
            known, "A change counts from the next start on, and for that this one has to end first."
        )


def _edit(known: Known) -> Iterator[Remedy]:
    where = known.fact("place")
    if isinstance(where, str) and _causes(known) & {"sync", "launch_bound", "dataloader"}:
        finding = known.finding
        code = [fix for fix in finding.fixes if fix.kind == "code-change"] if finding else []
        if code:
            yield Remedy(
                "edit",
                {"place": where, "suggestion": clean(code[0].value)},
                because=code[0].why,
            )


FLOW = Flow(
    id="slow",
    title="Slower than expected",
    checks=(
        Check("What does the diagnosis say?", looks.diagnosed),
        looks.live,
        Check("Where?", looks.place),
        Check("How fast is it?", _pace),
        Check("Where does its time go?", _time_of_a_step),
        Check("On a GPU?", _device),
        Check("Throttled?", _clocks),
        Check("Neighbours?", _neighbours),
        Check("Can it be started again?", looks.command_line),
    ),
    offers=(
        reruns.after_patch,
        _precision,
        _data,
        _sync,
        _cores,
        _memory,
        _neighbour,
        _profile,
        _edit,
        _end_first,
        kills.survivors,
        reruns.from_diagnosis,
    ),
    questions=(looks.WHICH,),
    needs=frozenset({"command", "pace", "findings"}),
    good="Nothing slows this run down that can be seen from here.",
    is_of_a_run=True,
)
