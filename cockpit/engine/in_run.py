"""What is asked of a run and done in it: the agent's answers as structs and sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from cockpit import procfs
from cockpit.attach import attach as attaching
from cockpit.attach import run_oom, stacks
from cockpit.attach.client import AgentError, Client, NoAnswerError
from cockpit.attach.discover import AgentSocket
from cockpit.engine.runs import device_of, device_rows
from cockpit.errors import CockpitError, RefusedError, TargetGoneError
from cockpit.model.memory import (
    AllocationSite,
    AttachPlan,
    BigTensor,
    Census,
    Question,
    RunOutcome,
    RunRequest,
    SegmentRow,
    Segments,
    Stacks,
    TensorGroup,
    ThreadStack,
)
from cockpit.model.run import RunDevice
from cockpit.model.text import gib, words

Say = Callable[[str], None]

QUESTION_LIMIT_S = 10.0
STEP_LIMIT_S = 15.0
"""The agent itself gives up after 10 s without a step."""
SITES_PATIENCE_S = 3.0
"""For a step, after which the segment map is shown without allocations by stack."""
NO_SITES = "Allocations by stack take a snapshot at a training step: not with --readonly."
FROM_OUTSIDE = "Stacks below were read from outside."
PROFILE_STEPS_S = 60.0
"""For a first step, and once more for all that are recorded."""
PROFILE_LIMIT_S = 140.0
GONE = ("gone", "replaced", "ended")
"""Codes of a preflight that says: not that process, or not any more."""
STATES = {"a": "active", "i": "inactive", "p": "pending"}
"""The agent's short names of block states."""
NUMBERS = ("garbage_collection_threshold", "max_split_size_mb")
"""Settings that the agent takes as numbers."""
SNAPSHOT_FILE = re.compile(r"snapshot-\d+-\d+-\d+\.pickle")
GpuByIndex = Mapping[int, int]
"""torch's index of a device → NVML's; one that is missing is the same."""


def plan(pid: int, start_ticks: int | None) -> AttachPlan:
    """Whether and how; changes nothing. Raises TargetGoneError."""
    planned = attaching.plan(pid, start_ticks)
    if planned.agent is not None:
        return AttachPlan(
            pid=pid,
            start_ticks=start_ticks,
            way="agent",
            sentence=f"pid {pid} has an agent already.",
        )
    _raise_if_gone(planned)
    verdict = planned.verdict
    refusal = planned.refusal
    ticks = verdict.start_ticks if verdict is not None else start_ticks
    if refusal is not None or verdict is None or verdict.way is None:
        sentence = refusal or f"There is no way into pid {pid}."
        code = verdict.refusal.code if verdict is not None and verdict.refusal else None
        return AttachPlan(pid=pid, start_ticks=ticks, way=None, sentence=sentence, code=code)
    return AttachPlan(pid=pid, start_ticks=ticks, way=verdict.way, sentence=planned.confirm)


def attach(pid: int, start_ticks: int | None, say: Say) -> tuple[RunOutcome, AgentSocket | None]:
    """After the confirmation: in, and the first answer. Raises RefusedError, TargetGoneError."""
    planned = attaching.plan(pid, start_ticks)
    _raise_if_gone(planned)
    if planned.refusal is not None:
        raise RefusedError(planned.refusal)
    say(f"attaching to pid {pid}")
    outcome = attaching.run(planned, say=say)
    if outcome.state == "gone":
        raise TargetGoneError(outcome.sentence)
    if outcome.state == "refused":
        raise RefusedError(outcome.sentence)
    return RunOutcome(ok=outcome.state == "attached", sentence=outcome.sentence), outcome.agent


def _raise_if_gone(planned: attaching.Plan) -> None:
    refusal = planned.verdict.refusal if planned.verdict is not None else None
    if refusal is not None and refusal.code in GONE:
        raise TargetGoneError(refusal.sentence)


def ask(
    socket: AgentSocket | None,
    pid: int,
    question: Question,
    deep: bool,
    gpus: GpuByIndex,
    *,
    readonly: bool = False,
) -> Census | Segments | Stacks:
    """Raises CockpitError with the agent's or our own sentence.

    ``readonly``: no allocations by stack, which cost a training step.
    """
    if question == "stacks":
        return _stacks(socket, pid)
    if socket is None:
        raise _no_agent(pid)
    with Client.connect(pid, socket.path) as client:
        if question == "census":
            return _census(client.call("census", QUESTION_LIMIT_S, deep=deep), deep)
        found = _segments(client.call("snapshot", QUESTION_LIMIT_S, traces=False), gpus)
        if not client.call("hello").get("history"):
            return found
        if readonly:
            return msgspec.structs.replace(found, sentence=NO_SITES)
        try:
            return msgspec.structs.replace(found, sites=_sites(client, socket, gpus))
        except CockpitError as error:  # the map itself is worth showing
            return msgspec.structs.replace(found, sentence=str(error))


def do(socket: AgentSocket | None, request: RunRequest, say: Say, gpus: GpuByIndex) -> RunOutcome:
    """One operation at the next step of the run. Raises CockpitError with a sentence."""
    check_identity(socket, request.pid, request.start_ticks)
    if request.op == "detach":
        outcome = attaching.detach(request.pid)
        return RunOutcome(ok=outcome.state == "detached", sentence=outcome.sentence)
    if socket is None:
        raise _no_agent(request.pid)
    idle = request.op == "free_frames"
    say(f"waiting for {'the running cell to end' if idle else 'the next optimizer step'}")
    limit = PROFILE_LIMIT_S if request.op == "profile" else STEP_LIMIT_S
    with Client.connect(request.pid, socket.path) as client:
        data = client.call(request.op, limit, **_arguments(request))
    with _readable("The answer"):
        return _outcome(request, data, gpus)


def check_identity(socket: AgentSocket | None, pid: int, start_ticks: int | None) -> None:
    """The process, and the one that answers, is the one that was meant. Raises TargetGoneError."""
    if start_ticks is None:
        return
    stat = procfs.stat("/proc", pid)
    if isinstance(stat, procfs.Stat) and stat.start_ticks != start_ticks:
        raise _replaced(pid)
    if socket is None:
        return
    with Client.connect(socket.pid, socket.path) as client:
        if client.call("hello").get("start_ticks") != start_ticks:
            raise _replaced(pid)


def _replaced(pid: int) -> TargetGoneError:
    return TargetGoneError(f"pid {pid} is another process now: nothing was done.")


def _no_agent(pid: int) -> CockpitError:
    stat = procfs.stat("/proc", pid)
    if stat.reason == "gone" if isinstance(stat, procfs.Gap) else stat.dead:
        return TargetGoneError(f"pid {pid} has ended.")
    return RefusedError(f"pid {pid} has no agent: press a to attach.")


def _arguments(request: RunRequest) -> dict[str, Any]:
    if request.op == "set":
        return {"name": request.name, "value": request.value}
    if request.op == "history":
        return {"action": request.name or "start"}
    if request.op == "snapshot":
        return {"traces": True}
    if request.op == "profile":
        return {"steps": request.steps or 3, "timeout_s": PROFILE_STEPS_S}
    if request.op == "free_frames":
        return {"out": request.name == "out"}
    return {}


# -- answers


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """AgentError for a row that is no row or a frame without its line, whatever that raises."""
    try:
        yield
    except (msgspec.ValidationError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AgentError(f"{what} cannot be read: {error}", "bad_reply") from error


def _outcome(request: RunRequest, data: Mapping[str, Any], gpus: GpuByIndex) -> RunOutcome:
    before, after = _rows(data.get("before"), gpus), _rows(data.get("after"), gpus)
    return RunOutcome(
        ok=True,
        sentence=_sentence(request, data, before, after),
        before=before,
        after=after,
        undo=_undo(request, data),
        path=data.get("path") if isinstance(data.get("path"), str) else None,
        lines=_profile_lines(data) if request.op == "profile" else (),
    )


def _rows(rows: Any, gpus: GpuByIndex) -> tuple[RunDevice, ...]:
    return tuple(device_of(row, _gpu(int(row.get("index", 0)), gpus)) for row in device_rows(rows))


def _gpu(index: int, gpus: GpuByIndex) -> int:
    return gpus.get(index, index)


def _sentence(
    request: RunRequest,
    data: Mapping[str, Any],
    before: tuple[RunDevice, ...],
    after: tuple[RunDevice, ...],
) -> str:
    at = f"{request.op} at step {data.get('step', 0):,}".replace(",", " ")
    took = f"step took {float(data.get('step_took_more_ms') or 0):.0f} ms more."
    if request.op == "empty_cache":
        was, now = _reserved(before), _reserved(after)
        return f"{at}: reserved {gib(was)} → {gib(now)} GiB ({gib(was - now)} GiB returned), {took}"
    if request.op == "gc":
        return f"{at}: {int(data.get('collected') or 0)} objects collected, {took}"
    if request.op == "free_frames":
        return _freed(data, _reserved(before) - _reserved(after))
    if request.op == "set":
        return f"{request.name} is now {data.get('value', request.value)} (was {data.get('old')})."
    if request.op == "history":
        if data.get("recording"):
            entries = int(data.get("max_entries") or 0)
            return f"Recording allocations (python stacks, last {entries} events, about 2 µs each)."
        return "Allocations are not recorded any more."
    if request.op == "snapshot":
        return f"Snapshot written to {data.get('path')}."
    return f"Profile of {request.steps or 3} steps taken."


def _freed(data: Mapping[str, Any], returned_bytes: int) -> str:
    what = ["the last exception"] if data.get("exception") else []
    if data.get("results"):
        what.append(f"{int(data['results'])} kept results")
    told = f"Let go of {' and '.join(what)}" if what else "The kernel keeps no exception"
    return f"{told}: {gib(returned_bytes)} GiB returned."


def _reserved(rows: tuple[RunDevice, ...]) -> int:
    return sum(row.reserved_bytes or 0 for row in rows)


def _undo(request: RunRequest, data: Mapping[str, Any]) -> RunRequest | None:
    if request.op == "set" and data.get("old") is not None:
        old = data["old"]
        if request.name in NUMBERS and old != "default":  # the allocator tells all as text
            old = float(old)
        return msgspec.structs.replace(request, value=old)
    if request.op == "history" and data.get("recording"):
        return msgspec.structs.replace(request, name="stop")
    return None


def _profile_lines(data: Mapping[str, Any]) -> tuple[str, ...]:
    flat = [(k, v) for k, v in data.items() if isinstance(v, int | float | str)]
    lines = [_figure(name, value) for name, value in flat]
    for kernel in data.get("top") or ():
        if isinstance(kernel, dict):
            lines.append("  ".join(str(value) for value in kernel.values()))
    return tuple(lines)


def _figure(name: str, value: object) -> str:
    """``data wait: 3.1 ms``."""
    unit = " ms" if name.endswith("_ms") else ""
    return f"{words(name.removesuffix('_ms'))}: {value}{unit}"


def _census(data: Mapping[str, Any], deep: bool) -> Census:
    with _readable("The census"):
        return Census(
            groups=msgspec.convert(data.get("tensors") or (), tuple[TensorGroup, ...]),
            biggest=msgspec.convert(data.get("biggest") or (), tuple[BigTensor, ...]),
            deep=deep,
            complete=bool(data.get("complete")),
            sentence=msgspec.convert(data.get("sentence"), str | None),
        )


def _segments(data: Mapping[str, Any], gpus: GpuByIndex) -> Segments:
    with _readable("The segment map"):
        rows = tuple(_segment(row, gpus) for row in data.get("segments") or ())
        return Segments(segments=rows, left_out=int(data.get("segments_left_out") or 0))


def _segment(row: Mapping[str, Any], gpus: GpuByIndex) -> SegmentRow:
    private = bool(row.get("private"))
    return msgspec.convert(
        {
            "device": _gpu(row["device"], gpus),
            "address": row["address"],
            "bytes": row["bytes"],
            "allocated_bytes": row["allocated_bytes"],
            "active_bytes": row["active_bytes"],
            "stream": row.get("stream"),
            "pool": "private" if private else row.get("kind"),
            "expandable": bool(row.get("expandable")),
            "runs": [(STATES.get(state, "pending"), size) for state, size in row["runs"]],
        },
        SegmentRow,
    )


def _sites(client: Client, socket: AgentSocket, gpus: GpuByIndex) -> tuple[AllocationSite, ...]:
    """torch tells stacks in a snapshot with traces only, which the agent writes into its folder.

    It is asked for where the cockpit itself has history on, which was confirmed with these words
    (``act/in_process.py``): one step takes up to 0.7 s longer. The name is the agent's: only such
    a file beside its socket is read, and removed, for nobody else asked for it.

    Raises CockpitError.
    """
    told = client.call("snapshot", STEP_LIMIT_S, traces=True, timeout_s=SITES_PATIENCE_S)
    name = os.path.basename(str(told.get("path")))
    if not SNAPSHOT_FILE.fullmatch(name):
        raise AgentError(f"pid {client.pid} names no snapshot.", "bad_reply")
    path = os.path.join(os.path.dirname(socket.path), name)
    try:
        found = run_oom.allocations_by_stack(path)
    except (OSError, ValueError) as error:
        raise CockpitError(f"The snapshot of pid {client.pid} cannot be read: {error}") from error
    finally:
        with suppress(OSError):
            os.unlink(path)
    return tuple(
        AllocationSite(
            device=_gpu(int(row["device"] or 0), gpus),
            bytes=row["bytes"],
            count=row["count"],
            frames=tuple(f"{file}:{line} {function}" for file, line, function in row["frames"]),
        )
        for row in found
    )


def _stacks(socket: AgentSocket | None, pid: int) -> Stacks:
    """By the agent; from outside where it does not answer: then something holds the GIL."""
    why = None
    if socket is not None:
        try:
            with Client.connect(pid, socket.path) as client:
                return Stacks(threads=_threads(client.call("stacks")), read_by="agent")
        except NoAnswerError:
            why = f"pid {pid} does not answer: something holds the GIL. {FROM_OUTSIDE}"
        except AgentError as error:
            why = f"{error} {FROM_OUTSIDE}"
    dump = stacks.dump(pid)
    if dump.failure is not None:
        raise CockpitError(dump.failure)
    main = dump.main
    return Stacks(
        threads=tuple(
            ThreadStack(
                name=thread.thread_name or str(thread.thread_id),
                is_training=thread is main,
                frames=tuple(frame.place for frame in thread.frames),
            )
            for thread in dump.threads
        ),
        read_by="py-spy",
        sentence=why,
    )


def _threads(data: Mapping[str, Any]) -> tuple[ThreadStack, ...]:
    with _readable("What its agent says of the threads"):
        return tuple(
            ThreadStack(
                name=str(thread.get("name")),
                is_training=bool(thread.get("training")),
                frames=tuple(f"{file}:{line} {name}" for file, line, name in thread["frames"]),
            )
            for thread in data.get("threads") or ()
        )
