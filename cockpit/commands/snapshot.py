"""``cockpit snapshot``: one Snapshot as text, JSON or CSV; its schema."""

from __future__ import annotations

import csv
import io
import json

import msgspec

from cockpit.commands import ps
from cockpit.commands.ask import one_snapshot, require_driver
from cockpit.commands.table import Column, layout
from cockpit.model.gpu import Gpu
from cockpit.model.snapshot import Snapshot, encode, json_schema
from cockpit.model.text import clean, gib, words
from cockpit.settings import Settings


def run(settings: Settings, form: str) -> int:
    """``form``: text, json, csv or schema. Exit 3 without a driver; JSON is printed anyway."""
    if form == "schema":
        print(json.dumps(json_schema(), indent=2))
        return 0
    snapshot = one_snapshot(settings)
    print(_FORMS[form](snapshot), end="" if form == "csv" else "\n", flush=True)
    require_driver(snapshot)
    return 0


def as_json(snapshot: Snapshot) -> str:
    """One line of JSON."""
    return encode(snapshot).decode()


def as_csv(snapshot: Snapshot) -> str:
    """One line a GPU with every plain field; lists joined by blanks; unknown is empty."""
    names = [name for name in Gpu.__struct_fields__ if name not in ("mig_instances", "gaps")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["taken_at", *names])
    for gpu in snapshot.gpus:
        values = msgspec.to_builtins(gpu)
        writer.writerow([clean(snapshot.taken_at), *(_csv_value(values[name]) for name in names)])
    return out.getvalue()


def _csv_value(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return clean(" ".join(map(str, value)))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else clean(value) if isinstance(value, str) else value


def as_text(snapshot: Snapshot) -> str:
    """For people: the host, the GPUs, where memory has no owner, who holds it, what is wrong."""
    host, driver = snapshot.host, snapshot.driver
    lines = [
        f"{clean(host.name or '?')}"
        f"  driver {clean(driver.version or '–')}  CUDA {clean(driver.cuda_version or '–')}"
        f"  CPU {_whole(host.cpu_pct)} %  load {_whole(host.load_1m)}"
        f"  RAM {gib(host.memory_used_bytes, 0)}/{gib(host.memory_total_bytes, 0)} GiB"
    ]
    if snapshot.gpus:
        lines += layout(GPU_COLUMNS, snapshot.gpus)
    for ledger in snapshot.ledger:
        lines += [f"GPU {ledger.gpu}: {clean(one.sentence)}" for one in ledger.explanations]
    holders = ps.holders(snapshot)
    if holders:
        lines += ["", ps.as_text(snapshot, holders)]
    if snapshot.findings:
        lines += ["", *(f"! {clean(one.title)}" for one in snapshot.findings)]
    return "\n".join(lines)


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _state(gpu: Gpu) -> str:
    found: list[str] = [] if gpu.state == "ok" else [gpu.state]
    found += [words(reason) for reason in gpu.throttle_reasons or () if reason != "gpu_idle"]
    if gpu.unified_memory:
        found.append("unified memory")
    if gpu.mig_enabled:
        found.append(f"MIG {len(gpu.mig_instances)}")
    return clean(", ".join(found))


GPU_COLUMNS: tuple[Column[Gpu], ...] = (
    Column("GPU", lambda g: str(g.index), right=True),
    Column("NAME", lambda g: clean(g.name or "?")),
    Column("UTIL%", lambda g: _whole(g.utilization_pct), right=True),
    Column("USED", lambda g: gib(g.memory_used_bytes), right=True),
    Column("TOTAL GiB", lambda g: gib(g.memory_total_bytes), right=True),
    Column("POWER W", lambda g: f"{_whole(g.power_w)}/{_whole(g.power_limit_w)}", right=True),
    Column("°C", lambda g: _whole(g.temperature_c), right=True),
    Column("SM MHz", lambda g: _whole(g.sm_clock_mhz), right=True),
    Column("STATE", _state),
)

_FORMS = {"text": as_text, "json": as_json, "csv": as_csv}
