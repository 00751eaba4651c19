"""Simulated PyTorch runs: what their allocators say, how one attaches, what a fix does to them.

Nothing here reaches a real process. The numbers hang on what the simulated process holds, so that
allocated ≤ active ≤ reserved ≤ driver holds at every moment and the driver sees what a fix frees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from cockpit.collect.demo_memory import census_of, segments_of, stacks_of
from cockpit.collect.demo_world import Instance, World
from cockpit.errors import RefusedError, TargetGoneError
from cockpit.model.memory import (
    AttachPlan,
    Census,
    Question,
    RunOutcome,
    RunRequest,
    Segments,
    Stacks,
)
from cockpit.model.run import Run, RunDevice
from cockpit.model.text import GIB, gib

Say = Callable[[str], None]

READY: dict[str, dict[int, str | None]] = {
    "busy": {4711: "llama-8b", 4712: "llama-8b", 4713: None},
    "oom": {4711: None, 9120: None},
}
"""Runs that are attached when the demo begins: pid of the cast, and the name it was given."""
CONTEXT_BYTES = int(0.59 * GIB)
"""588 MiB of context and libraries, as measured on an H200."""
NCCL_BYTES = int(1.81 * GIB)
_STEP_S = 0.57


PROFILE = (
    "measured on: cuda",
    "step: 412.7 ms",
    "data wait: 3.1 ms",
    "forward: 121.4 ms",
    "backward: 243.9 ms",
    "optimizer: 22.6 ms",
    "collective: 18.2 ms",
    "nvjet_tst_256x128_64x4_2x1_v_bz_TNT  88.1  96",
    "flash_fwd_kernel  41.0  32",
)


@dataclass
class _State:
    """What was done to one run."""

    attached: bool
    name: str | None = None
    returned_bytes: int = 0
    expandable: bool = False
    history: bool = False
    precision: str = "highest"
    settings: dict[str, str | float] = field(default_factory=dict)
    attached_by: str = "launch"
    trouble: dict[str, str] = field(default_factory=dict)


class DemoRuns:
    """The runs of a World. Asked by the tick, changed by the threads of requests."""

    def __init__(
        self,
        world: World,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        readonly: bool,
    ) -> None:
        self._world = world
        self._now_s = now_s
        self._sleep = sleep
        self._readonly = readonly
        self._lock = threading.Lock()
        self._states: dict[int, _State] = {}
        self._ready = READY.get(world.scenario.name, {})

    def shrunk(self, alive: list[Instance]) -> list[Instance]:
        """The processes without what empty_cache has given back."""
        with self._lock:
            given = {p: s.returned_bytes for p, s in self._states.items() if s.returned_bytes}
        return [_smaller(i, given.get(i.pid, 0)) for i in alive] if given else alive

    def read(self, alive: list[Instance], now_s: float) -> tuple[Run, ...]:
        """Every attached run; ``alive`` is :meth:`shrunk` already."""
        found = ((instance, self._state(instance)) for instance in alive)
        return tuple(self._run(i, s, now_s) for i, s in found if s is not None and s.attached)

    # -- what is asked

    def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:
        """The sentences of a real preflight. Raises TargetGoneError."""
        instance = self._find(pid, start_ticks)
        state, ticks = self._state(instance), instance.start_ticks
        refusal = self._refusal(instance)
        if state is not None and state.attached:
            sentence = f"pid {pid} has an agent already."
            return AttachPlan(pid=pid, start_ticks=ticks, way="agent", sentence=sentence)
        if refusal is not None:
            return AttachPlan(pid=pid, start_ticks=ticks, way=None, sentence=refusal)
        sentence = (
            f"Attach to pid {pid}? Its main thread is paused about 1 ms and the cockpit agent is "
            "loaded into it."
        )
        return AttachPlan(pid=pid, start_ticks=ticks, way="ptrace", sentence=sentence)

    def attach(self, pid: int, start_ticks: int | None, say: Say) -> RunOutcome:
        """Raises RefusedError, TargetGoneError."""
        plan = self.attach_plan(pid, start_ticks)
        if self._readonly or plan.way is None:
            raise RefusedError("the cockpit is read-only" if self._readonly else plan.sentence)
        say(f"attaching to pid {pid}")
        self._sleep(0.3)
        with self._lock:
            state = self._states.setdefault(pid, _State(attached=True))
            state.attached, state.attached_by = True, "ptrace"
        rank = self._find(pid, start_ticks).process.rank
        who = "" if rank is None else f"rank {rank}, "
        return RunOutcome(ok=True, sentence=f"Attached to pid {pid} ({who}torch 2.11.0+cu130).")

    def ask(self, pid: int, question: Question, deep: bool) -> Census | Segments | Stacks:
        """Raises RefusedError, TargetGoneError."""
        instance = self._find(pid, None)
        state, now_s = self._state(instance), self._now_s()
        if question == "stacks":
            return stacks_of(instance, now_s, agent=state is not None and state.attached)
        if state is None or not state.attached:
            raise RefusedError(f"pid {pid} has no agent: press a to attach.")
        shrunk = self.shrunk([instance])[0]
        device = self._devices(shrunk, state, now_s)[0]
        if question == "census":
            return census_of(device, deep)
        return segments_of(device, pid, state.history, state.expandable)

    def do(self, request: RunRequest, say: Say) -> RunOutcome:
        """Raises RefusedError, TargetGoneError."""
        instance = self._find(request.pid, request.start_ticks)
        state = self._state(instance)
        if self._readonly:
            raise RefusedError("the cockpit is read-only")
        if state is None or not state.attached:
            raise RefusedError(f"pid {request.pid} has no agent: press a to attach.")
        if request.op == "detach":
            with self._lock:
                state.attached = False
            return RunOutcome(ok=True, sentence=f"Detached from pid {request.pid}.")
        say("waiting for the next optimizer step")
        self._sleep(_STEP_S)
        return self._do(request, instance, state)

    # -- effects

    def _do(self, request: RunRequest, instance: Instance, state: _State) -> RunOutcome:
        before = self._devices(self.shrunk([instance])[0], state, self._now_s())
        at = f"{request.op} at step {self._step(instance, self._now_s()):,}".replace(",", " ")
        undo: RunRequest | None = None
        path, sentence = None, f"{at}: nothing to change."
        with self._lock:
            if request.op == "empty_cache":
                state.returned_bytes += _returnable(before[0])
            elif request.op == "set":
                sentence, undo = _set(request, state, at)
            elif request.op == "history":
                sentence, undo = _history(request, state, at)
            elif request.op == "snapshot":
                path = f"/tmp/cockpit-1001/snapshot-{request.pid}-1.pickle"
                sentence = f"{at}: 12.4 MB written."
            elif request.op == "profile":
                sentence = f"Profile of {request.steps or 3} steps taken."
            elif request.op == "gc":
                sentence = f"{at}: 1,204 objects collected, step took 31 ms more."
        after = self._devices(self.shrunk([instance])[0], state, self._now_s())
        if request.op == "empty_cache":
            was, now = before[0].reserved_bytes or 0, after[0].reserved_bytes or 0
            sentence = (
                f"{at}: reserved {gib(was)} → {gib(now)} GiB ({gib(was - now)} GiB returned), "
                "step took 64 ms more."
            )
        return RunOutcome(
            ok=True,
            sentence=sentence,
            before=before,
            after=after,
            undo=undo,
            path=path,
            lines=PROFILE if request.op == "profile" else (),
        )

    # -- numbers

    def _run(self, instance: Instance, state: _State, now_s: float) -> Run:
        stopped = self._world.is_stopped(instance.pid)
        return Run(
            pid=instance.pid,
            start_ticks=instance.start_ticks,
            name=state.name,
            state="stopped" if stopped else "running",
            attached_by=state.attached_by,  # type: ignore[arg-type]
            torch_version="2.11.0+cu130",
            python_version="3.12.3",
            step=self._step(instance, now_s),
            step_age_s=round(now_s % _STEP_S, 2),
            steps_per_s=round(1.0 / _STEP_S, 2),
            cuda_initialized=True,
            devices=self._devices(instance, state, now_s),
        )

    @staticmethod
    def _step(instance: Instance, now_s: float) -> int:
        return int((now_s - instance.born_s) / _STEP_S)

    @staticmethod
    def _devices(instance: Instance, state: _State, now_s: float) -> tuple[RunDevice, ...]:
        leaks = any(hold.grow_gib_per_s > 0.5 for hold in instance.process.holds)
        rows = []
        for hold in instance.process.holds:
            seen = instance.held_bytes(hold, now_s)
            nccl = NCCL_BYTES if instance.process.rank is not None else 0
            reserved, returned = seen - CONTEXT_BYTES - nccl, state.returned_bytes
            if leaks:
                rows.append(_leaking(hold.gpu, seen, reserved, returned))
            else:
                rows.append(_split(hold.gpu, seen, reserved, returned, now_s))
        return tuple(rows)

    # -- who

    def _state(self, instance: Instance) -> _State | None:
        with self._lock:
            known = self._states.get(instance.pid)
            if known is None and instance.process.pid in self._ready:
                name = self._ready[instance.process.pid]
                way = "launch" if name else "ptrace"
                known = _State(attached=True, name=name, attached_by=way)
                self._states[instance.pid] = known
            return known

    def _find(self, pid: int, start_ticks: int | None) -> Instance:
        for instance in self._world.alive(self._now_s()):
            if instance.pid == pid and start_ticks in (None, instance.start_ticks):
                return instance
        raise TargetGoneError(f"pid {pid} does not exist any more.")

    def _refusal(self, instance: Instance) -> str | None:
        pid, process, me = instance.pid, instance.process, self._world.scenario.me
        if not process.visible:
            return f"pid {pid} is not in this /proc: it lives in another namespace."
        if process.user != me:
            return (
                f"pid {pid} belongs to {process.user}; you are {me}. Run the cockpit as "
                f"{process.user}, or with sudo."
            )
        if self._world.is_stopped(pid):
            return (
                f"pid {pid} is stopped (SIGSTOP). Attaching to a stopped process can kill it. "
                f"Continue it first: kill -CONT {pid}"
            )
        return None


def _history(request: RunRequest, state: _State, at: str) -> tuple[str, RunRequest]:
    state.history = request.name != "stop"
    undo = replace(request, name="stop" if state.history else "start")
    if not state.history:
        return f"{at}: allocations are recorded no longer.", undo
    words = "Recording allocations (python stacks, last 100 000 events, about 2 µs each)."
    return words, undo


def _set(request: RunRequest, state: _State, at: str) -> tuple[str, RunRequest | None]:
    name = request.name or "?"
    if name == "expandable_segments":
        old: str | float | bool = state.expandable
        state.expandable = request.value in (True, "True")
    elif name == "matmul_precision":
        old, state.precision = state.precision, str(request.value)
    else:
        old = state.settings.get(name, "default")
        state.settings[name] = request.value or "default"
    undo = replace(request, value=old)
    return f"{at}: {name} {old} → {request.value}.", undo


def _smaller(instance: Instance, bytes_: int) -> Instance:
    if not bytes_:
        return instance
    hold, *rest = instance.process.holds
    less = replace(hold, gib=hold.gib - bytes_ / GIB)
    return replace(instance, process=replace(instance.process, holds=(less, *rest)))


def _returnable(device: RunDevice) -> int:
    reserved, active = device.reserved_bytes or 0, device.active_bytes or 0
    kept = (device.inactive_split_bytes or 0) + (device.private_pool_bytes or 0)
    return (reserved - active - kept) >> 21 << 21


def _split(gpu: int, seen: int, reserved: int, returned: int, now_s: float) -> RunDevice:
    """A trainer whose sequences vary in length: 32 % of its memory lies in split blocks."""
    whole = reserved + returned
    allocated = int(whole * 0.481) + (int(now_s) % 3 << 21)
    return RunDevice(
        gpu=gpu,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        active_bytes=allocated + int(whole * 0.0012),
        inactive_split_bytes=int(whole * 0.3225),
        requested_bytes=int(allocated * 0.992),
        allocated_peak_bytes=int(whole * 0.933),
        reserved_peak_bytes=whole,
        alloc_retries=14,
        ooms=0,
        private_pool_bytes=int(whole * 0.069),
        largest_free_block_bytes=int(1.1 * GIB),
        driver_seen_bytes=seen,
    )


def _leaking(gpu: int, seen: int, reserved: int, returned: int) -> RunDevice:
    """A loop that keeps its losses: everything that comes is allocated."""
    allocated = int((reserved + returned) * 0.962)
    return RunDevice(
        gpu=gpu,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        active_bytes=allocated,
        inactive_split_bytes=int(reserved * 0.012),
        requested_bytes=int(allocated * 0.998),
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved + returned,
        alloc_retries=max(0, (seen - 110 * GIB) // GIB),
        ooms=0,
        private_pool_bytes=0,
        largest_free_block_bytes=412 << 20,
        driver_seen_bytes=seen,
    )
