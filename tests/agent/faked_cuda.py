"""FAKED, for tests where no GPU is: torch._C's CUDA functions answer from a recording.

The numbers are those of one H200 (torch 2.11, see tests/agent/h200_memory_stats.json); no CUDA
call is made and no memory is held. ``calls`` counts what the agent asked for.
"""

import json
import os
from pathlib import Path

RECORDED = Path(__file__).parent / "h200_memory_stats.json"
calls = {}


def nested(flat):
    """torch.cuda.memory_stats() back to the raw form of torch._C._cuda_memoryStats."""
    out = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        place = out
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return out


def block(size, state):
    return {"address": 0, "size": size, "requested_size": size, "state": state, "frames": []}


SEGMENT = {
    "device": 0,
    "address": 4096,
    "total_size": 20 << 20,
    "allocated_size": 8 << 20,
    "active_size": 10 << 20,
    "requested_size": 8 << 20,
    "stream": 0,
    "segment_type": "large",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "blocks": [
        block(4 << 20, "active_allocated"),
        block(4 << 20, "active_allocated"),
        block(2 << 20, "active_pending_free"),
        block(6 << 20, "inactive"),
        block(4 << 20, "active_allocated"),
    ],
}
EMPTY = {**SEGMENT, "allocated_size": 0, "active_size": 0, "blocks": [block(20 << 20, "inactive")]}


def install(torch):
    stats = nested(json.loads(RECORDED.read_text()))
    settings = [""]
    now = [0]

    def count(name):
        calls[name] = calls.get(name, 0) + 1

    def set_settings(text):
        settings[0] = text

    def empty():
        count("empty_cache")
        stats["reserved_bytes"]["all"]["current"] = 1 << 30

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            now[0] = self.index

        def __exit__(self, *_):
            now[0] = 0

    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        stats[name]["all"]["current"] = stats[name]["all"]["peak"]
    torch._C._cuda_getCurrentRawStream = lambda i: 0
    torch._C._cuda_memoryStats = lambda i: stats if i == 0 else {}
    torch._C._cuda_getDeviceCount = lambda: 2
    torch._C._cuda_memorySnapshot = lambda *_: {
        "segments": [SEGMENT] * 300 + [EMPTY],
        "device_traces": [[]],
        "allocator_settings": {"expandable_segments": False},
    }
    torch._C._cuda_isHistoryEnabled = lambda: False
    torch._C._accelerator_getAllocatorSettings = lambda: settings[0]
    torch._C._accelerator_setAllocatorSettings = set_settings
    torch._C._cuda_isCurrentStreamCapturing = is_capturing
    torch._C._cuda_attach_out_of_memory_observer = lambda run: observers.append(run)
    torch._C._cuda_getMemoryFraction = lambda i: 1.0
    torch._C._cuda_setMemoryFraction = lambda fraction, i: None
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_device = lambda: now[0]
    torch.cuda.device = Device
    torch.cuda.empty_cache = empty
    torch.cuda.memory._snapshot = lambda: {"segments": [SEGMENT], "device_traces": [[]]}
    torch.cuda.memory._record_memory_history = lambda **_: None
    torch.optim.Optimizer._accelerator_graph_capture_health_check = lambda self: None


def is_capturing():
    return os.path.exists(os.environ.get("COCKPIT_TEST_CAPTURING", ""))


observers = []
