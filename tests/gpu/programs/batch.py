"""Trains with activations of a twentieth of the GPU a sample: 32 do not fit, 16 do.

usage: batch.py --batch-size N [--accum-steps N]
"""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accum-steps", type=int, default=1)
options = parser.parse_args()
free, total = torch.cuda.mem_get_info()
sample = total // 20
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(200):
    for _ in range(options.accum_steps):
        size = sample * (options.batch_size if step >= 3 else 1)  # as a long batch comes late
        held = torch.empty(size, dtype=torch.uint8, device="cuda")
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        del held
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}", flush=True)
    time.sleep(0.05)
