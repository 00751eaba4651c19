"""Attach to a CUDA trainer that nobody prepared, N times, and compare its weights bit for bit.

usage: python3 tests/gpu/attach_check.py [CYCLES]      (Python 3.8-3.13 with torch and a GPU)

Starts the trainer twice: once undisturbed, once with CYCLES attaches and detaches by ptrace, each
with a hello and statistics. Both train the same number of steps with deterministic algorithms and
fixed seeds. Prints a short table; exit 1 when a weight differs or a budget is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cockpit.attach import attach
from cockpit.attach.client import Client

TRAINER = """
import hashlib, os, sys, time
import torch
stop, limit = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
layers = []
for _ in range(4):
    layers += [torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Dropout(0.1)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print("ready", flush=True)
step, longest, last = 0, 0.0, time.perf_counter()
while step != limit:
    data = torch.randn(256, 1024, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    if step % 20 == 0:
        torch.cuda.synchronize()
        if limit < 0 and os.path.exists(stop):
            break
    now = time.perf_counter()
    if step > 50:
        longest = max(longest, now - last)
    last = now
digest = hashlib.sha256()
for weights in model.state_dict().values():
    digest.update(weights.cpu().numpy().tobytes())
print(step, digest.hexdigest(), f"{loss.item():.9g}", f"{longest * 1e3:.1f}", flush=True)
"""


def start(stop: str, limit: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0"}
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINER, stop, str(limit)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if child.stdout.readline() != "ready\n":
        raise SystemExit("the trainer did not start")
    return child


def cycle(pid: int) -> dict[str, float]:
    """One attach, its statistics, one detach; milliseconds."""
    planned, began = attach.plan(pid), time.perf_counter()
    outcome = attach.run(planned)
    answer_ms = (time.perf_counter() - began) * 1e3
    if outcome.state != "attached":
        raise SystemExit(f"{outcome.state}: {outcome.sentence}")
    began = time.perf_counter()
    with Client.connect(pid, outcome.agent.path) as client:
        client.call("stats")
    stats_ms = (time.perf_counter() - began) * 1e3
    gone = attach.detach(pid)
    if gone.state != "detached":
        raise SystemExit(gone.sentence)
    return {
        "main thread stopped": outcome.stopped_ms,
        "attach to first answer": answer_ms,
        "connect and stats": stats_ms,
    }


def row(name: str, values: list[float]) -> str:
    near = sorted(values)[int(len(values) * 0.99)]
    return f"{name:26}{statistics.median(values):10.2f}{near:10.2f}{max(values):10.2f}"


def main() -> int:
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        child = start(stop, -1)
        time.sleep(2)
        try:
            seen = [cycle(child.pid) for _ in range(cycles)]
            print(json.dumps(attach.run(attach.plan(child.pid)).hello))
            attach.detach(child.pid)
            Path(stop).touch()
            steps, digest, loss, longest = child.stdout.readline().split()
        finally:
            child.kill()
            child.wait()
        calm = start(stop, int(steps))
        expected = calm.stdout.readline().split()
        calm.wait()
    same = expected[:3] == [steps, digest, loss]
    print(f"{'ms':26}{'median':>10}{'99 %':>10}{'max':>10}")
    columns = {name: [each[name] for each in seen] for name in seen[0]}
    for name, values in columns.items():
        print(row(name, values))
    print(f"longest step: {longest} ms with attaches, {expected[3]} ms undisturbed")
    print(f"{cycles} cycles over {steps} steps: weights {'identical' if same else 'DIFFER'}")
    stopped, answers = columns["main thread stopped"], columns["attach to first answer"]
    kept = statistics.median(stopped) < 3 and max(stopped) < 10 and max(answers) < 1000
    print(f"budgets {'kept' if kept else 'MISSED'}")
    return 0 if same and kept else 1


if __name__ == "__main__":
    sys.exit(main())
