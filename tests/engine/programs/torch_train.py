"""A small real training on the CPU: with more than 16 a batch its sixth step fails.

usage: torch_train.py --batch-size N [--accum-steps N] [--steps N]
"""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum-steps", type=int, default=1)
parser.add_argument("--steps", type=int, default=60)
options = parser.parse_args()
torch.set_num_threads(1)
net = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(options.steps):
    for _ in range(options.accum_steps):
        if step == 5 and options.batch_size > 16:
            time.sleep(2.5)  # so that the last step is seen
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        net(torch.randn(options.batch_size, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}", flush=True)
    time.sleep(0.1)
