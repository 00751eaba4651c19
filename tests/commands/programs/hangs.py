"""Real gloo ranks that meet in an all_reduce each step, until rank 1 stays in a line of its own.

usage: torchrun --nproc-per-node 2 hangs.py
"""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def evaluate() -> None:
    time.sleep(3600)


for step in range(12):
    model(torch.ones(4, 8)).square().mean().backward()
    if rank == 1 and step == 5:
        evaluate()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.1)
dist.destroy_process_group()
