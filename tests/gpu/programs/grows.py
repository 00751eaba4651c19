"""Grows until the GPU has no memory left."""

import torch

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
held = []
while True:
    held.append(torch.ones(2 << 30, dtype=torch.uint8, device="cuda"))
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
