"""What a sample costs a training: the extra time of the steps that overlap one.

usage: overhead.py [SAMPLES] [HZ]   (an interpreter with torch; about SAMPLES / HZ seconds)

By the method of the design's budgets: a tight loop notes when each step began and ended; the
client notes when it asked and got its sample. A sample's cost is the time of the steps that
overlap it beyond the median step; the same windows, moved by half a period to where no sample is,
are the control. Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

TRAINER = """
import sys, time, signal
import torch
from torch import nn
torch.set_num_threads(1)
from cockpit.agent import attach
net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
batch = torch.randn(16, 32)
attach(directory=sys.argv[1])
ends, go = [time.monotonic()], [True]
signal.signal(signal.SIGTERM, lambda *_: go.clear())
while go:
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()
    ends.append(time.monotonic())
open(sys.argv[1] + "/ends", "w").write("\\n".join(map(repr, ends)))
"""


def windows(path: str, samples: int, hz: float) -> list[tuple[float, float]]:
    """From shortly before each sample arrives to its arrival, on the common monotonic clock."""
    from tests.agent.talk import Talk

    found = []
    with Talk(path) as talk:
        talk.send("stream", hz=hz)
        talk.read()
        for _ in range(samples):
            talk.read()
            now = time.monotonic()
            found.append((now - 0.001, now))
    return found


def extra_s(ends: list[float], window: tuple[float, float], usual: float) -> float:
    """Time beyond the usual in the steps that overlap the window."""
    first = max(1, bisect_left(ends, window[0]))
    last = min(len(ends) - 1, bisect_left(ends, window[1]) + 1)
    return ends[last] - ends[first - 1] - (last - first + 1) * usual


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    hz = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    folder = tempfile.mkdtemp(prefix="cka", dir="/tmp")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, folder], env=env)
    path = f"{folder}/{trainer.pid}.sock"
    while not os.path.exists(path) and trainer.poll() is None:
        time.sleep(0.05)
    time.sleep(1)
    asked = windows(path, samples, hz)
    trainer.terminate()
    trainer.wait()
    ends = [float(line) for line in Path(f"{folder}/ends").read_text().splitlines()]
    inside = [e for e in ends if asked[0][0] < e < asked[-1][1]]
    usual = median(b - a for a, b in itertools.pairwise(inside))
    costs = [extra_s(ends, window, usual) for window in asked]
    moved = [(a + 0.5 / hz, b + 0.5 / hz) for a, b in asked[:-1]]
    control = [extra_s(ends, window, usual) for window in moved]
    cost_us = (mean(costs) - mean(control)) * 1e6
    figures = {
        "samples": samples,
        "hz": hz,
        "step_us": round(usual * 1e6, 1),
        "sample_us_mean": round(mean(costs) * 1e6, 1),
        "sample_us_median": round(median(costs) * 1e6, 1),
        "control_us_mean": round(mean(control) * 1e6, 1),
        "control_us_median": round(median(control) * 1e6, 1),
        "cost_us_per_sample": round(cost_us, 1),
        "share_at_1_hz_pct": round(cost_us / 1e4, 4),
        "share_at_10_hz_pct": round(cost_us / 1e3, 4),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
