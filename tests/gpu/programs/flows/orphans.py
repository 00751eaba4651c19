"""A launcher and its ranks: each holds its share of the card and waits for the data.

The launcher hands the data on when the file of that name is there. When it is killed before, its
ranks wait for ever, and hold what they have.

usage: orphans.py [--ranks N] [--gib G] [--data FILE]
"""

import argparse
import os
import subprocess
import sys
import time

import torch
from torch import nn

GIB = 1 << 30
STEPS = 20


def launch(options: argparse.Namespace) -> int:
    """As torchrun does it: one process a rank, told by its environment who it is."""
    ready = f"{options.data}.ready"
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(options.ranks),
                "TORCHELASTIC_RUN_ID": "none",
            },
        )
        for rank in range(options.ranks)
    ]
    while not os.path.exists(options.data):
        time.sleep(0.1)
    open(ready, "w").close()
    return max(rank.wait() for rank in ranks)


def train(options: argparse.Namespace) -> None:
    rank = os.environ["RANK"]
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    cache = torch.ones(int(options.gib * GIB), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print(f"rank {rank}: holds {cache.numel() / GIB:.0f} GiB", flush=True)
    while not os.path.exists(f"{options.data}.ready"):
        time.sleep(1)
    for _ in range(STEPS):
        model(torch.randn(256, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print(f"rank {rank}: trained", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gib", type=float, default=40.0)
    parser.add_argument("--data", default="data")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        return launch(options)
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
