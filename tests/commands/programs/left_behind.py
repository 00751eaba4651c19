"""The model is moved, the batch is not; real torch. FAKED: faked_device stands for the GPU."""

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import faked_device

device = torch.device(faked_device.NAME)
loader = DataLoader(TensorDataset(torch.randn(32, 64), torch.randn(32, 8)), batch_size=8)
model = nn.Linear(64, 8).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
print("epoch 1")
