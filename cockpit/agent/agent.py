"""The agent: what runs inside the user's training process, and the protocol that it speaks.

One file, standard library only, Python 3.8 syntax. It may be imported, imported by path, or
executed from its source in a dictionary of its own (attach to a run that nobody prepared), so
nothing here relies on ``__file__``, ``__name__`` or on being in ``sys.modules``.

What the training process never suffers because of it: torch imported, a CUDA context that it did
not have, an exception, a warning, a line of output, a wait for a client, a reset of its peaks, or
a changed umask, working directory, signal handler, ``sys.path`` or random state. The agent's code
that may be long goes in slices of 1 ms. One call of torch holds the GIL for as long as it takes (a
segment map without traces: 2 ms for 800 segments), and so do what a person confirmed and the
record of an OOM.

    thread        what runs there
    agent         sockets, stats, stacks, census (in slices of 1 ms), segments, flight recorder
    training      the optimizer's post-hook: step counter; gc, empty_cache, history, settings,
                  snapshot with traces: between two steps, never during a graph capture
    main          profile, begun at a step where that is the training thread, and nowhere else;
                  ended at a step, or by a pending call where none comes
"""

from __future__ import annotations

import _thread
import atexit
import collections
import contextlib
import gc
import itertools
import json
import operator
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import time
import types
import weakref
from functools import partial
from typing import Any, Callable, Dict, Generator, Iterator, List, Literal, Optional, Tuple

PROTOCOL_VERSION = 1
MAX_REQUEST_BYTES = 64 * 1024
MAX_CLIENTS = 4
MAX_REQUESTS_PER_S = 20
MAX_STREAM_HZ = 10.0
STEP_TIMEOUT_S = 10.0
MAX_PROFILE_STEPS = 20
MAX_PROFILE_BYTES = 128 * 1024 * 1024
"""Of host memory, by which the program may grow while no step comes: an evaluation that begins
among the profiled steps. An event takes 160 bytes; to stop the profiler, 1.6 kB more and 4 us."""
PROFILE_LOOK_S = 0.5
PROFILE_LATE_S = 2.0
PROFILE_LATE_STEPS = 10
"""No step comes: for so long, and for so many times as long as one usually takes."""
MAX_HISTORY_ENTRIES = 1_000_000
HISTORY_ENTRIES = 100_000
"""A snapshot with 100,000 traces takes 0.7 s; torch's own default is unlimited."""
MUTATING = frozenset(
    ("gc", "empty_cache", "history", "set", "profile", "oom_observer", "detach", "free_frames")
)
READING = frozenset(
    ("hello", "stats", "stream", "stop", "stacks", "census", "snapshot", "fr_trace", "oom_record")
)
OPERATIONS = MUTATING | READING
Code = Literal["no_step", "bad_request", "busy", "not_initialized", "unsupported", "failed", "rate"]
"""All that a refusal may say; its sentence says it to people."""
WAYS_IN = ("launch", "import", "ptrace", "remote_exec", "gdb")
SETTINGS = (
    "expandable_segments",
    "garbage_collection_threshold",
    "max_split_size_mb",
    "matmul_precision",
    "memory_fraction",
)
ALLOCATOR_DEFAULTS = {
    "expandable_segments": "False",
    "garbage_collection_threshold": "default",
    "max_split_size_mb": "default",
}

REGISTRY = "_cockpit_agent_registry"
"""The entry of sys.modules that says, to every copy of this source, which agent runs here."""
SLICE_S = 0.001
OUT_CAP_BYTES = 4 * 1024 * 1024
SLOW_READER_S = 5.0
MAX_JOBS = 8
MAX_OOM_RECORDS = 3
MAX_SEGMENTS = 4000
MAX_RUNS_PER_SEGMENT = 128
MAX_TENSORS_LISTED = 20
MAX_VISITED = 400_000
MAX_NAMES = 100_000
"""Of one namespace or deque; to copy them takes 1 ms."""
CENSUS_BUDGET_S = 2.0
GRADIENTS_WAIT_S = 3.0
"""How long a census waits for the next optimizer step, after which gradients can be looked at."""
GRADIENTS_BUDGET_S = 0.004
"""Of the training thread, once a census: about 5 us a gradient."""
LARGEST_FREE_KEPT_S = 60.0
MAX_TRACE_BYTES = 256 * 1024
"""Of the flight recorder's JSON: to parse it holds the GIL, 2 ms for so much."""
HOOK_RETRY_S = 0.003
MAX_HOOK_TRIES = 2000
"""In a row; every later request tries once more."""
MAX_CLEANING_S = 0.5
SILENT_S = 10.0
"""A connection without a request for so long and without a stream is closed."""
IDLE_S = 2.0
"""Such a one makes room where all places are taken."""

Reply = Dict[str, Any]
Slices = Generator[None, None, Reply]


class RefusedError(Exception):
    """An operation that cannot be done, and why in one sentence."""

    def __init__(self, code: Code, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.code: Code = code
        self.sentence = sentence


# -- where the socket is ---------------------------------------------------------------------


def socket_directories(uid: int, runtime_dir: Optional[str]) -> List[str]:
    """Where agents of that user put their sockets, best first."""
    shared = "/tmp/cockpit-%d" % uid
    return [os.path.join(runtime_dir, "cockpit"), shared] if runtime_dir else [shared]


def private_directory(path: str) -> bool:
    """Make it if it is missing; True where it is a directory of ours that only we may enter."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


def start_ticks() -> Optional[int]:
    """Field 22 of /proc/self/stat: with the pid the identity of this process."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


# -- the warning of a fork -------------------------------------------------------------------

FORK_WARNS = (3, 12)
FORK_WARNING = (
    "ignore",
    re.compile(r"This process \(pid=\d+\) is multi-threaded, use of \w+\(\) may lead"),
    DeprecationWarning,
    None,
    0,
)
"""An entry of warnings.filters. Since 3.12 CPython warns of a fork in a process that has more than
one thread, by the kernel's count (posixmodule.c, warn_about_fork_with_threads)."""


def os_threads() -> int:
    """As CPython counts them there: field 20 of /proc/self/stat; 0: unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def hide_fork_warning(hidden: bool) -> None:
    """First of the filters, or not one of them.

    The list is changed and its version is not: a new version makes every warning that was shown
    once be shown once more. Where the thread ended before each fork instead, 3.13.0 would still
    warn: it counts after the callbacks in which the thread would have to come back.
    """
    filters = getattr(sys.modules.get("warnings", sys.modules.get("_warnings")), "filters", None)
    if type(filters) is not list or (hidden and filters and filters[0] is FORK_WARNING):
        return
    while FORK_WARNING in filters:
        filters.remove(FORK_WARNING)
    if hidden:
        filters.insert(0, FORK_WARNING)


# -- torch, never imported by us -------------------------------------------------------------


def loaded(name: str) -> Any:
    """The module where the program has imported it to its end, else None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


def torch_release(torch: Any) -> Tuple[int, int]:
    parts = str(getattr(torch, "__version__", "0.0")).split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return (0, 0)


def cuda_initialized(torch: Any) -> bool:
    """Asks torch's own flag; touches neither driver nor device."""
    cuda = getattr(torch, "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())


def is_capturing(torch: Any) -> bool:
    """A CUDA graph is being captured on this thread's stream: any CUDA call would spoil it."""
    ask = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    return bool(ask and cuda_initialized(torch) and ask())


def framework() -> Optional[str]:
    for name in ("torch", "jax", "tensorflow"):
        if name in sys.modules:
            return name
    return None


NOTES = {
    "jax": "A JAX process: it takes 75 % of the GPU at its start by itself, so the driver's "
    "number says little. Not measured here; jax.profiler.device_memory_profile() tells.",
    "tensorflow": "A TensorFlow process: it takes the whole GPU by default, so the driver's "
    "number says little. Not measured here; tf.config.experimental.get_memory_info tells.",
    None: "torch has not been imported in this process (yet).",
}


def current(stats: Dict[str, Any], name: str, kind: str = "current") -> Optional[int]:
    """``stats[name]["all"][kind]`` of _cuda_memoryStats; None where this torch lacks it."""
    value = stats.get(name)
    if not isinstance(value, dict):
        return None
    number: Optional[int] = (value.get("all") or {}).get(kind)
    return number


def private_pool_bytes(stats: Dict[str, Any]) -> Optional[int]:
    """Reserved by CUDA-graph and user pools (torch 2.12 and newer)."""
    pools = stats.get("reserved_bytes_by_private_pools")
    if not isinstance(pools, dict):
        return None
    return sum(int((pool.get("all") or {}).get("current", 0)) for pool in pools.values())


def device_row(index: int, stats: Dict[str, Any]) -> Reply:
    """The allocator's numbers of one device, from the raw nested dictionary (12 us on an H200)."""
    return {
        "index": index,
        "allocated_bytes": current(stats, "allocated_bytes"),
        "reserved_bytes": current(stats, "reserved_bytes"),
        "active_bytes": current(stats, "active_bytes"),
        "inactive_split_bytes": current(stats, "inactive_split_bytes"),
        "requested_bytes": current(stats, "requested_bytes"),
        "allocated_peak_bytes": current(stats, "allocated_bytes", "peak"),
        "reserved_peak_bytes": current(stats, "reserved_bytes", "peak"),
        "alloc_retries": stats.get("num_alloc_retries"),
        "ooms": stats.get("num_ooms"),
        "private_pool_bytes": private_pool_bytes(stats),
    }


def device_count(torch: Any) -> int:
    """Devices that CUDA shows this process; 0 before CUDA was initialised, so as not to do it."""
    return int(torch._C._cuda_getDeviceCount()) if cuda_initialized(torch) else 0


def device_uuid(torch: Any, index: int) -> Optional[str]:
    """``GPU-…`` as NVML prints it (torch 2.4 and newer)."""
    try:
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    except Exception:  # noqa: BLE001 - a nicety; torch's properties fail in many ways
        return None
    if uuid is None:
        return None
    text = str(uuid)
    return text if text.startswith(("GPU-", "MIG-")) else "GPU-" + text


def used_devices(torch: Any) -> List[int]:
    """Devices whose allocator has ever reserved anything; asking creates no context."""
    rows = ((i, torch._C._cuda_memoryStats(i)) for i in range(device_count(torch)))
    return [i for i, stats in rows if current(stats, "reserved_bytes", "peak")]


def rank_of(torch: Any) -> Dict[str, Optional[int]]:
    """Rank, local rank and world size: the launcher's variables, else torch.distributed."""
    found: Dict[str, Optional[int]] = {}
    for name, variables in (
        ("rank", ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")),
        ("local_rank", ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")),
        ("world_size", ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")),
    ):
        texts = [os.environ[v] for v in variables if os.environ.get(v, "").isdigit()]
        found[name] = int(texts[0]) if texts else None
    dist = loaded("torch.distributed") if torch is not None else None
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        if dist is not None and dist.is_available() and dist.is_initialized():
            found["rank"], found["world_size"] = dist.get_rank(), dist.get_world_size()
    return found


def launcher() -> Optional[str]:
    for variable, name in (
        ("ACCELERATE_MIXED_PRECISION", "accelerate"),
        ("TORCHELASTIC_RUN_ID", "torchrun"),
        ("OMPI_COMM_WORLD_RANK", "mpirun"),
        ("SLURM_PROCID", "slurm"),
    ):
        if variable in os.environ:
            return name
    return None


# -- threads ---------------------------------------------------------------------------------


def frames_of(frame: Any, limit: int = 100) -> List[List[Any]]:
    """[file, line, function], innermost first."""
    rows: List[List[Any]] = []
    while frame is not None and len(rows) < limit:
        code = frame.f_code
        rows.append([code.co_filename, frame.f_lineno, code.co_name])
        frame = frame.f_back
    return rows


def stacks(own: int, training: Optional[int]) -> List[Reply]:
    """Every Python thread but the agent's. Reads threading's table without taking its lock."""
    table = getattr(sys.modules.get("threading"), "_active", {})
    main = main_thread()
    rows = []
    for ident, frame in list(sys._current_frames().items())[:200]:
        if ident == own:
            continue
        thread = table.get(ident)
        rows.append(
            {
                "ident": ident,
                "native_id": getattr(thread, "_native_id", None),
                "name": getattr(thread, "_name", None),
                "main": ident == main,
                "training": ident == training,
                "frames": frames_of(frame),
            }
        )
    rows.sort(key=lambda row: (not row["training"], not row["main"], row["ident"]))
    return rows


# -- segments --------------------------------------------------------------------------------

STATES = {"active_allocated": "a", "inactive": "i"}
"""Anything else is ``p``: freed by the program, awaited by another stream."""


def raw_snapshot(torch: Any) -> Dict[str, Any]:
    """Without traces: 2 ms for 800 segments; with 100,000 traces it would be 0.7 s."""
    take = torch._C._cuda_memorySnapshot
    for arguments in (((0, 0, False),), (None,), ()):
        try:
            taken = take(*arguments)
        except (TypeError, RuntimeError):
            continue
        return taken if isinstance(taken, dict) else {"segments": taken}
    raise RefusedError("unsupported", "This torch gives no snapshot of its allocator.")


def segment_row(segment: Dict[str, Any]) -> Reply:
    """One segment; ``runs`` are [state, bytes] in address order, neighbours of a state merged."""
    runs: List[List[Any]] = []
    largest_free = 0
    for block in segment.get("blocks") or ():
        state = STATES.get(block.get("state", ""), "p")
        size = block.get("size", 0)
        if state == "i":
            largest_free = max(largest_free, size)
        if runs and runs[-1][0] == state:
            runs[-1][1] += size
        else:
            runs.append([state, size])
    left_out = max(0, len(runs) - MAX_RUNS_PER_SEGMENT)
    pool = segment.get("segment_pool_id") or (0, 0)
    return {
        "device": segment.get("device", 0),
        "address": segment.get("address"),
        "stream": segment.get("stream"),
        "bytes": segment.get("total_size", 0),
        "allocated_bytes": segment.get("allocated_size", 0),
        "active_bytes": segment.get("active_size", 0),
        "largest_free_bytes": largest_free,
        "kind": segment.get("segment_type"),
        "expandable": bool(segment.get("is_expandable")),
        "private": tuple(pool) != (0, 0),
        "runs": runs[:MAX_RUNS_PER_SEGMENT],
        "runs_left_out": left_out,
    }


def add_segment(totals: Dict[int, Reply], row: Reply) -> None:
    """Per device: what is free in reserved, what empty_cache can return, what is stuck."""
    total = totals.setdefault(
        row["device"],
        {
            "device": row["device"],
            "segments": 0,
            "reserved_bytes": 0,
            "allocated_bytes": 0,
            "active_bytes": 0,
            "free_bytes": 0,
            "returnable_bytes": 0,
            "stuck_bytes": 0,
            "private_bytes": 0,
            "largest_free_block_bytes": 0,
        },
    )
    free = row["bytes"] - row["active_bytes"]
    whole = row["active_bytes"] == 0 and not row["private"]
    total["segments"] += 1
    total["reserved_bytes"] += row["bytes"]
    total["allocated_bytes"] += row["allocated_bytes"]
    total["active_bytes"] += row["active_bytes"]
    total["free_bytes"] += free
    # Expandable segments give back their free pages one by one.
    total["returnable_bytes" if whole or row["expandable"] else "stuck_bytes"] += free
    total["private_bytes"] += row["bytes"] if row["private"] else 0
    total["largest_free_block_bytes"] = max(
        total["largest_free_block_bytes"], row["largest_free_bytes"]
    )


def summarise_segments(raw: Dict[str, Any]) -> Slices:
    """The segment map as JSON, in slices."""
    began = time.perf_counter()
    rows: List[Reply] = []
    totals: Dict[int, Reply] = {}
    segments = raw.get("segments") or []
    for segment in segments:
        row = segment_row(segment)
        add_segment(totals, row)
        if len(rows) < MAX_SEGMENTS:
            rows.append(row)
        if time.perf_counter() - began > SLICE_S:
            yield
            began = time.perf_counter()
    return {
        "devices": [totals[i] for i in sorted(totals)],
        "segments": rows,
        "segments_left_out": len(segments) - len(rows),
        "allocator_settings": plain(raw.get("allocator_settings")),
    }


def plain(value: Any) -> Any:
    """JSON of a foreign value: its text where it is nothing that JSON knows."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# -- census ----------------------------------------------------------------------------------


Measured = Tuple[int, str, str, List[int], int]
"""Bytes, device, dtype, shape, and where the storage begins (0: no memory of its own)."""


def measure(tensor: Any) -> Measured:
    """Numbers alone. May raise anything.

    Not by ``untyped_storage()``: that makes a Python object of the storage, which torch ties to
    the tensor's end on another thread.
    """
    item = int(tensor.element_size())
    address_of = getattr(loaded("torch")._C, "_data_address", None)
    if address_of is not None:  # of the storage; makes no copy of a lazy one
        at = int(address_of(tensor))
    else:  # torch before 2.1
        at = int(tensor.data_ptr())
        at -= int(tensor.storage_offset()) * item if at else 0
    return (
        int(tensor.numel()) * item,
        str(tensor.device),
        str(tensor.dtype).replace("torch.", ""),
        [int(n) for n in tensor.shape],
        at,
    )


class Tally:
    """Counts tensors by kind, device and dtype; keeps numbers, never a tensor."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.rows: Dict[Tuple[str, str, str], List[int]] = {}
        self.biggest: List[Reply] = []
        self.modules: Dict[str, int] = {}
        self.ids: Any = set()
        self.storages: Any = set()
        self.skipped = 0
        self.kinds: Dict[int, str] = {}
        nn = loaded("torch.nn")
        self.module_type = getattr(nn, "Module", None)

    def kind_of(self, value: Any) -> str:
        """By the type's ancestors: isinstance would run a proxy's ``__class__``."""
        kind = type(value)
        known = self.kinds.get(id(kind))
        if known is None:
            ancestors = type.__getattribute__(kind, "__mro__")
            if self.torch.Tensor in ancestors:
                known = "tensor"
            elif self.module_type in ancestors:
                known = "module"
            else:
                known = "other"
            self.kinds[id(kind)] = known
        return known

    def add(self, tensor: Any, kind: str, holder: Optional[str]) -> None:
        if id(tensor) in self.ids:
            return
        self.ids.add(id(tensor))
        try:
            measured = measure(tensor)
        except Exception:  # noqa: BLE001 - sparse, fake, functional: their methods may raise anything
            self.skipped += 1
            return
        self.count(measured, kind, holder)

    def count(self, measured: Measured, kind: str, holder: Optional[str]) -> None:
        """Shared storage counts once: a view adds a tensor and no bytes."""
        size, device, dtype, shape, address = measured
        if address:
            if (device, address) in self.storages:
                size = 0
            self.storages.add((device, address))
        row = self.rows.setdefault((kind, device, dtype), [0, 0])
        row[0] += 1
        row[1] += size
        if size:
            self.remember(
                {
                    "shape": shape,
                    "dtype": dtype,
                    "device": device,
                    "bytes": size,
                    "kind": kind,
                    "holder": holder,
                }
            )

    def remember(self, found: Reply) -> None:
        self.biggest.append(found)
        if len(self.biggest) > 4 * MAX_TENSORS_LISTED:
            self.biggest.sort(key=lambda row: -row["bytes"])
            del self.biggest[MAX_TENSORS_LISTED:]

    def reply(self) -> Reply:
        self.biggest.sort(key=lambda row: -row["bytes"])
        tensors: List[Reply] = [
            {"kind": kind, "device": device, "dtype": dtype, "count": row[0], "bytes": row[1]}
            for (kind, device, dtype), row in self.rows.items()
        ]
        tensors.sort(key=lambda row: -row["bytes"])
        modules = sorted(self.modules.items(), key=lambda item: -item[1])
        return {
            "tensors": tensors,
            "tensor_count": sum(row["count"] for row in tensors),
            "devices": sorted({row["device"] for row in tensors}),
            "biggest": self.biggest[:MAX_TENSORS_LISTED],
            "modules": [{"type": name, "count": count} for name, count in modules[:50]],
            "skipped": self.skipped,
        }


def without_overrides(torch: Any) -> Any:
    """Tensor subclasses' ``__torch_function__`` is not run in this block (this thread only)."""
    for name in ("DisableTorchFunctionSubclass", "DisableTorchFunction"):
        make = getattr(torch._C, name, None)
        if make is not None:
            return make()
    return contextlib.nullcontext()


def parameters_of(optimizer: Any) -> Iterator[Tuple[Any, str]]:
    """Each with its name, else its place."""
    for g, group in enumerate(list(getattr(optimizer, "param_groups", ()))):
        names = group.get("param_names") or ()
        for p, parameter in enumerate(list(group.get("params", ()))):
            yield parameter, names[p] if p < len(names) else "param_groups[%d].params[%d]" % (g, p)
            parameter = None


def optimizer_tensors(optimizer: Any, tally: Tally) -> Generator[None, None, None]:
    """Parameters and the optimizer's state. One step per tensor."""
    state = getattr(optimizer, "state", {})
    for parameter, name in parameters_of(optimizer):
        tally.add(parameter, "parameter", name)
        held = state.get(parameter) if hasattr(state, "get") else None
        for key, value in list(held.items()) if isinstance(held, dict) else ():
            if tally.kind_of(value) == "tensor":
                tally.add(value, "optimizer_state", "%s of %s" % (key, name))
        parameter = held = value = None
        yield


class Gradients:
    """Their numbers, taken on the training thread right after a step.

    ``.grad`` is read nowhere else: while a training thread drops a gradient (zero_grad) it may let
    go of the GIL, and a backward pass has none; what another thread reads then is freed memory.
    Measured with torch 2.13 on a CPU: one census in forty ended the training with SIGSEGV.
    """

    def __init__(self) -> None:
        self.rows: List[Tuple[Measured, str]] = []
        self.skipped = 0
        self.took_s = 0.0
        self.complete = True
        self.taken = False

    def take(self, torch: Any, optimizers: List[Any]) -> None:
        """Keeps numbers, never a gradient."""
        began = time.perf_counter()
        try:
            with without_overrides(torch):
                self.read(optimizers, began + GRADIENTS_BUDGET_S)
        finally:
            self.took_s = time.perf_counter() - began
            self.taken = True

    def read(self, optimizers: List[Any], until: float) -> None:
        for optimizer in optimizers:
            for parameter, name in parameters_of(optimizer):
                if time.perf_counter() > until:
                    self.complete = False
                    return
                try:
                    # .grad of what is no leaf would print a warning into the user's log
                    gradient = parameter.grad if parameter.is_leaf else None
                    if gradient is not None:
                        self.rows.append((measure(gradient), name + ".grad"))
                except Exception:  # noqa: BLE001 - as in Tally.add
                    self.skipped += 1
                parameter = gradient = None

    def add_to(self, tally: Tally) -> None:
        for measured, name in self.rows:
            tally.count(measured, "gradient", name)
        tally.skipped += self.skipped


def attributes_of(value: Any) -> Dict[str, Any]:
    """The instance's ``__dict__`` without running a line of its class."""
    for ancestor in type.__getattribute__(type(value), "__mro__"):
        found = type.__getattribute__(ancestor, "__dict__").get("__dict__")
        if found is not None:
            if type(found) is types.GetSetDescriptorType:
                held = found.__get__(value)
                return held if type(held) is dict else {}
            return {}
    return {}


def children_of(value: Any, holder: str) -> Generator[Tuple[Any, str], None, None]:
    """What a container or an object holds, each with the expression that names it."""
    kind = type(value)
    if kind is dict or kind is collections.OrderedDict or kind is collections.defaultdict:
        if len(value) > 20_000:  # copying it in one go would hold the GIL for milliseconds
            return
        for key, held in list(value.items()):
            text = key if type(key) is str else "…" if type(key) not in (int, bool) else str(key)
            yield held, "%s[%r]" % (holder, text[:60])
    elif kind is list or kind is tuple:
        for start in range(0, len(value), 1000):
            for i, held in enumerate(value[start : start + 1000], start):
                yield held, "%s[%d]" % (holder, i)
    elif kind is collections.deque:  # a replay buffer has a million
        for i, held in enumerate(list(itertools.islice(value, MAX_NAMES))):
            yield held, "%s[%d]" % (holder, i)
    elif kind is types.FunctionType:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):  # noqa: B905 - 3.8
            with contextlib.suppress(ValueError):
                yield cell.cell_contents, "%s.%s" % (holder, name)
    elif kind not in LEAF_TYPES and not isinstance(value, type):
        names = attributes_of(value)
        for key in list(itertools.islice(names, MAX_NAMES)):
            held = names.get(key)
            if type(key) is not str:
                continue
            if type(held) is dict and key in ("_parameters", "_buffers", "_modules"):
                for name, part in list(held.items()):
                    yield part, "%s.%s" % (holder, name)
            else:
                yield held, "%s.%s" % (holder, key)


LEAF_TYPES = frozenset(
    (
        *(str, bytes, bytearray, int, float, bool, complex, type(None), range, slice),
        *(types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.FrameType, type),
        *(set, frozenset),
    )
)


def module_roots() -> Generator[Tuple[Any, str], None, None]:
    """The program's own modules: ``__main__`` and what lies outside library folders."""
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        file = getattr(module, "__file__", None) if type(module) is types.ModuleType else None
        if type(names) is not dict or name == "__mp_main__":
            continue
        library = file is None or any(part in file for part in ("site-packages", "/lib/python"))
        if name == "__main__" or not library:
            label = "" if name == "__main__" else name + "."
            for key in list(itertools.islice(names, MAX_NAMES)):
                if type(key) is str:
                    yield names.get(key), label + key


def frame_roots(own: int) -> Generator[Tuple[Any, str], None, None]:
    """Locals of running functions: from 3.13 on, where looking at them leaves no copy behind."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    if sys.version_info < (3, 13) or (enabled is not None and not enabled()):
        return
    for ident in list(sys._current_frames()):
        if ident != own:
            yield from locals_of(sys._current_frames().get(ident))


def locals_of(frame: Any) -> List[Tuple[Any, str]]:
    """At once: a frame that is held on to would keep its locals alive beyond its function's end."""
    roots = []
    seen = 0
    while frame is not None and seen < 50:
        seen += 1
        code = frame.f_code
        if code.co_name != "<module>" and "site-packages" not in code.co_filename:
            label = os.path.basename(code.co_filename) + ":" + code.co_name + "."
            names = frame.f_locals
            for key in list(names):
                with contextlib.suppress(KeyError):
                    roots.append((names[key], label + key))
        frame = frame.f_back
    return roots


Roots = List[List[Tuple[Any, str]]]
"""Others, modules, tensors: taken from the end."""


def sort_roots(
    found: Iterator[Tuple[Any, str]], tally: Tally, roots: Roots
) -> Generator[None, None, None]:
    """Yields after each: 20,000 names in one go would hold the GIL for 20 ms."""
    places = {"other": 0, "module": 1, "tensor": 2}
    for held, key in found:
        if type(held) not in LEAF_TYPES:
            roots[places[tally.kind_of(held)]].append((held, key))
        held = None
        yield


def walk(roots: Roots, tally: Tally, visited: Any) -> Generator[None, None, None]:
    """Depth first and tensors first: what the program lets go is not kept alive by the walk."""
    while any(roots):
        value, holder = next(filter(None, reversed(roots))).pop()
        if tally.kind_of(value) == "tensor":
            tally.add(value, "tensor", holder)
            value = None
            yield
            continue
        pending = [(value, holder, 0)]
        while pending:
            value, holder, depth = pending.pop()
            if id(value) in visited or len(visited) > MAX_VISITED or depth > 24:
                continue
            visited.add(id(value))
            if tally.kind_of(value) == "module":
                label = type(value).__name__
                tally.modules[label] = tally.modules.get(label, 0) + 1
            for held, expression in children_of(value, holder):
                if tally.kind_of(held) == "tensor":
                    tally.add(held, "tensor", expression)
                elif type(held) not in LEAF_TYPES:
                    pending.append((held, expression, depth + 1))
                yield
            value = held = None
            yield


def collector_finds(tally: Tally, full: bool) -> List[Any]:
    """Tensors and modules of the young generations, or of all where a person confirmed that.

    All objects of a process that has only imported torch are 165,000 and take 9 to 18 ms. Filtered
    at once: the list would keep every short-lived object of the program alive.
    """
    if full:
        found = gc.get_objects()
    elif gc.get_count()[0] > 20_000:  # collection is off or rare: "young" would be everything
        return []
    elif sys.version_info >= (3, 14):
        found = gc.get_objects(generation=0)
    else:
        found = gc.get_objects(generation=0) + gc.get_objects(generation=1)
    return [value for value in found if tally.kind_of(value) != "other"]


def collected(tally: Tally, visited: Any, full: bool) -> Generator[None, None, None]:
    """What no variable led to: tensors are named by their module's class, or not at all."""
    found = collector_finds(tally, full)
    yield
    modules = [v for v in found if tally.kind_of(v) == "module" and id(v) not in visited]
    inner = {id(part) for m in modules for part in attributes_of(m).get("_modules", {}).values()}
    roots = [(m, type(m).__name__) for m in modules if id(m) not in inner]
    del modules
    yield from walk([roots], tally, visited)
    while found:
        value = found.pop()
        if tally.kind_of(value) == "tensor":
            tally.add(value, "tensor", None)
        value = None
        yield


def sliced(
    steps: Generator[None, None, None], torch: Any, until: float
) -> Generator[float, None, bool]:
    """Runs ``steps`` in slices of 1 ms; yields the length of each. False when time ran out."""
    while True:
        began = time.perf_counter()
        with without_overrides(torch):
            while time.perf_counter() - began < SLICE_S:
                try:
                    next(steps)
                except StopIteration:
                    return True
                except RuntimeError:  # changed size during iteration: the program went on
                    return False
        yield time.perf_counter() - began
        if time.perf_counter() > until:
            return False


NO_GRADIENTS = (
    "Gradients are not counted: they can be looked at on the training thread alone, which "
    "--readonly leaves to itself."
)
NO_STEP_FOR_GRADIENTS = "Gradients are not counted: no optimizer step came, after which they are."


def census(
    torch: Any, optimizers: List[Any], deep: bool, full: bool, gradients: Optional[Gradients]
) -> Slices:
    """Cheap: what the optimizers hold. Deep: what the program's variables lead to as well.

    ``gradients``: to be taken at the next step; None: they are not looked at.
    """
    tally = Tally(torch)
    began = time.perf_counter()
    complete = True
    longest = 0.0
    parts: List[Generator[None, None, None]] = [optimizer_tensors(o, tally) for o in optimizers]
    del optimizers
    if deep:
        visited: Any = set()
        own = _thread.get_ident()
        roots: Roots = [[], [], []]
        named = itertools.chain(module_roots(), frame_roots(own))
        parts.append(sort_roots(named, tally, roots))
        parts.append(walk(roots, tally, visited))
        parts.append(collected(tally, visited, full))
    count = len(parts)
    while parts:
        slices = sliced(parts.pop(0), torch, began + CENSUS_BUDGET_S)
        while True:
            try:
                longest = max(longest, next(slices))
            except StopIteration as done:
                complete = complete and bool(done.value)
                break
            yield
    sentence = None
    if gradients is None:
        sentence = NO_GRADIENTS if count > (3 if deep else 0) else None
    else:
        while not gradients.taken and time.perf_counter() < began + GRADIENTS_WAIT_S:
            yield
        gradients.add_to(tally)
        longest, complete = max(longest, gradients.took_s), complete and gradients.complete
        sentence = None if gradients.taken else NO_STEP_FOR_GRADIENTS
    reply = tally.reply()
    reply.update(
        deep=deep,
        sentence=sentence,
        complete=complete and (full or not deep),
        optimizers=count - (3 if deep else 0),
        longest_hold_ms=round(longest * 1e3, 2),
        took_ms=round((time.perf_counter() - began) * 1e3, 1),
    )
    return reply


# -- the main thread -------------------------------------------------------------------------


def main_thread() -> Optional[int]:
    """Its ident, as threading has it."""
    ident: Optional[int] = getattr(
        getattr(sys.modules.get("threading"), "_main_thread", None), "ident", None
    )
    return ident


def on_main_thread() -> bool:
    """The thread that runs CPython's pending calls; False where threading and the kernel do not
    agree on it (an interpreter that was started by another thread than the process's first)."""
    return _thread.get_ident() == main_thread() and _thread.get_native_id() == os.getpid()


class Pending:
    """What the main thread is to do without a step. CPython asks it whether it is true."""

    def __init__(self) -> None:
        self.todo: Any = collections.deque()

    def __bool__(self) -> bool:
        """False: a pending call that answers anything else has failed."""
        while True:
            try:
                run = self.todo.popleft()
            except IndexError:
                return False
            with contextlib.suppress(Exception):
                run()


def pending() -> Any:
    """One per process, and never freed: CPython's queue has nothing but its address, for as long
    as the main thread stays in C, and a queue that is copied by a fork has it too."""
    reg = registry()
    found = getattr(reg, "pending", None)  # a registry of an older source has none
    if found is None:
        import ctypes

        found = Pending()
        keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
        keep(found)  # beyond the end of sys.modules
        reg.pending = found
    return found


def ask_main_thread(run: Callable[[], Any]) -> bool:
    """It runs when the main thread next runs Python; False where CPython's queue is full.

    No callback of ctypes is queued: it would have to outlive the queue, and what the user's signal
    handler raises in it (KeyboardInterrupt) would be printed and lost. PyObject_IsTrue answers 0,
    or lets the exception go on into the program.
    """
    import ctypes  # torch has done so long ago

    asked = pending()
    asked.todo.append(run)
    # Own objects: a program may have given those of ctypes.pythonapi other argument types.
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    is_true = ctypes.cast(kind(("PyObject_IsTrue", ctypes.pythonapi)), ctypes.c_void_p)
    if kind(("Py_AddPendingCall", ctypes.pythonapi))(is_true, id(asked)) == 0:
        return True
    with contextlib.suppress(ValueError):
        asked.todo.remove(run)
    return False


# -- profile ---------------------------------------------------------------------------------


def private_bytes() -> int:
    """Of this process, without files that it maps; 0: unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def no_profile_here() -> RefusedError:
    return RefusedError(
        "unsupported",
        "The optimizer steps on another thread than the program's main one, where a profile could "
        "not be ended if the steps stopped: it was not begun.",
    )


class Span:
    """One event of the profiler, in nanoseconds, whatever this torch's names for it are."""

    __slots__ = ("correlation", "device", "end", "linked", "name", "start", "thread")

    def __init__(self, event: Any) -> None:
        self.name = str(event.name())
        if hasattr(event, "start_ns"):
            self.start, length = event.start_ns(), event.duration_ns()
        else:  # torch before 2.4
            self.start, length = event.start_us() * 1000, event.duration_us() * 1000
        self.end = self.start + length
        self.thread = event.start_thread_id()
        self.device = not str(event.device_type()).endswith("CPU")
        self.correlation = event.correlation_id()
        self.linked = event.linked_correlation_id()

    @property
    def ms(self) -> float:
        return float(self.end - self.start) / 1e6


def phase_of(name: str) -> Optional[str]:
    """The phase that a range on the CPU opens."""
    if name.startswith("enumerate(DataLoader)"):
        return "data_wait"
    if name.startswith("Optimizer.step#"):
        return "optimizer"
    if name.startswith("autograd::engine::evaluate_function"):
        return "backward"
    if name.startswith(("gloo:", "nccl:", "c10d::")):
        return "collective"
    return None


def device_phase(name: str) -> Optional[str]:
    lower = name.lower()
    if "memcpy htod" in lower:
        return "host_to_device"
    if "memcpy dtoh" in lower:
        return "device_to_host"
    if "nccl" in lower:
        return "collective"
    return None


def phases_on_cpu(spans: List[Span], launched_in: Dict[int, str], totals: Dict[str, float]) -> Any:
    """Self time per name and per phase; notes in which phase each operation was issued."""
    own: Dict[str, List[float]] = {}
    threads: Dict[int, List[Span]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for row in threads.values():
        row.sort(key=lambda s: (s.start, -s.end))
        stack: List[Tuple[Span, str]] = []
        for span in row:
            while stack and stack[-1][0].end <= span.start:
                stack.pop()
            phase = phase_of(span.name) or (stack[-1][1] if stack else "forward")
            launched_in[span.correlation] = phase
            found = own.setdefault(span.name, [0.0, 0])
            found[0] += span.ms
            found[1] += 1
            totals[phase] = totals.get(phase, 0.0) + span.ms
            if stack:
                own[stack[-1][0].name][0] -= span.ms
                totals[stack[-1][1]] -= span.ms
            stack.append((span, phase))
            yield
    return own


def busy_ms(spans: List[Span]) -> float:
    """Time in which at least one of the spans ran."""
    total, end = 0, 0
    for span in sorted(spans, key=lambda s: s.start):
        total += max(0, span.end - max(span.start, end))
        end = max(end, span.end)
    return total / 1e6


def spans_of(events: Any) -> Any:
    """Yields after each, for ``in_slices``."""
    spans: List[Span] = []
    for event in events:
        spans.append(Span(event))
        yield
    return spans


def within_steps(spans: List[Span], steps: int) -> List[Span]:
    """The range of the step that is being left when the profiler stops is never closed: one step
    more was recorded, and what follows the last closed one is left out."""
    closed = sorted(s.end for s in spans if not s.device and phase_of(s.name) == "optimizer")
    until = (
        closed[min(steps, len(closed)) - 1] if closed else max((s.end for s in spans), default=0)
    )
    return [s for s in spans if s.start <= until]


def in_slices(work: Any) -> Any:
    """Runs the generator to its end and gives its value; yields once a slice is over."""
    began = time.perf_counter()
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        if time.perf_counter() - began > SLICE_S:
            yield
            began = time.perf_counter()


def phases_on_device(
    kernels: List[Span], launched_in: Dict[int, str]
) -> Tuple[Dict[str, float], Dict[str, List[float]]]:
    """Milliseconds per phase, and [ms, calls] per kernel: by what issued it, or what it copies."""
    phases: Dict[str, float] = {}
    by_name: Dict[str, List[float]] = {}
    for kernel in kernels:
        phase = device_phase(kernel.name) or launched_in.get(kernel.linked, "forward")
        phases[phase] = phases.get(phase, 0.0) + kernel.ms
        row = by_name.setdefault(kernel.name, [0.0, 0])
        row[0] += kernel.ms
        row[1] += 1
    return phases, by_name


def read_profile(events: Any, steps: int, walls_ms: List[float]) -> Slices:
    """Milliseconds per step and phase. With kernels on a GPU these are counted, else the CPU's."""
    recorded = yield from in_slices(spans_of(events))
    spans: List[Span] = within_steps(recorded, steps)
    launched_in: Dict[int, str] = {}
    on_cpu: Dict[str, float] = {}
    on_host = [s for s in spans if not s.device]
    own = yield from in_slices(phases_on_cpu(on_host, launched_in, on_cpu))
    kernels = [s for s in spans if s.device and phase_of(s.name) is None]
    on_device, by_name = phases_on_device(kernels, launched_in)
    wall = sum(walls_ms) / len(walls_ms) if walls_ms else None
    phases = on_device if kernels else on_cpu
    return {
        "steps": steps,
        "measured_on": "cuda" if kernels else "cpu",
        "step_ms": None if wall is None else round(wall, 3),
        "data_wait_ms": per_step(on_cpu.get("data_wait", 0.0), steps),
        **phase_times(phases, bool(kernels), steps),
        "device_busy_ms": per_step(busy_ms(kernels) if kernels else None, steps),
        "top": costliest(by_name if kernels else own, steps),
        "events": len(spans),
    }


def per_step(ms: Optional[float], steps: int) -> Optional[float]:
    return None if ms is None else round(ms / max(1, steps), 3)


def phase_times(phases: Dict[str, float], on_device: bool, steps: int) -> Reply:
    """Copies are known from the device alone."""
    reply: Reply = {}
    for name in ("host_to_device", "device_to_host"):
        reply[name + "_ms"] = per_step(phases.get(name, 0.0) if on_device else None, steps)
    for name in ("forward", "backward", "optimizer", "collective"):
        reply[name + "_ms"] = per_step(phases.get(name, 0.0), steps)
    total, collective = sum(phases.values()), phases.get("collective", 0.0)
    reply["collective_share"] = round(collective / total, 4) if total else 0.0
    return reply


def costliest(by_name: Dict[str, List[float]], steps: int) -> List[Reply]:
    rows = sorted(by_name.items(), key=lambda item: -item[1][0])[:15]
    return [
        {"name": name[:160], "ms": per_step(row[0], steps), "calls": int(row[1])}
        for name, row in rows
    ]


class Recording:
    """torch.profiler between two step boundaries, on the main thread.

    Only the thread that began a profile can end it. Where its steps stop (an evaluation, a
    collective that hangs) a pending call still reaches the main thread, and nothing reaches any
    other: there the profile would go on (140 MiB/s were seen), and crash the program at the
    thread's end. kineto also writes a line to stderr where torch was imported on another thread
    than this one, which we know only where the import came after us (``torch_elsewhere``).
    """

    def __init__(self, torch: Any, steps: int) -> None:
        if not on_main_thread():
            raise no_profile_here()
        self.steps = steps
        self.walls_ms: List[float] = []
        self.pid = os.getpid()
        self.end_asked = False
        """Of the main thread: once, for it may take long to come."""
        self.before_bytes = private_bytes()
        self.look_at = time.monotonic() + PROFILE_LOOK_S
        self.late_s = STEP_TIMEOUT_S
        self.too_much = ""
        profiler = loaded("torch.profiler")
        if profiler is None:
            raise RefusedError("unsupported", "This torch has no profiler.")
        if getattr(torch._C._autograd, "_profiler_enabled", lambda: False)():
            raise RefusedError("busy", "The program is profiling itself; nothing was done.")
        activity = profiler.ProfilerActivity
        kinds = [activity.CPU] + ([activity.CUDA] if cuda_initialized(torch) else [])
        # kineto logs its start and stop to stderr; it reads this variable at its first use.
        quiet = "KINETO_LOG_LEVEL" not in os.environ
        if quiet:
            os.environ["KINETO_LOG_LEVEL"] = "99"
        began = time.perf_counter()
        try:
            # False makes torch 2.11 warn (once) that a second cycle would lose the first's events.
            names = profiler.profile.__init__.__code__.co_varnames
            more = {"acc_events": True} if "acc_events" in names else {}
            self.profile = profiler.profile(activities=kinds, **more)
            self.profile.start()
        finally:
            if quiet:
                os.environ.pop("KINETO_LOG_LEVEL", None)
        self.last = time.perf_counter()
        self.start_ms = (self.last - began) * 1e3

    def is_here(self) -> bool:
        """Not in a child that was forked meanwhile: kineto's threads are not there."""
        return on_main_thread() and self.pid == os.getpid()

    def step(self) -> bool:
        """Notes a step; True when enough were recorded (one more than asked: read_profile)."""
        now = time.perf_counter()
        if len(self.walls_ms) < self.steps:
            self.walls_ms.append((now - self.last) * 1e3)
            self.last = now
            return False
        return True

    def stop(self) -> Any:
        began = time.perf_counter()
        inner = getattr(self.profile, "profiler", None)
        if inner is not None:
            inner.acc_events = False  # else torch makes its own list of the events, holding the GIL
        self.profile.stop()
        results = getattr(inner, "kineto_results", None)
        self.stop_ms = (time.perf_counter() - began) * 1e3
        self.profile = None
        return [] if results is None else results.events()


# -- steps -----------------------------------------------------------------------------------


class Job:
    """One operation for the training thread. The side that takes it off the queue owns it."""

    def __init__(self, client: Any, request: Reply, run: Callable[[Any], Reply]) -> None:
        self.client = client
        self.id = request["id"]
        self.op = request["op"]
        self.run = run
        self.timeout_s = timeout_of(request)
        self.deadline = time.monotonic() + self.timeout_s
        self.capturing = False
        self.data: Reply = {}
        self.recording: Any = None
        self.events: Any = []
        self.refusal: Optional[RefusedError] = None


def timeout_of(request: Reply) -> float:
    value = request.get("timeout_s", STEP_TIMEOUT_S)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.05 <= value <= 600:
        raise RefusedError("bad_request", "timeout_s is a number from 0.05 to 600.")
    return float(value)


class Seen:
    """One optimizer: how often it stepped."""

    __slots__ = ("count", "ref")

    def __init__(self, optimizer: Any) -> None:
        self.count = 0
        self.ref = weakref.ref(optimizer)


HOOKS = "_global_optimizer_post_hooks"
"""torch.optim.optimizer's OrderedDict of {number of a handle: callable}."""
HOOK_KEY = -0x636F636B
"""torch counts its handles up from 0. One key for every agent of a process, one after another."""


def change_hooks(
    names: Dict[str, Any], old: Any, method: str, arguments: Tuple[Any, ...], references: int
) -> bool:
    """``names[HOOKS].method(*arguments)``, where nobody iterates and HOOK_KEY's entry is ``old``.

    An iterator over the hooks (a view of them, too) refers to the OrderedDict, so there is none
    where ``references`` is the count without one (a program that keeps the OrderedDict under
    another name gets no hook). Asking and changing are one call into C on
    purpose: between two calls, even of one expression, another thread may take the GIL and begin
    to iterate, and its optimizer.step() would then raise "OrderedDict mutated during iteration".
    """
    hooks = names[HOOKS]
    change = getattr(hooks, method)
    mine = map(operator.is_, map(hooks.get, itertools.repeat(HOOK_KEY, 1)), itertools.repeat(old))
    counts = map(sys.getrefcount, itertools.repeat(hooks, 1))
    alone = map(operator.eq, counts, itertools.repeat(references))
    todo = itertools.compress(itertools.compress(itertools.repeat(arguments, 1), mine), alone)
    return bool(list(itertools.starmap(change, todo)))


def change_hooks_unseen(
    names: Dict[str, Any], old: Any, method: str, arguments: Tuple[Any, ...]
) -> bool:
    """One try; the count without an iterator is taken from a stand-in that nobody else knows."""
    for references in range(1, 16):
        held: Any = collections.OrderedDict({} if old is None else {HOOK_KEY: old})
        stand_in = {HOOKS: held}
        held = None
        if change_hooks(stand_in, old, method, arguments, references):
            return change_hooks(names, old, method, arguments, references)
    return False


def replace_hook(names: Dict[str, Any], old: Any, new: Any) -> bool:
    """At a key that is there: an OrderedDict's iterators take no notice."""
    if old is None or names[HOOKS].get(HOOK_KEY) is not old:
        return False
    names[HOOKS][HOOK_KEY] = new
    return True


def inert_hook() -> Any:
    """Stays where we cannot leave; holds nothing of ours, not even this module's names."""
    return types.FunctionType((lambda *_: None).__code__, {})


class Steps:
    """The optimizers' global post-hook: counter, heartbeat, and the only safe point for CUDA."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.installed = False
        self.removed: Any = None
        self.closed = False
        self.tries = 0
        self.count = 0
        self.seen: Dict[int, Seen] = {}
        self.times: Any = collections.deque(maxlen=64)
        self.thread: Optional[int] = None
        self.queue: Any = collections.deque()
        self.idle: Any = collections.deque()
        self.done: Any = collections.deque()
        self.recording: Optional[Tuple[Job, Recording]] = None
        self.first_step: Optional[Callable[[], None]] = None
        self.gradients: Any = collections.deque()
        """Gradients to be taken after the next step, for who waits for them."""

    def names(self) -> Optional[Dict[str, Any]]:
        """torch.optim.optimizer's namespace; None where it is not loaded, or before torch 2.0."""
        names = getattr(loaded("torch.optim.optimizer"), "__dict__", {})
        return names if type(names.get(HOOKS)) is collections.OrderedDict else None

    def install(self) -> bool:
        """False where torch.optim is not there, or too old (before 2.0).

        While a thread goes through the hooks it is put off, and the agent's thread tries again.
        """
        names = self.names()
        if names is None:
            return False
        if not self.installed and not self.closed:
            self.tries += 1
            # What an agent before us had to leave is replaced: that mutates nothing.
            old = names[HOOKS].get(HOOK_KEY)
            self.installed = replace_hook(names, old, self.on_step) or change_hooks_unseen(
                names, None, "__setitem__", (HOOK_KEY, self.on_step)
            )
        return True

    def retry_s(self) -> Optional[float]:
        """When the hook is to be tried again; None where it is there, or hopeless for now."""
        if self.installed or not 0 < self.tries < MAX_HOOK_TRIES:
            return None
        return HOOK_RETRY_S

    def remove(self) -> None:
        """Without effect from now on. The entry itself goes when nobody iterates: ``clean``."""
        self.closed = True
        names = self.names()
        if self.installed and names is not None:
            inert, found = inert_hook(), names[HOOKS].get(HOOK_KEY)
            if found == self.on_step and replace_hook(names, found, inert):
                self.removed = inert
        self.installed = False
        self.tries = 0
        self.clean()

    def clean(self) -> bool:
        """True where nothing of ours is left in torch's hooks."""
        names, inert = self.names(), self.removed
        left = names is not None and inert is not None and names[HOOKS].get(HOOK_KEY) is inert
        if names is not None and left:
            left = not change_hooks_unseen(names, inert, "pop", (HOOK_KEY,))
        if not left:
            self.removed = None
        return not left

    def optimizers(self) -> List[Any]:
        found = [entry.ref() for entry in list(self.seen.values())]
        return [optimizer for optimizer in found if optimizer is not None]

    def meet(self, optimizer: Any) -> Seen:
        for key, entry in list(self.seen.items()):
            if entry.ref() is None:
                self.seen.pop(key, None)
        entry = Seen(optimizer)
        if len(self.seen) < 256:
            self.seen[id(optimizer)] = entry
        return entry

    def on_step(self, optimizer: Any, _args: Any = None, _kwargs: Any = None) -> None:
        """Runs in the user's training loop: about a microsecond where nothing is asked."""
        entry = self.seen.get(id(optimizer))
        if entry is None or entry.ref() is not optimizer:
            entry = self.meet(optimizer)
        entry.count += 1
        if entry.count > self.count:  # two optimizers that take turns make one step, not two
            self.count = entry.count
            self.times.append(time.monotonic())
            self.thread = _thread.get_ident()
        if self.queue or self.recording or self.first_step or self.gradients:
            self.work()

    def work(self) -> None:
        """What was asked. KeyboardInterrupt is the user's and goes on to the program."""
        try:
            if self.first_step:
                self.first_step()
            torch = loaded("torch")
            while self.gradients:
                self.gradients.popleft().take(torch, self.optimizers())
            if self.recording:
                self.record()
            if self.queue and is_capturing(torch):
                for job in list(self.queue):
                    job.capturing = True
                return
            self.run_queue(torch)
        except Exception:  # noqa: BLE001 - an error of ours must never reach the training loop
            self.wake()

    def run_queue(self, torch: Any) -> None:
        while self.queue:
            try:
                job = self.queue.popleft()
            except IndexError:
                return
            self.run_job(torch, job)

    def run_job(self, torch: Any, job: Job) -> None:
        try:
            job.data = timed(torch, self.count, job.run)
        except RefusedError as refusal:
            job.refusal = refusal
        except Exception as error:  # noqa: BLE001 - torch may raise anything; it becomes the answer
            job.refusal = RefusedError("failed", sentence_of(error))
        finally:
            if self.recording is None or self.recording[0] is not job:
                self.done.append(job)
                self.wake()

    def run_between_cells(self) -> None:
        """Called by a notebook kernel's event loop, on the thread that runs its cells.

        An idle kernel makes no step, and its main thread sleeps in the loop: a pending call would
        wait for the next cell. The loop's own ``add_callback`` may be called from any thread and
        wakes it without a signal; it runs no callback while a cell runs.
        """
        if self.closed:
            return
        try:
            job = self.idle.popleft()
        except IndexError:
            return  # its time was over, or who asked has gone
        self.run_job(loaded("torch"), job)

    def begin(self, job: Job, recording: Recording) -> None:
        per_s = self.per_s()
        if per_s:
            recording.late_s = max(PROFILE_LATE_S, PROFILE_LATE_STEPS / per_s)
        self.recording = (job, recording)
        self.wake()  # the agent's thread has it in view from now on

    def record(self, stop: bool = False) -> None:
        """One step of a recording; ends it where enough was seen or ``stop``."""
        if self.recording is None:
            return
        job, recording = self.recording
        if not recording.is_here() or not (stop or recording.step()):
            return
        self.recording = None
        job.refusal = RefusedError("failed", "The program was interrupted; no profile was taken.")
        try:
            job.events = recording.stop()
            job.refusal = None
        except Exception as error:  # noqa: BLE001 - see run_queue
            job.refusal = RefusedError("failed", sentence_of(error))
        finally:  # KeyboardInterrupt goes on
            job.recording = recording
            self.done.append(job)
            self.wake()

    def end_recording(self) -> None:
        """Steps do not come, or the agent goes: here and now on the main thread, else once that
        runs Python again."""
        held = self.recording
        if held is None or held[1].end_asked:
            return
        recording = held[1]
        if recording.is_here():
            self.record(stop=True)
        elif recording.pid == os.getpid():
            recording.end_asked = ask_main_thread(partial(self.record, stop=True))

    def record_no_more(self) -> None:
        """In a child that the recording thread has forked: it would note every operation for ever
        (a worker of a DataLoader), and kineto cannot be stopped there."""
        autograd = loaded("torch")._C._autograd
        if self.recording is not None and autograd._profiler_enabled():
            autograd._enable_record_function(False)

    def waiting(self) -> List[Job]:
        """All whose answer has not been given yet."""
        return [*self.queue, *self.idle, *self.done]

    def age_s(self) -> Optional[float]:
        return round(time.monotonic() - self.times[-1], 3) if self.times else None

    def per_s(self) -> Optional[float]:
        """Over the last 64 steps; None before the third."""
        times: List[float] = list(self.times)
        if len(times) < 3 or times[-1] <= times[0]:
            return None
        return round((len(times) - 1) / (times[-1] - times[0]), 3)


def sentence_of(error: BaseException) -> str:
    """The first line of what was raised."""
    text = str(error).strip().splitlines()
    return ("%s: %s" % (type(error).__name__, text[0] if text else "no message"))[:400]


def allocator_rows(torch: Any) -> List[Reply]:
    if torch is None:
        return []
    return [
        dict(device_row(i, torch._C._cuda_memoryStats(i)), uuid=device_uuid(torch, i))
        for i in used_devices(torch)
    ]


def timed(torch: Any, step: int, run: Callable[[Any], Reply]) -> Reply:
    """Runs it between two readings; says how much longer this step took for it."""
    before = allocator_rows(torch)
    began = time.perf_counter()
    data = run(torch)
    took = time.perf_counter() - began
    data.update(
        step=step,
        step_took_more_ms=round(took * 1e3, 3),
        before=before,
        after=allocator_rows(torch),
    )
    return data


# -- operations of the training thread -------------------------------------------------------


def need_cuda(torch: Any) -> None:
    if torch is None or not cuda_initialized(torch):
        raise RefusedError("not_initialized", "CUDA was never initialised in this process.")


def run_gc(_torch: Any) -> Reply:
    return {"collected": gc.collect()}


def run_empty_cache(torch: Any) -> Reply:
    """In ``torch.cuda.device(i)`` of a device that has a context already: none is made on GPU 0."""
    need_cuda(torch)
    used = used_devices(torch)
    if used:
        now = int(torch.cuda.current_device())
        has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda i: i in used)
        with torch.cuda.device(now if has_context(now) else used[0]):
            torch.cuda.empty_cache()
    return {}


def notebook_shell() -> Any:
    """The IPython shell of a notebook kernel, which has an event loop to be called back from."""
    shells = getattr(loaded("IPython.core.interactiveshell"), "InteractiveShell", None)
    shell = getattr(shells, "_instance", None)
    loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    if not callable(getattr(loop, "add_callback", None)):
        raise RefusedError("unsupported", "This process is no notebook kernel.")
    return shell


def free_frames(torch: Any, shell: Any, out: bool) -> Reply:
    """Lets go of the last exception, whose frames hold their tensors; with ``out`` of results, too.

    What the program itself keeps (a caught exception in a variable) stays as it is.
    """
    if torch is not None and is_capturing(torch):
        raise RefusedError("busy", "A CUDA graph is being captured; nothing was done.")
    names = ("last_type", "last_value", "last_traceback", "last_exc")
    held = [name for name in names if getattr(sys, name, None) is not None]
    for name in held:
        delattr(sys, name)
    shown: Any = getattr(shell, "InteractiveTB", None)
    if getattr(shown, "tb", None) is not None:
        shown.tb = None
    if getattr(shell, "last_execution_result", None) is not None:
        shell.last_execution_result = None
    results = getattr(shell, "user_ns", {}).get("_oh") or {}
    count = len(results) if out else 0
    if out:
        shell.displayhook.flush()  # as %reset out does it
    data = run_gc(torch)
    data.update(exception=bool(held), results=count)
    if torch is not None and cuda_initialized(torch):
        run_empty_cache(torch)
    return data


def allocator_text(torch: Any) -> str:
    """The full settings string: a partial one would put the other keys back to their defaults."""
    read = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    if read is not None:
        text = read()
        if text:
            return str(text)
    remembered = registry().allocator_text
    if remembered is not None:
        return str(remembered)
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""


def set_allocator(torch: Any, name: str, value: str) -> Reply:
    text = allocator_text(torch)
    if "[" in text or "roundup_power2_divisions" in text or "backend" in text:
        raise RefusedError(
            "unsupported",
            "The allocator's settings hold a key that may only be set at the start (%s)." % text,
        )
    pairs = [part.partition(":")[::2] for part in text.split(",") if ":" in part]
    settings = {key.strip(): held.strip() for key, held in pairs}
    old = settings.get(name, ALLOCATOR_DEFAULTS[name])
    if value == "default":
        settings.pop(name, None)
    else:
        settings[name] = value
    new = ",".join("%s:%s" % item for item in settings.items())
    put = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or getattr(
        torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None
    )
    if put is None:
        raise RefusedError("unsupported", "This torch cannot change its allocator's settings live.")
    put(new)
    registry().allocator_text = new
    return {"name": name, "old": old, "new": value, "settings": new}


def set_matmul_precision(torch: Any, value: str) -> Reply:
    if not hasattr(torch, "set_float32_matmul_precision"):
        raise RefusedError("unsupported", "This torch has no matmul precision to set.")
    old = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    return {"name": "matmul_precision", "old": old, "new": value}


def set_memory_fraction(torch: Any, value: float, index: Optional[int]) -> Reply:
    """One device, the training thread's where none is named."""
    need_cuda(torch)
    device = int(torch.cuda.current_device()) if index is None else index
    if not 0 <= device < device_count(torch):
        raise RefusedError("bad_request", "There is no device %d." % device)
    read = getattr(torch._C, "_cuda_getMemoryFraction", None)
    old = float(read(device)) if read else None
    torch._C._cuda_setMemoryFraction(float(value), device)
    return {"name": "memory_fraction", "old": old, "new": value, "device": device}


def checked_setting(name: Any, value: Any) -> Any:
    """The value in the form that torch takes, or a refusal that says which forms there are."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "expandable_segments":
        if value in (True, False, "True", "False"):
            return str(value)
        wanted = "True or False"
    elif name == "garbage_collection_threshold":
        if value == "default" or (number and 0 < value < 1):
            return str(value)
        wanted = "a number between 0 and 1, or default"
    elif name == "max_split_size_mb":
        if value == "default" or (number and 20 < value < 1 << 20):
            return "default" if value == "default" else str(int(value))
        wanted = "more than 20 (MiB), or default"
    elif name == "matmul_precision":
        if value in ("highest", "high", "medium"):
            return value
        wanted = "highest, high or medium"
    elif name == "memory_fraction":
        if number and 0 < value <= 1:
            return float(value)
        wanted = "a number above 0 and at most 1"
    else:
        raise RefusedError("bad_request", "The settings are %s." % ", ".join(SETTINGS))
    raise RefusedError("bad_request", "%s is %s." % (name, wanted))


def history_enabled(torch: Any) -> Optional[bool]:
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(ask()) if ask is not None else None


def write_private(directory: str, name: str, write: Callable[[Any], Any]) -> str:
    """A new file, 0600, never through a link; its path."""
    path = os.path.join(directory, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        write(file)
    return path


def write_snapshot(torch: Any, path_of: Tuple[str, str]) -> Tuple[str, int]:
    """torch's own snapshot with traces as a pickle, for its memory_viz; (path, bytes)."""
    import pickle

    taken = torch.cuda.memory._snapshot()
    path = write_private(path_of[0], path_of[1], lambda file: pickle.dump(taken, file))
    return path, os.stat(path).st_size


# -- import of torch after us ----------------------------------------------------------------


class TorchFinder:
    """Calls back when the program has imported torch; finds nothing itself."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.arrived = arrived
        self.asking: Any = set()

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Anew each time: a program may look for torch long before it imports it."""
        ident = _thread.get_ident()
        if name != "torch" or ident in self.asking:
            return None
        self.asking.add(ident)
        try:
            return self.wrapped(name)
        except Exception:  # noqa: BLE001 - the program's import goes on without us
            return None
        finally:
            self.asking.discard(ident)

    def wrapped(self, name: str) -> Any:
        import importlib.util

        spec = importlib.util.find_spec(name)
        loader: Any = getattr(spec, "loader", None)
        load = getattr(loader, "exec_module", None)
        if spec is None or load is None:
            return None

        def exec_module(module: Any) -> None:
            load(module)
            with contextlib.suppress(Exception):
                registry().torch_elsewhere = not on_main_thread()
                del loader.exec_module
                # Its code has run to the end; importlib would say so only after we return.
                spec._initializing = False  # type: ignore[attr-defined]
                self.remove()
                self.arrived()

        loader.exec_module = exec_module
        return spec

    def install(self) -> None:
        """A new list: an import in another thread goes on over the old one and skips nobody."""
        sys.meta_path = [self, *sys.meta_path]

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


# -- one connection --------------------------------------------------------------------------


class Client:
    """A connected cockpit: bounded buffers, a token bucket, at most one stream."""

    def __init__(self, connection: socket.socket, pid: int, uid: int) -> None:
        self.connection = connection
        self.fd = connection.fileno()
        self.pid = pid
        self.uid = uid
        self.received = bytearray()
        self.unsent = bytearray()
        self.unsent_since = 0.0
        self.tokens = float(MAX_REQUESTS_PER_S)
        self.refilled = time.monotonic()
        self.rejected = 0
        self.stream_id = 0
        self.stream_every = 0.0
        self.stream_due = 0.0
        self.mask = select.EPOLLIN
        self.open = True
        self.heard = time.monotonic()
        self.guest = False

    def take_token(self) -> bool:
        now = time.monotonic()
        rate = MAX_REQUESTS_PER_S
        self.tokens = min(float(rate), self.tokens + (now - self.refilled) * rate)
        self.refilled = now
        if self.tokens < 1:
            self.rejected += 1
            return False
        self.tokens -= 1
        self.rejected = max(0, self.rejected - 1)
        return True

    def flush(self) -> None:
        """Sends what the reader takes now; raises OSError where the connection is gone."""
        while self.unsent:
            try:
                sent = self.connection.send(self.unsent)
            except BlockingIOError:
                return
            del self.unsent[:sent]
            self.unsent_since = time.monotonic()


# -- the agent -------------------------------------------------------------------------------


class Agent:
    """Serves the socket from a thread of its own that sleeps until somebody asks."""

    def __init__(
        self, how: str, directory: Optional[str], observe_oom: bool, history: bool = False
    ) -> None:
        self.how = how if how in WAYS_IN else "import"
        self.wanted_directory = directory
        self.observe_oom = observe_oom
        self.history_wanted = history
        self.pid = os.getpid()
        self.readonly = os.environ.get("COCKPIT_AGENT_READONLY", "") not in ("", "0")
        self.directory: Optional[str] = None
        self.path: Optional[str] = None
        self.thread: Optional[int] = None
        self.stopping = False
        self.exiting = False
        self.ended = _thread.allocate_lock()
        self.listener: Any = None
        self.epoll: Any = None
        self.wake_read = self.wake_write = -1
        self.clients: Dict[int, Client] = {}
        self.tasks: List[Tuple[Client, Reply, Slices]] = []
        self.steps = Steps(self.wake)
        self.finder: Optional[TorchFinder] = None
        self.lazy_call: Any = None
        self.accepts: Any = collections.deque(maxlen=MAX_REQUESTS_PER_S)
        self.listen_again = 0.0
        self.uuids: Dict[int, Optional[str]] = {}
        self.largest_free: Dict[int, Tuple[float, int]] = {}
        self.history_ours = False
        self.oom_records = 0
        self.last_oom: Optional[Reply] = None
        self.files = 0

    # starting and ending

    def start(self) -> Optional[str]:
        """Opens the socket and starts the thread; the socket's path, None where it cannot be."""
        if self.path is not None:
            return self.path
        if not self.open_socket():
            self.close_descriptors()
            return None
        self.watch_torch()
        self.ended.acquire()
        atexit.register(self.at_exit)
        try:
            _thread.start_new_thread(self.main, ())
        except RuntimeError as error:
            registry().trouble = sentence_of(error)
            self.ended.release()
            self.stop()
            return None
        return self.path

    def open_socket(self) -> bool:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        runtime = runtime if runtime and os.path.isdir(runtime) else None
        wanted = self.wanted_directory
        troubles = []
        for directory in [wanted] if wanted else socket_directories(os.geteuid(), runtime):
            path = os.path.join(directory, "%d.sock" % self.pid)
            if len(os.fsencode(path)) >= 108:
                troubles.append("%s… is too long for a socket" % directory[:40])
            elif not private_directory(directory):
                troubles.append("%s is no directory of its user with mode 0700" % directory)
            else:
                try:
                    self.bind(path)
                except OSError as error:
                    troubles.append("%s: %s" % (directory, error.strerror or error))
                    self.close_descriptors()
                    continue
                self.directory, self.path = directory, path
                return True
        registry().trouble = "; ".join(reversed(troubles))  # the last was the last hope
        return False

    def bind(self, path: str) -> None:
        """The name appears when the socket listens: a refused connection means a dead process."""
        early = path[: -len("sock")] + "new"
        for left in (early, path):  # by a killed process that had our pid
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        self.listener.bind(early)
        os.chmod(early, 0o600)
        self.listener.listen(16)
        os.rename(early, path)
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.epoll.register(self.wake_read, select.EPOLLIN)

    def watch_torch(self) -> None:
        """The step hook now, or when the program imports torch."""
        torch = loaded("torch")
        if torch is None:
            if self.finder is None and "torch" not in sys.modules:
                self.finder = TorchFinder(self.torch_arrived)
                self.finder.install()
            return
        self.steps.install()
        observe = self.observe_oom and not registry().observed
        if self.path is None or observe or self.history_wanted:
            self.call_when_initialized(torch)

    def torch_arrived(self) -> None:
        self.finder = None
        self.watch_torch()

    def call_when_initialized(self, torch: Any) -> None:
        """Queued with torch's own deferred CUDA calls. Without their lock, which a fork may copy
        while it is held; appending is atomic."""
        if cuda_initialized(torch):
            self.cuda_arrived()
            return
        queue = getattr(torch.cuda, "_queued_calls", None)
        if isinstance(queue, list) and self.lazy_call is None:
            self.lazy_call = (self.cuda_arrived, [])
            queue.append(self.lazy_call)

    def cuda_arrived(self) -> None:
        """An exception here would reach the program as DeferredCudaCallError."""
        if self.stopping or self.pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            if self.path is None:
                self.start()
        torch = loaded("torch")
        if torch is None:
            return
        with contextlib.suppress(Exception):
            if self.observe_oom and not registry().observed:
                observe_oom_of(torch)
        with contextlib.suppress(Exception):
            if self.history_wanted:
                self.history_wanted = False
                self.start_history(torch)

    def start_history(self, torch: Any) -> None:
        """As asked for at the start; a program that records by itself is let alone."""
        if torch_release(torch) >= (2, 1) and not history_enabled(torch):
            self.run_history(torch, "start", HISTORY_ENTRIES)

    def sleep_until_needed(self) -> None:
        """A child process: no socket and no thread before CUDA or an optimizer is used in it."""
        self.steps.first_step = self.first_step
        self.watch_torch()

    def first_step(self) -> None:
        self.steps.first_step = None
        self.start()

    def stop(self) -> None:
        """Leaves nothing behind: hooks, socket, descriptors. Any thread, more than once."""
        self.stopping = True
        with contextlib.suppress(Exception):
            self.steps.end_recording()  # at the exit too: torch crashes where it still records
        self.unhook()
        hide_fork_warning(False)
        self.unlink_socket()
        # One that takes itself out while it runs crashes CPython before 3.9.10 if it then raises.
        if not self.exiting:
            with contextlib.suppress(Exception):
                atexit.unregister(self.at_exit)
        self.wake()

    def unlink_socket(self) -> None:
        """Once: the next agent of this process has the same name."""
        path, self.path = self.path, None
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def unhook(self) -> None:
        self.steps.first_step = None
        self.steps.remove()
        finder, self.finder = self.finder, None
        if finder is not None:
            finder.remove()
        torch, call = loaded("torch"), self.lazy_call
        if torch is not None and call is not None and not cuda_initialized(torch):
            with contextlib.suppress(ValueError, AttributeError):
                torch.cuda._queued_calls.remove(call)
        self.lazy_call = None
        if self.history_ours and torch is not None and cuda_initialized(torch):
            self.history_ours = False
            with contextlib.suppress(Exception):
                torch.cuda.memory._record_memory_history(enabled=None)

    def wait_ended(self, timeout_s: float) -> bool:
        if self.thread == _thread.get_ident():
            return True
        if self.ended.acquire(timeout=timeout_s):
            self.ended.release()
            return True
        return False

    def at_exit(self) -> None:
        if self.pid == os.getpid():
            self.exiting = True
            self.stop()
            self.wait_ended(0.2)

    def forget(self) -> None:
        """In a forked child: the thread is not there, the descriptors are the parent's."""
        self.stopping = True
        with contextlib.suppress(Exception):
            self.steps.record_no_more()
        self.unhook_child()
        self.close_descriptors()

    def unhook_child(self) -> None:
        self.history_ours = False
        with contextlib.suppress(Exception):
            self.unhook()
        with contextlib.suppress(Exception):
            atexit.unregister(self.at_exit)

    def close_descriptors(self) -> None:
        for client in list(self.clients.values()):
            with contextlib.suppress(OSError):
                client.connection.close()
        self.clients.clear()
        listener, self.listener = self.listener, None
        epoll, self.epoll = self.epoll, None
        pipes, self.wake_read, self.wake_write = (self.wake_read, self.wake_write), -1, -1
        for held in (listener, epoll):
            if held is not None:
                with contextlib.suppress(OSError):
                    held.close()
        for fd in pipes:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def wake(self) -> None:
        if self.wake_write >= 0:
            with contextlib.suppress(OSError):
                os.write(self.wake_write, b".")

    # the thread

    def main(self) -> None:
        """Nothing that goes wrong here is heard in the user's program."""
        try:
            self.thread = _thread.get_ident()
            quiet_thread()
            while not self.stopping:
                self.turn()
        except Exception:  # noqa: BLE001 - the agent is gone then; the training is not
            self.stopping = True
        finally:
            with contextlib.suppress(Exception):
                self.stop()
                self.close_descriptors()
                reg = registry()
                if reg.agent is self:
                    reg.agent = None
            with contextlib.suppress(Exception):
                self.clean_hooks()
            self.ended.release()

    def clean_hooks(self) -> None:
        """What cannot be taken out in that time stays as an entry that does nothing."""
        end = time.monotonic() + MAX_CLEANING_S
        while not self.steps.clean() and not self.exiting and time.monotonic() < end:
            time.sleep(HOOK_RETRY_S)

    def turn(self) -> None:
        for fd, event in self.epoll.poll(self.patience_s()):
            if fd == self.wake_read:
                with contextlib.suppress(OSError):
                    os.read(self.wake_read, 4096)
            elif self.listener is not None and fd == self.listener.fileno():
                self.guarded(None, self.accept)
            elif fd in self.clients:
                client = self.clients[fd]
                self.guarded(client, partial(self.serve, client, event))
        if self.steps.retry_s() is not None:
            self.guarded(None, self.steps.install)
        self.guarded(None, self.finish_jobs)
        self.guarded(None, self.run_timers)
        self.run_tasks()

    def guarded(self, client: Optional[Client], run: Callable[[], Any]) -> None:
        """What breaks in one connection ends that connection, never the thread."""
        try:
            run()
        except Exception:  # noqa: BLE001 - see the docstring
            if client is not None:
                self.drop(client)

    def patience_s(self) -> float:
        """Until the next thing that somebody asked for; -1 (for ever) where nobody did."""
        if self.tasks:
            return 0.0005
        due = [job.deadline for job in [*self.steps.queue, *self.steps.idle]]
        retry_s = self.steps.retry_s()
        if retry_s is not None:
            due.append(time.monotonic() + retry_s)
        recording = self.steps.recording
        if recording is not None and not recording[1].end_asked:
            due += [recording[0].deadline, recording[1].look_at]
        for client in self.clients.values():
            if client.stream_every:
                due.append(client.stream_due)
            elif not self.waits(client):
                due.append(client.heard + SILENT_S)
            if client.unsent:
                due.append(client.unsent_since + SLOW_READER_S)
        if self.listen_again:
            due.append(self.listen_again)
        return max(0.0, min(due) - time.monotonic()) if due else -1

    def accept(self) -> None:
        now = time.monotonic()
        if len(self.accepts) == self.accepts.maxlen and now - self.accepts[0] < 1.0:
            self.epoll.unregister(self.listener.fileno())  # a flood of connections waits outside
            self.listen_again = self.accepts[0] + 1.0
            return
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return
        self.accepts.append(now)
        connection.setblocking(False)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _gid = struct.unpack("3i", peer)
        if uid not in (0, os.geteuid()):
            connection.close()
            return
        client = Client(connection, pid, uid)
        self.make_room(client)
        self.clients[client.fd] = client
        self.epoll.register(client.fd, client.mask)

    def make_room(self, client: Client) -> None:
        """The one that was silent longest goes. Where all are busy, the new one is a guest: it may
        ask who this is and detach, nothing else, and the next guest takes its place."""
        for other in list(self.clients.values()):
            if other.guest:
                self.drop(other)
        if len(self.clients) < MAX_CLIENTS:
            return
        since = time.monotonic() - IDLE_S
        idle = [
            other
            for other in self.clients.values()
            if other.heard <= since and not other.stream_every and not self.waits(other)
        ]
        if idle:
            self.drop(min(idle, key=lambda other: other.heard))
        else:
            client.guest = True

    def waits(self, client: Client) -> bool:
        """For an answer that has not been given to it."""
        recording = self.steps.recording
        return (
            bool(client.unsent)
            or any(task[0] is client for task in self.tasks)
            or any(job.client is client for job in self.steps.waiting())
            or (recording is not None and recording[0].client is client)
        )

    def drop(self, client: Client) -> None:
        client.open = False
        self.clients.pop(client.fd, None)
        self.tasks = [task for task in self.tasks if task[0] is not client]
        for queue in (self.steps.queue, self.steps.idle):
            for job in list(queue):
                if job.client is client:
                    with contextlib.suppress(ValueError):  # the training thread has just begun it
                        queue.remove(job)
        with contextlib.suppress(OSError, ValueError):
            self.epoll.unregister(client.fd)
        with contextlib.suppress(OSError):
            client.connection.close()

    def serve(self, client: Client, event: int) -> None:
        if event & select.EPOLLOUT:
            self.push(client)
        if event & select.EPOLLIN:
            try:
                data = client.connection.recv(16 * 1024)
            except BlockingIOError:
                return
            if not data:
                self.drop(client)
                return
            client.received += data
            self.read_lines(client)
        elif event & (select.EPOLLHUP | select.EPOLLERR):
            self.drop(client)

    def read_lines(self, client: Client) -> None:
        while client.open and not self.stopping:
            line, newline, rest = client.received.partition(b"\n")
            if not newline:
                break
            client.received = rest
            if len(line) > MAX_REQUEST_BYTES:
                break
            if line.strip():
                self.answer(client, bytes(line))
        if client.open and len(client.received) > MAX_REQUEST_BYTES:
            too_long = RefusedError("bad_request", "A request is at most 64 KiB.")
            self.send(client, refused(0, too_long))
            self.drop(client)

    def answer(self, client: Client, line: bytes) -> None:
        request_id = 0
        try:
            allowed = client.take_token()
            if not allowed and client.rejected > 2 * MAX_REQUESTS_PER_S:
                self.drop(client)
                return
            request = parse(line)
            request_id = request["id"]
            client.heard = time.monotonic()
            if client.guest and request["op"] not in ("hello", "detach"):
                raise RefusedError("busy", "%d clients are connected already." % MAX_CLIENTS)
            if not allowed:
                raise RefusedError("rate", "At most %d requests a second." % MAX_REQUESTS_PER_S)
            data = self.dispatch(client, request)
        except RefusedError as refusal:
            self.send(client, refused(request_id, refusal))
            if client.guest and request_id:
                self.drop(client)
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            self.send(client, refused(request_id, RefusedError("failed", sentence_of(error))))
        else:
            if data is not None:
                self.send(client, accepted(request_id, data))

    def send(self, client: Client, message: Reply) -> None:
        self.send_bytes(client, encode(message))

    def send_bytes(self, client: Client, data: bytes) -> None:
        if not client.open:
            return
        if not client.unsent:
            client.unsent_since = time.monotonic()
        client.unsent += data
        if len(client.unsent) > OUT_CAP_BYTES:
            self.drop(client)
            return
        self.push(client)

    def push(self, client: Client) -> None:
        try:
            client.flush()
        except OSError:
            self.drop(client)
            return
        mask = select.EPOLLIN | (select.EPOLLOUT if client.unsent else 0)
        if mask != client.mask:
            client.mask = mask
            self.epoll.modify(client.fd, mask)

    def run_timers(self) -> None:
        now = time.monotonic()
        if self.listen_again and now >= self.listen_again:
            self.listen_again = 0.0
            self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        for client in list(self.clients.values()):
            if client.unsent and now - client.unsent_since >= SLOW_READER_S:
                self.drop(client)
            elif now - client.heard >= SILENT_S and not client.stream_every:
                if not self.waits(client):
                    self.drop(client)
            elif client.stream_every and now >= client.stream_due:
                late = now - client.stream_due
                client.stream_due = now + client.stream_every - late % client.stream_every
                if not client.unsent:  # a sample for a slow reader is left out, never queued
                    self.send(client, accepted(client.stream_id, self.stats(), stream=True))
        for queue in (self.steps.queue, self.steps.idle):
            for job in list(queue):
                if now >= job.deadline:
                    self.expire(job, queue)
        self.watch_recording(now)

    def watch_recording(self, now: float) -> None:
        """One whose steps do not come in time, or that takes too much of the host's memory."""
        held = self.steps.recording
        if held is None or held[1].end_asked:
            return
        job, recording = held
        if now >= recording.look_at:
            recording.look_at = now + PROFILE_LOOK_S
            grew, age = private_bytes() - recording.before_bytes, self.steps.age_s() or 0.0
            if grew > MAX_PROFILE_BYTES and age > recording.late_s:
                recording.too_much = "none for %g s, in which it took %d MiB" % (age, grew >> 20)
        if now >= job.deadline or recording.too_much:
            job.deadline = now + 1.0  # where the queue was full
            self.steps.end_recording()

    def expire(self, job: Job, queue: Any) -> None:
        try:
            queue.remove(job)
        except ValueError:
            return  # the training thread has just begun it
        if queue is self.steps.idle:
            sentence = "A cell has been running for %g s; nothing was done."
        elif job.capturing:
            sentence = "A CUDA graph was being captured for %g s; nothing was done."
        else:
            sentence = "No optimizer step within %g s; nothing was done."
        self.send(job.client, refused(job.id, RefusedError("no_step", sentence % job.timeout_s)))

    def run_tasks(self) -> None:
        for task in list(self.tasks):
            client, request, slices = task
            try:
                next(slices)
                continue
            except StopIteration as done:
                if done.value is not None:
                    self.send_slices(client, request, done.value)
            except RefusedError as refusal:
                self.send(client, refused(request["id"], refusal))
            except Exception as error:  # noqa: BLE001 - it becomes the answer
                self.send(
                    client, refused(request["id"], RefusedError("failed", sentence_of(error)))
                )
            if task in self.tasks:
                self.tasks.remove(task)

    def send_slices(self, client: Client, request: Reply, data: Reply) -> None:
        """Long lists are encoded in pieces: json.dumps of 4 MB holds the GIL for 30 ms."""
        long = [key for key, held in data.items() if isinstance(held, list) and len(held) > 200]
        if long:
            self.tasks.append((client, request, self.encode_slices(client, request, data, long[0])))
        else:
            self.send(client, accepted(request["id"], data))

    def encode_slices(self, client: Client, request: Reply, data: Reply, key: str) -> Any:
        rows = data.pop(key)
        head = encode(accepted(request["id"], data))[:-3]
        pieces = [head, b"," if data else b"", json.dumps(key).encode(), b":["]
        for start in range(0, len(rows), 50):
            piece = json.dumps(rows[start : start + 50], separators=(",", ":"), default=str)
            pieces.append((b"," if start else b"") + piece[1:-1].encode())
            yield
        pieces.append(b"]}}\n")
        self.send_bytes(client, b"".join(pieces))
        return  # nothing more to send

    # requests

    def dispatch(self, client: Client, request: Reply) -> Optional[Reply]:
        """The reply's data, or None where it comes later."""
        op = request["op"]
        if op not in OPERATIONS:
            raise RefusedError("bad_request", "There is no operation %r." % str(op)[:40])
        if self.readonly and op in MUTATING:
            raise RefusedError("unsupported", "This agent only reads (COCKPIT_AGENT_READONLY).")
        self.steps.install()
        answer: Optional[Reply] = getattr(self, "op_" + op)(client, request)
        return answer

    def torch(self) -> Any:
        torch = loaded("torch")
        if torch is None:
            raise RefusedError("unsupported", NOTES.get(framework()) or NOTES[None])
        return torch

    def at_step(self, client: Client, request: Reply, run: Callable[[Any], Reply]) -> None:
        """Queues it for the next step boundary of the training thread."""
        self.steps.queue.append(self.job(client, request, run))

    def job(self, client: Client, request: Reply, run: Callable[[Any], Reply]) -> Job:
        self.torch()
        if not self.steps.install():
            raise RefusedError(
                "unsupported", "This torch has no hook after optimizer steps (2.0 has)."
            )
        if len(self.steps.queue) >= MAX_JOBS:
            raise RefusedError("busy", "%d operations wait for a step already." % MAX_JOBS)
        return Job(client, request, run)

    def later(self, client: Client, request: Reply, slices: Slices) -> None:
        if any(task[0] is client for task in self.tasks):
            raise RefusedError("busy", "The last long operation of this connection still runs.")
        self.tasks.append((client, request, slices))

    def finish_jobs(self) -> None:
        while self.steps.done:
            job = self.steps.done.popleft()
            recording, job.recording = job.recording, None
            if job.op in MUTATING:
                self.audit(job)
            if job.refusal is not None:
                self.send(job.client, refused(job.id, job.refusal))
            elif recording is not None:
                self.finish_recording(job, recording)
            else:
                self.send(job.client, accepted(job.id, job.data))

    def finish_recording(self, job: Job, recording: Recording) -> None:
        events, job.events = job.events, []
        if len(recording.walls_ms) < recording.steps:
            sentence = "Only %d of %d steps came%s." % (
                len(recording.walls_ms),
                recording.steps,
                (recording.too_much and ": " + recording.too_much)
                or " within %g s" % job.timeout_s,
            )
            self.send(job.client, refused(job.id, RefusedError("no_step", sentence)))
            return
        request = {"id": job.id}
        slices = read_profile(events, recording.steps, recording.walls_ms)
        job.data.update(
            profiler_start_ms=round(recording.start_ms, 1),
            profiler_stop_ms=round(recording.stop_ms, 1),
        )
        self.tasks.append((job.client, request, merged(slices, job.data)))

    def audit(self, job: Job) -> None:
        """A line in the agent's own log: who, when, what, before, after."""
        if self.directory is None:
            return
        line = {
            "at": round(time.time(), 3),
            "pid": self.pid,
            "op": job.op,
            "client_pid": job.client.pid,
            "client_uid": job.client.uid,
            "ok": job.refusal is None,
            "error": job.refusal.sentence if job.refusal else None,
        }
        line.update(job.data)
        path = os.path.join(self.directory, "%d.log" % self.pid)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(path, flags, 0o600)
            try:
                os.write(fd, encode(line))
            finally:
                os.close(fd)

    def audit_now(self, client: Client, request: Reply, data: Reply) -> Reply:
        job = Job(client, {"id": request["id"], "op": request["op"]}, run_gc)
        job.data = data
        self.audit(job)
        return data

    def op_hello(self, _client: Client, _request: Reply) -> Reply:
        torch = loaded("torch")
        found = framework()
        initialized = torch is not None and cuda_initialized(torch)
        reply: Reply = {
            "pid": self.pid,
            "start_ticks": start_ticks(),
            "torch_version": str(getattr(torch, "__version__", "")) or None,
            "python_version": "%d.%d.%d" % sys.version_info[:3],
            "framework": found,
            "note": NOTES.get(found) if torch is None else None,
            "cuda_initialized": initialized,
            "device_count": device_count(torch) if initialized else None,
            "attached_by": self.how,
            "readonly": self.readonly,
            "launcher": launcher(),
            "argv": [str(a)[:2000] for a in getattr(sys, "argv", [])[:100]],
            "step": self.steps.count,
            "step_age_s": self.steps.age_s(),
            "step_hook": self.steps.installed,
            "history": self.history_ours,
            "oom_observer": registry().observed,
            "time": time.time(),
        }
        reply.update(rank_of(torch))
        return reply

    def op_stats(self, _client: Client, _request: Reply) -> Reply:
        return self.stats()

    def stats(self) -> Reply:
        torch = loaded("torch")
        steps = self.steps
        initialized = torch is not None and cuda_initialized(torch)
        return {
            "step": steps.count,
            "step_age_s": steps.age_s(),
            "steps_per_s": steps.per_s(),
            "cuda_initialized": initialized,
            "training_thread": steps.thread,
            "time": time.time(),
            "devices": self.device_rows(torch) if initialized else [],
        }

    def device_rows(self, torch: Any) -> List[Reply]:
        rows = []
        for index in range(device_count(torch)):
            stats = torch._C._cuda_memoryStats(index)
            if not current(stats, "reserved_bytes", "peak"):
                continue  # never used by this process
            if index not in self.uuids:
                self.uuids[index] = device_uuid(torch, index)
            row = device_row(index, stats)
            row["uuid"] = self.uuids[index]
            at, largest = self.largest_free.get(index, (0.0, 0))
            fresh = time.monotonic() - at < LARGEST_FREE_KEPT_S and at > 0
            row["largest_free_block_bytes"] = largest if fresh else None
            rows.append(row)
        return rows

    def op_stream(self, client: Client, request: Reply) -> None:
        hz = request.get("hz", 1)
        number = isinstance(hz, (int, float)) and not isinstance(hz, bool)
        if not number or not 0.01 <= hz <= MAX_STREAM_HZ:
            raise RefusedError("bad_request", "hz is a number from 0.01 to %g." % MAX_STREAM_HZ)
        client.stream_id = request["id"]
        client.stream_every = 1.0 / hz
        client.stream_due = time.monotonic() + client.stream_every
        self.send(client, accepted(request["id"], self.stats(), stream=True))

    def op_stop(self, client: Client, _request: Reply) -> Reply:
        was, client.stream_every = client.stream_every > 0, 0.0
        return {"stopped": was}

    def op_stacks(self, _client: Client, _request: Reply) -> Reply:
        return {"threads": stacks(_thread.get_ident(), self.steps.thread)}

    def op_census(self, client: Client, request: Reply) -> None:
        deep, full = request.get("deep", False), request.get("full", False)
        if not isinstance(deep, bool) or not isinstance(full, bool):
            raise RefusedError("bad_request", "deep and full are true or false.")
        optimizers, gradients = self.steps.optimizers(), None
        if optimizers and not self.readonly:
            gradients = Gradients()
        slices = census(self.torch(), optimizers, deep, full and deep, gradients)
        self.later(client, request, slices)
        if gradients is not None:
            self.steps.gradients.append(gradients)
            if len(self.steps.gradients) > MAX_JOBS:  # of who went away while no step came
                self.steps.gradients.popleft()

    def op_gc(self, client: Client, request: Reply) -> None:
        self.at_step(client, request, run_gc)

    def op_empty_cache(self, client: Client, request: Reply) -> None:
        need_cuda(self.torch())
        self.at_step(client, request, run_empty_cache)

    def op_free_frames(self, client: Client, request: Reply) -> None:
        out = request.get("out", False)
        if not isinstance(out, bool):
            raise RefusedError("bad_request", "out is true or false.")
        shell = notebook_shell()
        if len(self.steps.idle) >= MAX_JOBS:
            raise RefusedError("busy", "%d operations wait for the kernel already." % MAX_JOBS)
        job = Job(client, request, lambda torch: free_frames(torch, shell, out))
        # First into the queue: the loop may call back before this thread goes on.
        self.steps.idle.append(job)
        try:
            shell.kernel.io_loop.add_callback(self.steps.run_between_cells)
        except Exception:  # a loop that was closed: the kernel is ending
            self.steps.idle.remove(job)
            raise

    def op_history(self, client: Client, request: Reply) -> None:
        action = request.get("action")
        entries = request.get("max_entries", HISTORY_ENTRIES)
        good = isinstance(entries, int) and not isinstance(entries, bool)
        if action not in ("start", "stop") or not good or not 0 < entries <= MAX_HISTORY_ENTRIES:
            raise RefusedError(
                "bad_request",
                "action is start or stop, max_entries from 1 to %d." % MAX_HISTORY_ENTRIES,
            )
        torch = self.torch()
        need_cuda(torch)
        if torch_release(torch) < (2, 1):
            raise RefusedError("unsupported", "History before torch 2.1 can deadlock; not offered.")
        self.at_step(client, request, lambda torch: self.run_history(torch, action, entries))

    def run_history(self, torch: Any, action: str, entries: int) -> Reply:
        if history_enabled(torch) and not self.history_ours:
            raise RefusedError("busy", "The program records its allocations itself; not touched.")
        record = torch.cuda.memory._record_memory_history
        if action == "stop":
            record(enabled=None)
        else:
            record(enabled="all", context="alloc", stacks="python", max_entries=entries)
        self.history_ours = action == "start"
        return {"recording": self.history_ours, "max_entries": entries}

    def op_snapshot(self, client: Client, request: Reply) -> None:
        traces = request.get("traces", False)
        if not isinstance(traces, bool):
            raise RefusedError("bad_request", "traces is true or false.")
        torch = self.torch()
        need_cuda(torch)
        if traces:
            self.at_step(client, request, self.run_snapshot)
        else:
            self.later(client, request, self.segments(torch))

    def segments(self, torch: Any) -> Slices:
        reply = yield from summarise_segments(raw_snapshot(torch))
        now = time.monotonic()
        for row in reply["devices"]:
            self.largest_free[row["device"]] = (now, row["largest_free_block_bytes"])
        return reply

    def file_name(self, kind: str) -> Tuple[str, str]:
        self.files += 1
        name = "%s-%d-%d-%d.pickle" % (kind, self.pid, int(time.time()), self.files)
        return self.oom_directory() if kind == "oom" else str(self.directory), name

    def oom_directory(self) -> str:
        """In a run that the cockpit started its own folder: the record stays with the run."""
        run = os.environ.get("COCKPIT_RUN_DIR")
        folder = os.path.join(run, "oom") if run and os.path.isabs(run) else ""
        return folder if folder and private_directory(folder) else str(self.directory)

    def write_oom(self, record: Reply) -> Optional[str]:
        """Under the next free name: a pid comes again, its old records stay."""
        folder = self.oom_directory()
        for number in range(self.oom_records, self.oom_records + 100):
            name = "oom-%d-%d.json" % (self.pid, number)
            with contextlib.suppress(FileExistsError):
                return write_private(folder, name, lambda file: file.write(encode(record)))
        return None

    def run_snapshot(self, torch: Any) -> Reply:
        path, size = write_snapshot(torch, self.file_name("snapshot"))
        return {"path": path, "bytes": size, "history": self.history_ours}

    def op_set(self, client: Client, request: Reply) -> None:
        name = request.get("name")
        value = checked_setting(name, request.get("value"))
        index = request.get("device")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            raise RefusedError("bad_request", "device is an index.")
        if name == "matmul_precision":
            self.at_step(client, request, lambda torch: set_matmul_precision(torch, value))
        elif name == "memory_fraction":
            need_cuda(self.torch())
            self.at_step(client, request, lambda torch: set_memory_fraction(torch, value, index))
        else:
            need_cuda(self.torch())
            self.at_step(client, request, lambda torch: set_allocator(torch, str(name), value))

    def op_fr_trace(self, _client: Client, _request: Reply) -> Reply:
        """Where each process group stands, and the collectives that are not done."""
        c10d = loaded("torch._C._distributed_c10d") or getattr(
            getattr(loaded("torch"), "_C", None), "_distributed_c10d", None
        )
        dump = getattr(c10d, "_dump_fr_trace_json", None) or getattr(
            c10d, "_dump_nccl_trace_json", None
        )
        if dump is None or not getattr(loaded("torch.distributed"), "is_initialized", bool)():
            raise RefusedError("unsupported", "This process has no process group to trace.")
        text = dump(includeCollectives=True, onlyActive=True)
        cut = len(text) > MAX_TRACE_BYTES
        if cut:
            text = dump(includeCollectives=False)
        if len(text) > MAX_TRACE_BYTES:
            sentence = "The trace has %d KiB even without its collectives: too much to read here."
            raise RefusedError("unsupported", sentence % (len(text) >> 10))
        trace = json.loads(text)
        entries = trace.get("entries") or []
        return {
            "pg_config": trace.get("pg_config"),
            "pg_status": trace.get("pg_status"),
            "active": [{k: e.get(k) for k in ACTIVE_KEYS if k in e} for e in entries[-50:]],
            "active_left_out": cut,
            "rank": rank_of(loaded("torch"))["rank"],
        }

    def op_profile(self, client: Client, request: Reply) -> None:
        steps = request.get("steps", 3)
        good = isinstance(steps, int) and not isinstance(steps, bool)
        if not good or not 1 <= steps <= MAX_PROFILE_STEPS:
            raise RefusedError("bad_request", "steps is from 1 to %d." % MAX_PROFILE_STEPS)
        if self.steps.recording or any(job.op == "profile" for job in list(self.steps.queue)):
            raise RefusedError("busy", "A profile is being taken already.")
        if self.steps.thread not in (None, main_thread()):
            raise no_profile_here()
        if getattr(registry(), "torch_elsewhere", False):
            raise RefusedError(
                "unsupported",
                "torch was imported on another thread than the program's main one: its profiler "
                "would write a line into the program's output, so it was not begun.",
            )

        def run(torch: Any) -> Reply:
            job.deadline = time.monotonic() + job.timeout_s
            self.steps.begin(job, Recording(torch, steps))
            return {}

        job = self.job(client, request, run)  # before it is queued: a step may come at once
        self.steps.queue.append(job)

    def op_oom_observer(self, client: Client, request: Reply) -> Reply:
        if request.get("confirm") is not True:
            raise RefusedError(
                "bad_request",
                "An OOM observer cannot be removed again; send confirm: true to install it.",
            )
        torch = self.torch()
        if registry().observed:
            return {"installed": True, "already": True}
        self.observe_oom = True
        if cuda_initialized(torch):
            observe_oom_of(torch)
        else:
            self.call_when_initialized(torch)
        data = {"installed": registry().observed, "waits_for_cuda": not registry().observed}
        return self.audit_now(client, request, data)

    def op_oom_record(self, _client: Client, _request: Reply) -> Reply:
        return {"observing": registry().observed, "seen": self.oom_records, "record": self.last_oom}

    def op_detach(self, client: Client, request: Reply) -> None:
        if self.steps.recording:
            raise RefusedError("busy", "A profile is being taken; detach when it is done.")
        data = {"oom_observer_stays": registry().observed}
        self.audit_now(client, request, data)
        # Before the answer: who hears it may attach anew at once, and must find no agent here.
        self.stopping = True
        self.unlink_socket()
        with contextlib.suppress(OSError):
            client.connection.setblocking(True)
            client.connection.settimeout(0.2)
            client.connection.sendall(bytes(client.unsent) + encode(accepted(request["id"], data)))
        client.unsent.clear()
        self.stop()

    # out of memory

    def on_oom(self, device: int, asked: int, allocated: int, free: int) -> None:
        """Runs on the allocating thread between the failure and the exception."""
        self.oom_records += 1
        if self.oom_records > MAX_OOM_RECORDS:  # also fires where the program retries
            return
        torch = loaded("torch")
        record: Reply = {
            "at": time.time(),
            "pid": self.pid,
            "start_ticks": start_ticks(),
            "step": self.steps.count,
            "device": device,
            "asked_bytes": asked,
            "device_allocated_bytes": allocated,
            "device_free_bytes": free,
            "history": self.history_ours or bool(history_enabled(torch)),
            "frames": frames_of(sys._getframe(2)),
            "argv": [str(a)[:2000] for a in getattr(sys, "argv", [])[:100]],
            "snapshot_path": None,
            "path": None,
        }
        record.update(rank_of(torch))
        self.last_oom = record
        record["devices"] = self.device_rows(torch)
        segments = exhaust(summarise_segments(raw_snapshot(torch)))
        record["segment_devices"] = segments["devices"]
        record["allocator_settings"] = segments["allocator_settings"]
        on_disk = dict(record, segments=segments["segments"])
        with contextlib.suppress(OSError):
            record["path"] = self.write_oom(on_disk)
        if record["history"]:
            with contextlib.suppress(Exception):
                record["snapshot_path"], _ = write_snapshot(torch, self.file_name("oom"))


ACTIVE_KEYS = (
    *("profiling_name", "collective_seq_id", "p2p_seq_id", "op_id", "pg_id", "process_group"),
    *("state", "input_sizes", "input_dtypes", "output_sizes", "time_created_ns"),
)


def merged(slices: Slices, more: Reply) -> Slices:
    reply = yield from slices
    reply.update(more)
    return reply


def exhaust(slices: Slices) -> Reply:
    while True:
        try:
            next(slices)
        except StopIteration as done:
            result: Reply = done.value
            return result


def parse(line: bytes) -> Reply:
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise RefusedError("bad_request", "A request is one line of JSON.") from None
    if not isinstance(request, dict):
        raise RefusedError("bad_request", "A request is a JSON object.")
    number, op = request.get("id"), request.get("op")
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(op, str):
        raise RefusedError("bad_request", "A request has a whole number as id and a text as op.")
    if request.get("v") != PROTOCOL_VERSION:
        raise RefusedError("bad_request", "This agent speaks version %d." % PROTOCOL_VERSION)
    return request


def accepted(request_id: int, data: Reply, stream: bool = False) -> Reply:
    reply: Reply = {"v": PROTOCOL_VERSION, "id": request_id, "ok": True}
    if stream:
        reply["stream"] = True
    reply["data"] = data
    return reply


def refused(request_id: int, refusal: RefusedError) -> Reply:
    return {
        "v": PROTOCOL_VERSION,
        "id": request_id,
        "ok": False,
        "code": refusal.code,
        "error": refusal.sentence,
    }


def encode(message: Reply) -> bytes:
    return json.dumps(message, separators=(",", ":"), default=str).encode("ascii") + b"\n"


def quiet_thread() -> None:
    """Signals go to the program's threads; the kernel's list shows what this one is."""
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - faults)
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/task/%d/comm" % _thread.get_native_id(), os.O_WRONLY)
        try:
            os.write(fd, b"cockpit-agent")
        finally:
            os.close(fd)


# -- one agent per process, whatever copy of this source started it --------------------------


def registry() -> Any:
    found = sys.modules.get(REGISTRY)
    if found is None:
        found = types.ModuleType(REGISTRY)
        found.agent = None  # type: ignore[attr-defined]
        found.forks = False  # type: ignore[attr-defined]
        found.observed = False  # type: ignore[attr-defined]
        found.allocator_text = None  # type: ignore[attr-defined]
        found.pending = None  # type: ignore[attr-defined]
        found.torch_elsewhere = False  # type: ignore[attr-defined]
        found.trouble = ""  # type: ignore[attr-defined]
        sys.modules[REGISTRY] = found
    return found


def observe_oom_of(torch: Any) -> None:
    """Cannot be taken back: what stays after a detach looks for an agent and finds none."""
    reg = registry()
    need_cuda_or_initializing(torch)
    if torch_release(torch) < (2, 1):
        raise RefusedError(
            "unsupported", "OOM observers before torch 2.1 can deadlock; not offered."
        )
    put = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if put is None:
        raise RefusedError("unsupported", "This torch has no OOM observer.")

    def observer(device: int, asked: int, allocated: int, free: int) -> None:
        try:
            agent = reg.agent
            if agent is not None:
                agent.on_oom(device, asked, allocated, free)
        except BaseException:  # noqa: BLE001 - it would replace the user's OutOfMemoryError
            return

    put(observer)
    reg.observed = True


def need_cuda_or_initializing(torch: Any) -> None:
    """torch runs its deferred calls just before it calls itself initialised."""
    initializing = hasattr(getattr(torch.cuda, "_tls", None), "is_initializing")
    if not initializing:
        need_cuda(torch)


def watch_forks() -> None:
    """Once per process: it cannot be taken back, and does nothing where no agent runs."""
    reg = registry()
    if reg.forks:
        return
    reg.forks = True

    def in_child() -> None:
        try:
            hide_fork_warning(False)
            agent, reg.agent = reg.agent, None
            if agent is not None:
                agent.forget()
                history = agent.history_wanted
                child = type(agent)(agent.how, agent.wanted_directory, agent.observe_oom, history)
                reg.observed = False
                reg.agent = child
                child.sleep_until_needed()
        except Exception:  # noqa: BLE001 - the child goes on without an agent
            reg.agent = None

    def before() -> None:
        """A program with threads of its own keeps the warning: it would come without us."""
        with contextlib.suppress(Exception):
            runs = reg.agent is not None and reg.agent.path is not None
            hide_fork_warning(runs and os_threads() == 2)

    if sys.version_info >= FORK_WARNS:
        os.register_at_fork(before=before)
    os.register_at_fork(after_in_child=in_child)


def is_child_process() -> bool:
    """A worker of multiprocessing: it gets an agent when it uses CUDA or an optimizer."""
    process = sys.modules.get("multiprocessing.process")
    parent = getattr(process, "parent_process", None)
    if parent is not None and parent() is not None:
        return True
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read()
    except OSError:
        return False
    return b"--multiprocessing-fork" in words or b"from multiprocessing." in words


def attach(
    how: str = "import",
    directory: Optional[str] = None,
    observe_oom: bool = False,
    history: bool = False,
) -> Optional[str]:
    """Start the agent in this process; the path of its socket.

    None where it waits (a worker of multiprocessing that uses neither CUDA nor an optimizer yet)
    or where it cannot start: ``registry().trouble`` says why. Never raises; a second call changes
    nothing but ``observe_oom`` and ``history`` from False to True. ``how`` is one of WAYS_IN,
    ``directory`` replaces $XDG_RUNTIME_DIR/cockpit and /tmp/cockpit-UID. ``history``: allocations
    are recorded with their Python stacks (2 us each) from the moment that CUDA is initialised.
    """
    try:
        return begin(how, directory, observe_oom, history)
    except Exception as error:  # noqa: BLE001 - the program goes on without an agent
        registry().trouble = sentence_of(error)
        return None


def begin(how: str, directory: Optional[str], observe_oom: bool, history: bool) -> Optional[str]:
    reg = registry()
    agent = reg.agent
    explicit = how in ("ptrace", "remote_exec", "gdb")
    if agent is None or agent.stopping or agent.pid != os.getpid():
        agent = reg.agent = Agent(how, directory, observe_oom, history)
        watch_forks()
        if is_child_process() and not explicit:
            agent.sleep_until_needed()
        elif agent.start() is None:
            agent.stop()
            reg.agent = None
        return agent.path
    more = history and not agent.history_ours
    if more or (observe_oom and not agent.observe_oom):
        agent.observe_oom = agent.observe_oom or observe_oom
        agent.history_wanted = more
        agent.watch_torch()
    if explicit and agent.path is None:
        agent.start()
    path: Optional[str] = agent.path
    return path


def detach(timeout_s: float = 1.0) -> bool:
    """End the agent; True when its thread is gone. Nothing of it stays but an inert fork callback
    and, where one was installed, the OOM observer."""
    try:
        reg = registry()
        agent, reg.agent = reg.agent, None
        if agent is None:
            return True
        agent.stop()
        return bool(agent.wait_ended(timeout_s))
    except Exception:  # noqa: BLE001 - as attach
        return False
