"""Trains on a thread that is not the main one. usage: threads.py FOLDER MAIN_STEPS

The main thread makes MAIN_STEPS steps before; then it waits for the thread, which makes its first
one when the file ``go`` is there, and ends at SIGTERM's file ``end``.
"""

import os
import sys
import threading
import time

import torch

from cockpit.agent import attach

folder, first = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
attach(directory=folder)
weight = torch.nn.Parameter(torch.randn(10))
optimizer = torch.optim.SGD([weight], lr=0.1)


def step():
    (weight * weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def work():
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    while not os.path.exists(f"{folder}/end"):
        step()
        time.sleep(0.005)
    enabled.append(torch._C._autograd._profiler_enabled())


enabled = []
for _ in range(first):
    step()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(enabled[0], "trained to the end", flush=True)
