"""A small real training: bf16 matmuls, a few GiB, until it is ended or SECONDS are over."""

import sys
import time

import torch

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
ballast = torch.empty(int(float(sys.argv[2]) * 2**30), dtype=torch.uint8, device="cuda")
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.randn(4096, 4096, device="cuda")
end = time.monotonic() + seconds
while time.monotonic() < end:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
