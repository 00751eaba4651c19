"""What an attached run tells about its memory when it is asked: census, segments, stacks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cockpit.model.profile import StepProfile
from cockpit.model.run import RunDevice

Question = Literal["census", "segments", "stacks"]
"""What can be asked of a run without changing anything in it."""

Operation = Literal[
    "gc", "empty_cache", "history", "set", "snapshot", "profile", "detach", "free_frames"
]
"""What can be done in a run; each needs one confirmation. ``free_frames``: only in a notebook."""


class TensorGroup(Struct, frozen=True, kw_only=True):
    """Tensors of one kind on one device."""

    kind: str
    """``parameter``, ``gradient``, ``optimizer``, ``buffer``, ``tensor`` …"""
    device: str
    dtype: str
    count: int
    bytes: int


class BigTensor(Struct, frozen=True, kw_only=True):
    """One of the biggest tensors, and who holds it."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    bytes: int
    kind: str | None = None
    holder: str | None = None
    """Such as ``model.layers.0.weight`` or ``train.py:12 losses``; data from outside: clean it."""


class Census(Struct, frozen=True, kw_only=True):
    """Modules, parameters and tensors by device and dtype."""

    groups: tuple[TensorGroup, ...] = ()
    biggest: tuple[BigTensor, ...] = ()
    deep: bool = False
    """False: only what the optimizers know. True: every object was looked at."""
    complete: bool = True
    """False: the time budget ended the walk; the numbers are a lower bound."""
    sentence: str | None = None
    """What a person should know about these numbers."""


class SegmentRow(Struct, frozen=True, kw_only=True):
    """One segment (cudaMalloc) of the caching allocator and how it is filled."""

    device: int
    address: int
    bytes: int
    allocated_bytes: int
    active_bytes: int
    stream: int | None = None
    pool: str | None = None
    """``small``, ``large``, or a private pool (CUDA graph)."""
    expandable: bool = False
    runs: tuple[tuple[str, int], ...] = ()
    """(state, bytes) of neighbouring blocks in order: ``active``, ``inactive``, ``pending``."""


class AllocationSite(Struct, frozen=True, kw_only=True):
    """Live memory by the line that asked for it (only while history is recorded)."""

    device: int
    bytes: int
    count: int
    frames: tuple[str, ...]
    """Innermost first, ``file:line function``; data from outside: clean it."""


class Segments(Struct, frozen=True, kw_only=True):
    """The segment map of a run."""

    segments: tuple[SegmentRow, ...] = ()
    sites: tuple[AllocationSite, ...] = ()
    left_out: int = 0
    """Segments beyond what an answer holds."""
    sentence: str | None = None
    """Why there are no sites although history is recorded, such as "No optimizer step …"."""


class ThreadStack(Struct, frozen=True, kw_only=True):
    """Where one thread is."""

    name: str
    is_training: bool
    frames: tuple[str, ...]
    """Innermost first, ``file:line function``; data from outside: clean it."""


class Stacks(Struct, frozen=True, kw_only=True):
    """Where the threads of a process are, and who looked."""

    threads: tuple[ThreadStack, ...]
    read_by: Literal["agent", "py-spy"]
    sentence: str | None = None
    """Why it had to be read from outside, such as "something holds the GIL"."""


class RunRequest(Struct, frozen=True, kw_only=True):
    """One operation in one run."""

    pid: int
    op: Operation
    start_ticks: int | None = None
    """With the pid the identity; None: whoever has the pid (a shell command names it)."""
    name: str | None = None
    """Of the setting, for ``set``; ``start`` or ``stop``, for ``history``; ``out``, for
    ``free_frames``: the kept results of cells (Out) go as well."""
    value: str | float | bool | None = None
    steps: int | None = None
    """For ``profile``."""


class RunOutcome(Struct, frozen=True, kw_only=True):
    """What an operation in a run came to."""

    ok: bool
    sentence: str
    before: tuple[RunDevice, ...] = ()
    after: tuple[RunDevice, ...] = ()
    undo: RunRequest | None = None
    path: str | None = None
    """A file that was written (snapshot)."""
    lines: tuple[str, ...] = ()
    """More to read (a profile)."""
    profile: StepProfile | None = None


class AttachPlan(Struct, frozen=True, kw_only=True):
    """Whether and how a process can be attached to."""

    pid: int
    start_ticks: int | None
    way: Literal["agent", "remote_exec", "ptrace", "gdb"] | None
    """``agent``: one is there already. None: it cannot be done."""
    sentence: str
    """The question to confirm, or why it cannot be done."""
    code: str | None = None
    """Of a refusal: not_permitted, stopped, busy, traced, not_python, unsupported."""
