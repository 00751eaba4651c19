"""Trains with slow global hooks of its own while the agent comes and goes in another thread.

Prints the cycles, how often the hook was there, the steps, and what is left in torch's hooks.
"""

from __future__ import annotations

import sys
import threading
import time

import torch
from torch.optim import optimizer as torch_optimizer

from cockpit.agent import agent


def slow(*_: object) -> None:
    time.sleep(0.0005)


def main(folder: str, cycles: int) -> None:
    torch_optimizer.register_optimizer_step_post_hook(slow)
    torch_optimizer.register_optimizer_step_post_hook(slow)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    done = threading.Event()
    seen = [0]

    def come_and_go() -> None:
        try:
            for i in range(cycles):
                agent.attach(directory=folder)
                end = time.monotonic() + (2.0 if i % 10 == 0 else 0.004)
                running = agent.registry().agent
                while running.steps.count == 0 and time.monotonic() < end:
                    time.sleep(0.001)
                seen[0] += running.steps.count > 0
                agent.detach()
        finally:
            done.set()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    steps = 0
    while not done.is_set():
        (weight * 2).sum().backward()
        optimizer.step()
        steps += 1
    thread.join()
    hooks = torch_optimizer._global_optimizer_post_hooks
    ours = [key for key in hooks if key < 0]
    sys.stdout.write(f"{cycles} {seen[0]} {steps} {len(ours)} {len(hooks)}\n")


main(sys.argv[1], int(sys.argv[2]))
