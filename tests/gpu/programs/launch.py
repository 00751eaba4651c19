"""A training of thousands of tiny kernels a step: the CPU launches, the GPU has little to do."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(400)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)
data = torch.randn(8, 32, device="cuda")
while True:
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
