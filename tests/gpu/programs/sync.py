"""A training that reads a value of the GPU after every small operation."""

import torch

model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.randn(64, 512, device="cuda")
total = 0.0
while True:
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    x = data
    for _ in range(300):
        x = x * 0.999
        total += x.sum().item()
