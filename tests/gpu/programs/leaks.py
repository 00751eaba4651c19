"""A training that keeps something of every step. Usage: leaks.py MIB_PER_STEP"""

import sys
import time

import torch

size = int(sys.argv[1]) << 20
model = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.randn(4096, 4096, device="cuda")
kept = []
while True:
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        model(data).square().mean().backward()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    optimizer.step()
    kept.append(torch.ones(size, dtype=torch.uint8, device="cuda"))
