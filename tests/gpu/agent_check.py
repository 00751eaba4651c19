"""The agent inside a real CUDA training: a short table of what holds and what does not.

usage: python3 tests/gpu/agent_check.py   (torch with CUDA, nvidia-smi; about two minutes)

Every check stands alone; one that fails prints its error and the next goes on. Exit 1 if any did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.agent.talk import Talk  # noqa: E402

MIB = 1 << 20

TRAINER = """
import json, sys, threading, time
import torch
from torch import nn
from cockpit.agent import attach
folder, attached_first = sys.argv[1], sys.argv[2] == "first"
if attached_first:
    attach(directory=folder)
torch.manual_seed(1)
net = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
if not attached_first:
    attach(directory=folder)
junk = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in range(20, 400, 7)]
del junk
wish, free = [], threading.Event()
free.set()
def listen():
    for line in sys.stdin:
        wish.append(line.strip())
        free.set()
threading.Thread(target=listen, daemon=True).start()
def say(**what):
    print(json.dumps(what), flush=True)
def oom():
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except BaseException as error:
        return type(error).__name__
def capture():
    graph, a = torch.cuda.CUDAGraph(), torch.ones(512, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a @ a
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        b = a @ a
        optimizer_hook = [h for h in sys.modules["torch.optim.optimizer"]
                          ._global_optimizer_post_hooks.values()]
        for hook in optimizer_hook:
            hook(optimizer, (), {})
        time.sleep(1.0)
        for hook in optimizer_hook:
            hook(optimizer, (), {})
    graph.replay()
    torch.cuda.synchronize()
    return float(b[0, 0])
while True:
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = net(torch.randn(512, 2048).cuda(non_blocking=True)).square().mean()
    loss.backward()
    optimizer.step()
    if wish:
        asked = wish.pop(0)
        if asked == "hold":
            torch.cuda.synchronize()
            free.clear()
            say(stats=torch.cuda.memory_stats(0))
            free.wait()
        elif asked == "oom":
            say(oom=oom())
        elif asked == "capture":
            say(capturing=True)
            say(capture=capture())
"""

IDLE = """
import sys, time
import torch
from cockpit.agent import attach
attach(directory=sys.argv[1])
while True:
    time.sleep(0.1)
    if sys.stdin.readline():
        print(torch.cuda.is_initialized(), flush=True)
"""


class Run:
    """A program with the agent, told what to do over its stdin."""

    def __init__(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="cka", dir="/tmp")
        around = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        self.errors = open(f"{self.folder}/stderr", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, self.folder, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=around,
        )
        self.pid = self.process.pid
        self.path = f"{self.folder}/{self.pid}.sock"
        end = time.monotonic() + 90
        while not os.path.exists(self.path):
            assert self.process.poll() is None, self.stderr()
            assert time.monotonic() < end, self.stderr()
            time.sleep(0.01)

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def told(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def stderr(self) -> str:
        return Path(f"{self.folder}/stderr").read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def smi_mib(pid: int) -> int:
    """What nvidia-smi says that the process holds; 0 where it names no such process."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    out = subprocess.run(query, capture_output=True, text=True).stdout
    rows = [line.split(",") for line in out.splitlines() if "," in line]
    mine = [int(used) for found, used in rows if int(found) == pid]
    if mine or not rows:
        return sum(mine)
    return sum(int(used) for _, used in rows)  # another PID namespace: ours is the only one


FLAT = {
    "allocated_bytes": "allocated_bytes.all.current",
    "reserved_bytes": "reserved_bytes.all.current",
    "active_bytes": "active_bytes.all.current",
    "inactive_split_bytes": "inactive_split_bytes.all.current",
    "requested_bytes": "requested_bytes.all.current",
    "allocated_peak_bytes": "allocated_bytes.all.peak",
    "reserved_peak_bytes": "reserved_bytes.all.peak",
    "alloc_retries": "num_alloc_retries",
    "ooms": "num_ooms",
}


def stats_agree(run: Run, talk: Talk) -> str:
    run.tell("hold")
    theirs = run.told()["stats"]
    ours = talk.data("stats")["devices"][0]
    run.tell("go")
    differ = {k: (ours[k], theirs[f]) for k, f in FLAT.items() if ours[k] != theirs[f]}
    assert not differ, differ
    return f"allocated {ours['allocated_bytes'] // MIB} reserved {ours['reserved_bytes'] // MIB}"


def uuid_agrees(run: Run, talk: Talk) -> str:
    row = talk.data("stats")["devices"][0]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    assert str(row["uuid"]) in listed, (row["uuid"], listed)
    return str(row["uuid"])


def latency(run: Run, talk: Talk) -> str:
    times = []
    for _ in range(15):
        began = time.perf_counter()
        talk.data("stats")
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.06)
    return f"median {sorted(times)[7]:.2f} ms, max {max(times):.2f} ms"


def empty_cache(run: Run, talk: Talk) -> str:
    driver = smi_mib(run.pid)
    data = talk.data("empty_cache")
    time.sleep(0.2)
    driver -= smi_mib(run.pid)
    before, after = data["before"][0]["reserved_bytes"], data["after"][0]["reserved_bytes"]
    returned = (before - after) // MIB
    assert returned > 100, (before, after)
    return (
        f"returned {returned} MiB, nvidia-smi {driver} MiB less, "
        f"step took {data['step_took_more_ms']:.1f} ms more"
    )


def snapshot(run: Run, talk: Talk) -> str:
    run.tell("hold")
    theirs = run.told()["stats"]
    began = time.perf_counter()
    data = talk.data("snapshot", traces=False)
    took = (time.perf_counter() - began) * 1e3
    run.tell("go")
    device = data["devices"][0]
    assert device["reserved_bytes"] == theirs["reserved_bytes.all.current"], device
    assert device["allocated_bytes"] == theirs["allocated_bytes.all.current"], device
    return f"{device['segments']} segments, {took:.1f} ms, stuck {device['stuck_bytes'] // MIB} MiB"


def traces(run: Run, talk: Talk) -> str:
    talk.data("history", action="start", max_entries=10_000)
    time.sleep(0.5)
    data = talk.data("snapshot", traces=True, timeout_s=60)
    talk.data("history", action="stop")
    import pickle

    with open(data["path"], "rb") as file:
        held = pickle.load(file)  # our own trainer wrote it
    entries = sum(len(t) for t in held["device_traces"])
    framed = any(entry.get("frames") for trace in held["device_traces"] for entry in trace)
    assert entries
    assert framed
    return f"{entries} entries, {data['bytes'] // 1024} KiB, {data['step_took_more_ms']:.0f} ms"


def settings(run: Run, talk: Talk) -> str:
    said = []
    for name, value in (
        ("expandable_segments", True),
        ("garbage_collection_threshold", 0.8),
        ("max_split_size_mb", 512),
        ("memory_fraction", 0.9),
        ("matmul_precision", "high"),
    ):
        old = talk.data("set", name=name, value=value)["old"]
        undo = old == "True" if name == "expandable_segments" else old
        back = talk.data("set", name=name, value=undo)["old"]
        assert str(back) == str(value), (name, back, value)
        said.append(f"{name} {old}")
        time.sleep(0.15)
    return "; ".join(said)


def profile(run: Run, talk: Talk) -> str:
    data = talk.data("profile", steps=3, timeout_s=60)
    assert data["measured_on"] == "cuda", data
    keys = ("step_ms", "host_to_device_ms", "forward_ms", "backward_ms", "optimizer_ms")
    assert all(data[k] and data[k] > 0 for k in keys), data
    told = ", ".join(f"{k[:-3]} {data[k]}" for k in (*keys, "device_busy_ms"))
    return f"{told}; start {data['profiler_start_ms']} stop {data['profiler_stop_ms']} ms"


def census(run: Run, talk: Talk) -> str:
    cheap, deep = talk.data("census"), talk.data("census", deep=True)
    weights = 8 * (2048 * 2048 + 2048) * 4
    row = next(r for r in cheap["tensors"] if r["kind"] == "parameter")
    assert (row["device"], row["bytes"]) == ("cuda:0", weights), row
    return (
        f"longest hold {cheap['longest_hold_ms']} and {deep['longest_hold_ms']} ms, "
        f"deep {deep['took_ms']} ms, biggest {deep['biggest'][0]['holder']}"
    )


def oom(run: Run, talk: Talk) -> str:
    assert talk.data("oom_observer", confirm=True)["installed"]
    run.tell("oom")
    raised = run.told()["oom"]
    assert raised == "OutOfMemoryError", raised
    record = talk.data("oom_record")["record"]
    assert record["asked_bytes"] == 1 << 42, record
    assert Path(record["path"]).exists()
    return f"{raised} raised, asked {record['asked_bytes'] >> 30} GiB, {record['frames'][0][2]}"


def graph_capture(run: Run, talk: Talk) -> str:
    run.tell("capture")
    run.told()
    time.sleep(0.2)
    number = talk.send("empty_cache")
    stats = talk.ask("stats")["ok"]
    result = run.told()["capture"]
    assert stats
    assert result == 512.0, result
    reply = talk.read()
    assert (reply["id"], reply["ok"]) == (number, True), reply
    return "stats and a requeued empty_cache during the capture: it stood"


def detaches(run: Run, talk: Talk) -> str:
    assert talk.data("detach")["oom_observer_stays"]
    time.sleep(0.3)
    names = [p.read_text().strip() for p in Path(f"/proc/{run.pid}/task").glob("*/comm")]
    assert "cockpit-agent" not in names
    assert not os.path.exists(run.path)
    run.tell("oom")  # the inert observer
    assert run.told()["oom"] == "OutOfMemoryError"
    assert run.process.poll() is None
    return "thread and socket gone, the inert observer let an OOM pass, training goes on"


def quiet(run: Run, _talk: Talk) -> str:
    assert run.stderr() == "", run.stderr()[:500]
    return "nothing on stderr"


def no_context(_run: Run, _talk: Talk) -> str:
    idle = Run(IDLE)
    try:
        with Talk(idle.path) as talk:
            for op in ("hello", "stats", "census", "empty_cache", "snapshot", "gc", "history"):
                talk.ask(op, action="start", timeout_s=0.2)
            talk.ask("oom_observer", confirm=True)
            talk.ask("set", name="memory_fraction", value=0.5)
            talk.ask("profile", timeout_s=0.2)
        idle.tell("asked")
        assert idle.process.stdout is not None
        assert idle.process.stdout.readline().strip() == "False"
        maps = Path(f"/proc/{idle.pid}/fd")
        opened = [os.readlink(p) for p in maps.iterdir() if p.is_symlink()]
        assert not [name for name in opened if name.startswith("/dev/nvidia")], opened
        return "no CUDA, no /dev/nvidia* opened, whatever was asked"
    finally:
        idle.end()


def main() -> int:
    run = Run(TRAINER, "first")
    worst = 0
    with Talk(run.path, timeout_s=90) as talk:
        end = time.monotonic() + 60
        while talk.data("stats")["step"] < 20 and time.monotonic() < end:
            time.sleep(0.2)
        hello = talk.data("hello")
        print(f"torch {hello['torch_version']}, Python {hello['python_version']}")
        checks: list[Callable[[Run, Talk], str]] = [
            *(stats_agree, uuid_agrees, latency, snapshot, empty_cache, census, settings),
            *(traces, profile, stats_agree, oom, graph_capture, quiet, detaches, no_context),
        ]
        for check in checks:
            try:
                verdict, text = "ok  ", check(run, talk)
            except Exception as error:
                verdict, text, worst = "FAIL", f"{type(error).__name__}: {error}"[:400], 1
            print(f"{verdict} {check.__name__:<14} {text}", flush=True)
            time.sleep(1.1)
    run.end()
    return worst


if __name__ == "__main__":
    sys.exit(main())
