"""Trains a small model on the CPU.

usage: train.py FOLDER [idle|late|looks|thread|cuda|once STEPS [stay]]

``thread``: another thread imports torch, after the agent has come.
``cuda``: the statistics come from the recording of an H200, see faked_cuda.py.
"""

import sys
import time

mode = sys.argv[2] if len(sys.argv) > 2 else "loop"
late = mode in ("late", "looks", "thread")
if late:
    from cockpit.agent import attach

    attach(directory=sys.argv[1])
if mode == "looks":
    import importlib.util

    assert importlib.util.find_spec("torch")
    assert importlib.util.find_spec("torch")

if mode == "thread":
    import threading

    importing = threading.Thread(target=lambda: __import__("torch"))
    importing.start()
    importing.join()

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 256)
        self.outer = nn.Linear(256, 8)

    def forward(self, batch):
        return self.outer(torch.relu(self.inner(batch)))


def main():
    steps = int(sys.argv[3]) if mode == "once" else 1 << 60
    kept = torch.zeros(512, 512)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    other = torch.optim.SGD([kept], lr=0.1)  # takes turns: still one step a round
    kept.grad = torch.zeros_like(kept)
    data = torch.utils.data.TensorDataset(torch.randn(64, 64))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    while steps > 0:
        for (batch,) in loader:
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
            other.step()
            steps -= 1
            time.sleep(0.001)
    if "stay" in sys.argv:
        time.sleep(60)
    return net


if mode == "cuda":
    sys.path.insert(0, __file__.rpartition("/programs/")[0])
    import faked_cuda

    faked_cuda.install(torch)
if not late:
    from cockpit.agent import attach

    attach(directory=sys.argv[1])
if mode == "idle":
    model = Net()
    while True:
        time.sleep(0.05)
net = main()
if mode == "once":
    print(sum(p.double().sum().item() for p in net.parameters()).hex())
