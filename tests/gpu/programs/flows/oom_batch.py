"""Trains a deep MLP on sequences: the activations of one sequence take 384 MiB.

Every block keeps its input and the input of its GELU for the backward pass: 24 blocks, twice
2048 x 1024 numbers of four bytes.
"""

import argparse

import torch
from torch import nn

TOKENS, WIDTH, BLOCKS = 2048, 1024, 24


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accum-steps", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(BLOCKS)]
    model = nn.Sequential(*blocks).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        for _ in range(options.accum_steps):
            x = torch.randn(options.batch_size, TOKENS, WIDTH, device="cuda")
            loss = model(x).square().mean() / options.accum_steps
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item() * options.accum_steps:.4f}", flush=True)
    print("trained", flush=True)


if __name__ == "__main__":
    main()
