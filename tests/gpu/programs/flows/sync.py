"""Trains, and adds the losses of a batch up one by one, each read from the GPU.

``--device cpu`` does the same without a GPU.
"""

import argparse
import time

import torch
from torch import nn

WIDTH = 512


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(options.batch_size, WIDTH, device=options.device)
    began = time.monotonic()
    for step in range(1, options.steps + 1):
        losses = (model(x) - x).square().mean(dim=1)
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for sample_loss in losses.detach():
            total += sample_loss.item()
        if step % 500 == 0:
            took = (time.monotonic() - began) / 500
            mean = total / options.batch_size
            print(f"step {step}: loss {mean:.4f}, {took:.5f} s a step", flush=True)
            began = time.monotonic()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
