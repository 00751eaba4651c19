"""Trains, then stays in one call in C or begins an evaluation, when the file ``go`` is there.

usage: hangs.py FOLDER c SECONDS|exit|evaluate|grow|fork. Prints what it saw at its end.
The evaluation goes on until the file ``end`` is there, for 25 s at most.
``grow``: as evaluate, and a profile may take 16 MiB only.
"""

import ctypes
import os
import sys
import time

import torch

from cockpit.agent import agent, attach

folder, then = sys.argv[1], sys.argv[2]
if then == "grow":
    agent.MAX_PROFILE_BYTES = 16 << 20
torch.set_num_threads(1)
attach(directory=folder)
weight = torch.nn.Parameter(torch.randn(10))
optimizer = torch.optim.SGD([weight], lr=0.1)


def step():
    (weight * weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def evaluate():
    net = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(20)])
    batch = torch.randn(4, 16)
    end = time.monotonic() + 25
    with torch.no_grad():
        while time.monotonic() < end and not os.path.exists(f"{folder}/end"):
            net(batch)
    print("asked to end" if time.monotonic() < end else "by itself", end=", ")


while not os.path.exists(f"{folder}/go"):
    step()
    time.sleep(0.01)
step()  # at which the profile begins
if then == "c":
    ctypes.CDLL(None).sleep(int(sys.argv[3]))
elif then == "fork" and os.fork() == 0:
    before = agent.private_bytes()
    net, batch = torch.nn.Linear(16, 16), torch.randn(4, 16)
    with torch.no_grad():
        for _ in range(50_000):
            net(batch)
    print((agent.private_bytes() - before) >> 20, "MiB", end=", ", flush=True)
    os._exit(0)
elif then == "fork":
    os.wait()
    while torch._C._autograd._profiler_enabled():
        time.sleep(0.01)
elif then in ("evaluate", "grow"):
    evaluate()
if then != "exit":
    step()
    print(torch._C._autograd._profiler_enabled(), "trained to the end", flush=True)
