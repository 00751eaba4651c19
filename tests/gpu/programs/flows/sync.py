"""Trains on parts of a batch, and reads each part's loss from the GPU before it prepares the next.

The CPU could prepare while the GPU computes; so it waits. ``--device cpu`` does the same without
a GPU.
"""

import argparse
import time

import torch
from torch import nn


def prepare(part: int) -> float:
    """Less of the CPU's time than the GPU takes for its part: some 1 to 2 ms."""
    return sum(number * number % 7 for number in range(13_000)) % (part + 2) / 100.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    model = nn.Sequential(nn.Linear(options.width, options.width), nn.GELU()).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(options.batch_size, options.width, device=options.device)
    began = time.monotonic()
    for step in range(1, options.steps + 1):
        total = 0.0
        for part in range(8):
            x = data + prepare(part)
            loss = (model(x) - x).square().mean()
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            took = (time.monotonic() - began) / 50
            print(f"step {step}: loss {total / 8:.4f}, {took:.5f} s a step", flush=True)
            began = time.monotonic()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
