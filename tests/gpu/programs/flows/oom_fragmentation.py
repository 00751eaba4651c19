"""Trains, and keeps the features of what it has seen: the free memory is there, but in pieces.

The first epoch works in blocks of 1 GiB, which the allocator keeps. Each feature takes more than
half of one, so that two do not share it; then an evaluation needs a quarter of the card at once.
"""

import argparse

import torch
from torch import nn

GIB = 1 << 30
SPARE_GIB = 8


def block(gib: float) -> torch.Tensor:
    return torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    free, _ = torch.cuda.mem_get_info()
    blocks = int(free / GIB) - SPARE_GIB
    features: list[torch.Tensor] = []
    for step in range(options.steps):
        if step == 3:
            epoch = [block(1) for _ in range(blocks)]
            del epoch
        elif step == 5:
            features += [block(0.6) for _ in range(blocks)]
        elif step == 8:
            scores = block(blocks / 4)
            del scores
        x = torch.randn(options.batch_size, 1024, device="cuda")
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}, {len(features)} features", flush=True)
    print("trained", flush=True)


if __name__ == "__main__":
    main()
