"""CPU of one engine over 10 s at 1 Hz, and the time of its first complete reading."""

from __future__ import annotations

import os
import time

from cockpit.engine.link import Link
from cockpit.engine.protocol import EngineOptions, Tick


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_tick(link: Link) -> Tick:
    while True:
        message = link.receive(10)
        if isinstance(message, Tick):
            return message


began = time.monotonic()
link = Link(EngineOptions())
first = wait_tick(link)
print(f"first tick after {1e3 * (time.monotonic() - began):.0f} ms, {len(first.snapshot.gpus)} GPU")
wait_tick(link)
wait_tick(link)
start, at = cpu_s(link.pid), time.monotonic()
for _ in range(10):
    last = wait_tick(link)
spent = 100 * (cpu_s(link.pid) - start) / (time.monotonic() - at)
print(f"engine: {spent:.2f} % of a core at 1 Hz, own figure {last.snapshot.sampler.cpu_pct} %")
unknown = {name for gpu in last.snapshot.gpus for name in gpu.gaps}
print("gaps:", {name: last.snapshot.gpus[0].gaps[name] for name in sorted(unknown)})
link.close()
