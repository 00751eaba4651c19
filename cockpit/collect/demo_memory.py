"""What a simulated run answers when it is asked: census, segment map, stacks.

Made up, but coherent: the segments add up to what its allocator reserved.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from cockpit.collect.demo_world import Instance
from cockpit.model.memory import (
    AllocationSite,
    BigTensor,
    Census,
    SegmentRow,
    Segments,
    Stacks,
    TensorGroup,
    ThreadStack,
)
from cockpit.model.run import RunDevice
from cockpit.model.text import GIB, MIB

_LARGE = 2 * GIB
_SMALL = 2 * MIB
_SMALL_COUNT = 24


def segments_of(device: RunDevice, pid: int, history: bool, expandable: bool) -> Segments:
    """Split, free, graph and small segments that add up to the device's numbers."""
    rows = [*_small(device), *_large(device, expandable)]
    placed = []
    address = 0x7F00_0000_0000 + (pid << 24)
    for row in rows:
        placed.append(_at(row, address))
        address += row.bytes + (64 << 20)
    sites = _sites(device) if history else ()
    return Segments(segments=tuple(placed), sites=sites)


def _at(row: SegmentRow, address: int) -> SegmentRow:
    return replace(row, address=address)


def _row(
    device: int,
    runs: list[tuple[str, int]],
    pool: str,
    expandable: bool = False,
) -> SegmentRow:
    active = sum(size for state, size in runs if state != "inactive")
    pending = sum(size for state, size in runs if state == "pending")
    return SegmentRow(
        device=device,
        address=0,
        bytes=sum(size for _, size in runs),
        allocated_bytes=active - pending,
        active_bytes=active,
        stream=0,
        pool=pool,
        expandable=expandable,
        runs=tuple(runs),
    )


def _small(device: RunDevice) -> Iterator[SegmentRow]:
    for number in range(_SMALL_COUNT):
        used = _SMALL * (7 + number % 3) // 10
        yield _row(device.gpu, [("active", used), ("inactive", _SMALL - used)], "small")


def _large(device: RunDevice, expandable: bool) -> Iterator[SegmentRow]:
    reserved, active = device.reserved_bytes or 0, device.active_bytes or 0
    stuck, pools = device.inactive_split_bytes or 0, device.private_pool_bytes or 0
    whole = max(0, reserved - active - stuck - pools)
    small = _SMALL * _SMALL_COUNT
    small_free = sum(_SMALL - _SMALL * (7 + n % 3) // 10 for n in range(_SMALL_COUNT))
    pending = active - (device.allocated_bytes or 0)
    active, stuck = active - (small - small_free), max(0, stuck - small_free)
    sizes = _cut(active + stuck, _LARGE)
    for number, size in enumerate(sizes):
        share = _share(stuck, number, sizes)
        waiting = pending if number == 0 else 0
        runs = _holes(size - share, share, waiting, 3 + number % 5)
        yield _row(device.gpu, runs, "large", expandable and number == len(sizes) - 1)
    for size in _cut(pools, GIB):
        yield _row(device.gpu, [("inactive", size)], "private")
    for size in _cut(whole, 4 * GIB):
        yield _row(device.gpu, [("inactive", size)], "large")


def _cut(total: int, each: int) -> list[int]:
    return [*[each] * (total // each), *([total % each] if total % each else [])]


def _share(total: int, number: int, sizes: list[int]) -> int:
    whole = sum(sizes)
    before = sum(sizes[:number])
    return total * (before + sizes[number]) // whole - total * before // whole


def _holes(used: int, free: int, waiting: int, pieces: int) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for number in range(pieces):
        a = used * (number + 1) // pieces - used * number // pieces
        f = free * (number + 1) // pieces - free * number // pieces
        if number == 0 and waiting:
            runs.append(("pending", min(waiting, a)))
            a -= min(waiting, a)
        runs += [(state, size) for state, size in (("active", a), ("inactive", f)) if size]
    return runs


def _sites(device: RunDevice) -> tuple[AllocationSite, ...]:
    allocated = device.allocated_bytes or 0
    shares = (
        (0.44, 1204, ("model.py:88 forward", "module.py:1751 _call_impl", "train.py:151 step")),
        (0.31, 291, ("adamw.py:201 _init_group", "optimizer.py:484 wrapper", "train.py:156 step")),
        (0.15, 291, ("module.py:1329 convert", "module.py:930 _apply", "train.py:61 main")),
        (0.07, 64, ("functional.py:3104 cross_entropy", "train.py:152 step")),
    )
    return tuple(
        AllocationSite(device=device.gpu, bytes=int(allocated * s), count=c, frames=f)
        for s, c, f in shares
    )


def census_of(device: RunDevice, deep: bool) -> Census:
    """What the optimizer knows; a deep one also finds activations and what a list keeps."""
    allocated, name = device.allocated_bytes or 0, "cuda:0"
    parts: tuple[tuple[str, float], ...] = (
        ("parameter", 0.12),
        ("gradient", 0.12),
        ("optimizer", 0.24),
    )
    if deep:
        parts += (("tensor", 0.51),)
    groups = tuple(
        TensorGroup(
            kind=kind,
            device=name,
            dtype="float32" if kind == "optimizer" else "bfloat16",
            count=1204 if kind == "tensor" else 291,
            bytes=int(allocated * share),
        )
        for kind, share in parts
    )
    cpu = TensorGroup(kind="buffer", device="cpu", dtype="int64", count=12, bytes=3 * MIB)
    sentence = None if deep else "Only what the optimizer holds; activations are not in it."
    return Census(
        groups=(*groups, cpu),
        biggest=tuple(_biggest(allocated, deep)),
        deep=deep,
        sentence=sentence,
    )


def _biggest(allocated: int, deep: bool) -> Iterator[BigTensor]:
    rows: list[tuple[tuple[int, ...], str, float, str, str]] = [
        ((128256, 4096), "bfloat16", 0.0245, "parameter", "model.embed_tokens.weight"),
        ((128256, 4096), "float32", 0.049, "optimizer", "exp_avg of model.embed_tokens.weight"),
        ((4096, 14336), "bfloat16", 0.0027, "parameter", "model.layers.0.mlp.down_proj.weight"),
        ((1024, 4096), "bfloat16", 0.0002, "parameter", "model.layers.0.self_attn.k_proj.weight"),
    ]
    if deep:
        rows.append(((32, 4096, 128256), "float32", 0.21, "tensor", "train.py:152 losses"))
    for shape, dtype, share, kind, holder in sorted(rows, key=lambda row: -row[2]):
        yield BigTensor(
            shape=shape,
            dtype=dtype,
            device="cuda:0",
            bytes=int(allocated * share),
            kind=kind,
            holder=holder,
        )


def stacks_of(instance: Instance, now_s: float, agent: bool) -> Stacks:
    """A trainer in its step, its data loader and its autograd thread."""
    places = (
        ("torch/autograd/graph.py:841 _engine_run_backward", "torch/_tensor.py:625 backward"),
        ("torch/nn/functional.py:2546 linear", "model.py:88 forward"),
        ("torch/optim/adamw.py:243 step", "torch/optim/optimizer.py:493 wrapper"),
    )
    script = next((word for word in instance.process.command if word.endswith(".py")), "train.py")
    here = places[int(now_s) % len(places)]
    main = ThreadStack(
        name="MainThread",
        is_training=True,
        frames=(*here, f"{script}:156 train_step", f"{script}:201 main"),
    )
    loader = ThreadStack(
        name="Thread-1 (_pin_memory_loop)",
        is_training=False,
        frames=("threading.py:359 wait", "queue.py:180 get", "pin_memory.py:53 do_one_step"),
    )
    read_by = "agent" if agent else "py-spy"
    return Stacks(threads=(main, loader), read_by=read_by)  # type: ignore[arg-type]
