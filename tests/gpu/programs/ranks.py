"""Ranks that meet in an all_reduce each step, until rank 1 goes to sleep in its own line.

Usage: RANK=r WORLD_SIZE=n MASTER_ADDR=… MASTER_PORT=… ranks.py STEPS
"""

import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.randn(4096, 4096, device="cuda")
step = 0
while True:
    step += 1
    model(data).square().mean().backward()
    if rank == 1 and step > int(sys.argv[1]):
        time.sleep(3600)  # this rank stays away
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
