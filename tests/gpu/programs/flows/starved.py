"""Trains on items that take 10 ms each to make, as a slow disk or a decoder does.

``--device cpu`` does the same without a GPU.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 1024


class Decoded(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.full((WIDTH,), float(index % 7))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    data = Decoded(options.steps * options.batch_size)
    loader = DataLoader(data, batch_size=options.batch_size, num_workers=options.num_workers)
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)]).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    began = time.monotonic()
    for step, batch in enumerate(loader, 1):
        loss = model(batch.to(options.device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            took = (time.monotonic() - began) / 20
            print(f"step {step}: loss {loss.item():.4f}, {took:.4f} s a step", flush=True)
            began = time.monotonic()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
