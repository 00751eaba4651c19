"""Slower than expected: from a log's own columns, warnings, and read-outs of nvidia-smi in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.diagnose.candidate import (
    NOTICE,
    STATE,
    Candidate,
    Facts,
    Sign,
    candidates,
    search,
)
from cockpit.diagnose.log_reader import Log

_TIME_DATA = re.compile(
    r"\b(?:batch_)?time\W{1,3}(?P<time>\d+(?:\.\d+)?)(?: ?\((?P<time_mean>\d+(?:\.\d+)?)\))?"
    r".{0,40}?\bdata(?:_time)?\W{1,3}(?P<data>\d+(?:\.\d+)?)"
    r"(?: ?\((?P<data_mean>\d+(?:\.\d+)?)\))?",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"^\s*(?P<name>SW Power Cap|HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown"
    r"|SW Thermal Slowdown|Applications Clocks Setting)\s*:\s*(?P<state>Active|Not Active)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_MASK = re.compile(r"^\s*(?P<gpu>\d{1,2}), .{0,120}?(?P<mask>0x[0-9a-fA-F]{4,16})", re.MULTILINE)
_WATT = r"{} ?: ?(?P<w>\d+(?:\.\d+)?) ?W"
_WIDTHS = re.compile(
    r"^\s*(?P<gpu>\d{1,2}), (?P<gen>\d), (?P<gen_max>\d), (?P<width>\d{1,2}), "
    r"(?P<width_max>\d{1,2})\b",
    re.MULTILINE,
)
_SMI_ROW = re.compile(r"(\d{1,4})W\s*/\s*(\d{2,4})W\s*\|[^|]{5,40}\|\s*(\d{1,3})%")


def _sync_lines(log: Log) -> Facts:
    places = re.findall(
        r"(?<![\w.-])([\w.-]{1,200}\.py:\d{1,7}): UserWarning: called a synchronizing", log.text
    )
    return {"lines": list(dict.fromkeys(places))[:50]}


SIGNS: tuple[Sign, ...] = (
    Sign(
        "num_workers_low",
        r"does not have many workers which may be a bottleneck",
        STATE,
        0.9,
        also=(("dataloader", "with workers the storage may still be too slow"),),
    ),
    Sign(
        "cpu_oversubscribed",
        r"This DataLoader will create \d+ worker processes in total\. Our suggested max"
        r"|nr_throttled ?[:=]? ?[1-9]",
        STATE + 2,
        0.88,
        more=(
            r"create (?P<workers>\d+) worker processes",
            r"suggested max.{0,40}? is (?P<cores>\d+)",
        ),
    ),
    Sign("sync", r"called a synchronizing CUDA operation", STATE, 0.92, facts=_sync_lines),
    Sign(
        "sync",
        r"(?:cudaStreamSynchronize|aten::(?:item|_local_scalar_dense)"
        r"|cudaMemcpyAsync).{0,80}?(?:[3-9]\d"
        r"(?:\.\d+)?) ?%",
        STATE - 2,
        0.7,
    ),
    Sign(
        "launch_bound",
        r"cudaLaunchKernel.{0,80}?(?:[3-9]\d(?:\.\d+)?) ?%|launch[- ]bound|\d{4} kernels? "
        r"(?:launches )?"
        r"per step",
        STATE - 1,
        0.8,
    ),
    Sign(
        "alloc_retries",
        r"pytorch allocator cache flushes since last step|num_alloc_retries\W{1,5}[1-9]",
        STATE,
        0.88,
        also=(("oom_peak", "the memory is nearly full"),),
    ),
    Sign(
        "recompile",
        r"torch\._dynamo hit config\.(?:recompile_limit|cache_size_limit|accumulated_\w+)"
        r"|Recompiling function (?P<function>\w+)",
        STATE,
        0.93,
        more=(r"function: '(?P<function>[^'\n]{1,120})'",),
    ),
    Sign(
        "pcie_width",
        r"LnkSta: ?Speed .{0,40}?(?:Width x\d+ \(downgraded\)|\(downgraded\), Width)"
        r"|available PCIe bandwidth, limited by",
        STATE + 1,
        0.85,
    ),
    Sign(
        "no_mixed_precision",
        r"TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
        r"|You are using a CUDA device .{0,80}? that has Tensor Cores",
        STATE - 12,
        0.8,
    ),
    Sign(
        "thermal",
        r"clocks_event_reasons\.(?:hw|sw)_thermal_slowdown.{0,200}?\bActive\b",
        STATE,
        0.7,
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    yield from candidates(log, SIGNS)
    yield from _data_share(log)
    yield from _throttle(log)
    yield from _links(log)
    yield from _idle_power(log)
    yield from _shared(log)


def _data_share(log: Log) -> Iterator[Candidate]:
    rows = list(_TIME_DATA.finditer(log.text))
    if len(rows) < 3:
        return
    means = [
        float(row["data_mean"]) / max(float(row["time_mean"]), 1e-9)
        for row in rows
        if row["time_mean"] and row["data_mean"]
    ]
    if means:  # running means since the start: the worst of them
        share = max(means[len(means) // 2 :])
    else:
        time = sum(float(row["time"]) for row in rows)
        share = sum(float(row["data"]) for row in rows) / max(time, 1e-9)
    if 0.3 <= share <= 1.0:
        throttled = search(log, r"nr_throttled ?[:=]? ?[1-9]|cpu\.max")
        cause = "cpu_oversubscribed" if throttled else "dataloader"
        why = f"{share:.1%} of the time goes into data."
        place = log.index_at(rows[0].start())
        yield Candidate(cause, STATE + 1, place, 0.9, {"data_share": round(share, 3)}, why=why)


def _throttle(log: Log) -> Iterator[Candidate]:
    active: dict[str, int] = {}
    for row in _REASON.finditer(log.text):
        if row["state"].lower() == "active":
            active.setdefault(row["name"].lower(), log.index_at(row.start()))
    facts: Facts = {}
    number = search(log, r"nvidia-smi .{0,40}?-i (?P<gpu>\d{1,2})\b")
    if number:
        facts["gpu"] = int(number["gpu"])
    for row in _MASK.finditer(log.text):
        bits = int(row["mask"], 16)
        at = log.index_at(row.start())
        for bit, name in _BITS.items():
            if bits & bit and name not in active:
                active[name] = at
                facts.setdefault("gpu", int(row["gpu"]))
    if "hw power brake slowdown" in active:
        yield Candidate("power_brake", STATE + 3, active["hw power brake slowdown"], 0.9, facts)
    hot = [name for name in ("hw thermal slowdown", "sw thermal slowdown") if name in active]
    if hot:
        temperature = search(log, r"GPU Current Temp ?: ?(\d+) C")
        why = f"{hot[0]} is active" + (f" at {temperature[1]} °C." if temperature else ".")
        yield Candidate("thermal", STATE + 2, active[hot[0]], 0.9, facts, why=why)
    yield from _power(log, active, facts)


_BITS = {0x80: "hw power brake slowdown", 0x40: "hw thermal slowdown", 0x20: "sw thermal slowdown"}


def _power(log: Log, active: dict[str, int], facts: Facts) -> Iterator[Candidate]:
    limit = search(log, _WATT.format(r"(?:Current|Enforced)? ?Power Limit"))
    default = search(log, _WATT.format(r"Default Power Limit"))
    row = search(log, r"power\.limit.{0,40}power\.default_limit.{0,200}?(\d+\.\d+) W, (\d+\.\d+) W")
    if row:
        current_w, default_w = float(row[1]), float(row[2])
        at = log.index_at(row.start())
    elif limit and default:
        current_w, default_w = float(limit["w"]), float(default["w"])
        at = log.index_at(limit.start())
    else:
        return
    if current_w < 0.97 * default_w:
        facts = facts | {"limit_w": current_w, "default_limit_w": default_w}
        why = f"The limit is {current_w:g} W, the default {default_w:g} W."
        yield Candidate("power_limit_lowered", STATE + 1, at, 0.9, facts, why=why)
    elif "sw power cap" in active:
        why = f"The GPU works at its default power limit of {default_w:g} W, as a loaded GPU does."
        facts = facts | {"severity": "info"}
        yield Candidate("benign", NOTICE + 4, active["sw power cap"], 0.88, facts, why=why)


def _links(log: Log) -> Iterator[Candidate]:
    for row in _WIDTHS.finditer(log.text):
        if int(row["width"]) < int(row["width_max"]) and "pcie" in log.text.lower():
            why = f"GPU {row['gpu']} has {row['width']} of {row['width_max']} lanes."
            place = log.index_at(row.start())
            yield Candidate("pcie_width", STATE + 3, place, 0.92, {"gpu": int(row["gpu"])}, why=why)
            return


def _idle_power(log: Log) -> Iterator[Candidate]:
    """High utilisation at less than half of the power: kernels too small, or waiting."""
    rows = [
        (int(power), int(limit), int(busy), log.index_at(match.start()))
        for match in _SMI_ROW.finditer(log.text)
        for power, limit, busy in (match.groups(),)
    ]
    for match in re.finditer(
        r"(\d{2,3}) %, (\d{2,4}(?:\.\d+)?) W(?:, (\d{2,4}(?:\.\d+)?) W)?", log.text
    ):
        limit = float(match[3] or 0)
        rows.append((int(float(match[2])), int(limit), int(match[1]), log.index_at(match.start())))
    for power, limit_w, busy, place in rows:
        if busy >= 85 and limit_w and power < 0.5 * limit_w and not search(log, r"NCCL|nccl"):
            why = f"{busy} % utilisation at {power} of {limit_w} W."
            yield Candidate("launch_bound", STATE, place, 0.75, why=why)
            return


def _shared(log: Log) -> Iterator[Candidate]:
    rows = re.findall(
        r"\|\s+(\d{1,2})\s+N/A\s+N/A\s+(\d{2,8})\s+(?:M\+)?C\s+(\S.{0,60}?)\s+(\d+)MiB \|", log.text
    )
    by_gpu: dict[str, set[str]] = {}
    for gpu, pid, name, _ in rows:
        if "mps-server" not in name:
            by_gpu.setdefault(gpu, set()).add(pid)
    shared = [gpu for gpu, pids in by_gpu.items() if len(pids) >= 2]
    pmon = re.findall(r"^\s*(\d{1,2})\s+(\d{2,8})\s+C\s+(\d{1,3})\s", log.text, re.MULTILINE)
    busy: dict[str, set[str]] = {}
    for gpu, pid, percent in pmon:
        if int(percent) >= 10:
            busy.setdefault(gpu, set()).add(pid)
    shared += [gpu for gpu, pids in busy.items() if len(pids) >= 2]
    if not shared:
        apps = re.findall(r"^(\d{3,8}), [^\n,]{3,80}, \d+ MiB", log.text, re.MULTILINE)
        ranked = any(line.rank is not None for line in log.lines) or "torchrun" in log.text
        if len(set(apps)) != 2 or ranked or not search(log, r"s/it|it/s|step time|slower"):
            return
        place = log.index_at(log.text.find(f"{apps[0]}, "))
        yield Candidate("shared_gpu", STATE - 4, place, 0.65)
        return
    place = log.index_at(max(0, log.text.find("MiB |")))
    yield Candidate("shared_gpu", STATE - 1, place, 0.8, {"gpu": int(shared[0])})
