"""Trains with a kernel of its own, which is told to write 4 TiB beyond its tensor.

The kernel is launched without waiting; the error shows when the loss is read, some lines later.
"""

import argparse

import torch
from torch import nn

WIDTH = 2048
SOURCE = """
extern "C" __global__ void scale(float* x, int page, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[page * 1048576LL + i] *= 0.999f;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    scale = torch.cuda._compile_kernel(SOURCE, "scale")
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        x = torch.randn(options.batch_size, WIDTH, device="cuda")
        count, page = x.numel(), 1 << 20
        blocks = (count + 255) // 256
        scale(grid=(blocks, 1, 1), block=(256, 1, 1), args=[x, page, count])
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print("trained", flush=True)


if __name__ == "__main__":
    main()
