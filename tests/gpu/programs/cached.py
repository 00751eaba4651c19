"""A training that nobody prepared: a steady step, and GIB of freed memory in torch's cache.

usage: cached.py TRUTH_FILE GIB   writes its own torch.cuda.memory_stats there four times a second.
"""

import json
import os
import sys
import time

import torch

truth, gib = sys.argv[1], float(sys.argv[2])
blocks = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(int(gib * 4))]
del blocks
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.randn(512, 2048, device="cuda")
written = 0.0
while True:
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    del loss
    torch.cuda.synchronize()
    time.sleep(0.05)
    if time.monotonic() - written > 0.25:
        stats = torch.cuda.memory_stats(0)
        now = {
            "allocated_bytes": stats["allocated_bytes.all.current"],
            "reserved_bytes": stats["reserved_bytes.all.current"],
            "reserved_peak_bytes": stats["reserved_bytes.all.peak"],
        }
        with open(truth + ".new", "w") as file:
            json.dump(now, file)
        os.replace(truth + ".new", truth)
        written = time.monotonic()
