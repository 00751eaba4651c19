"""Two ranks that meet in every step; while the file --stuck is there, rank 1 stays away at step 20.

usage: torchrun --nproc-per-node 2 hang_two_gpus.py [--stuck FILE] [--backend gloo --device cpu]

With one card both ranks are on it, and only gloo lets them meet there.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 2048


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stuck", default="stuck")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(options.backend)
    model = nn.Linear(WIDTH, WIDTH).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        x = torch.randn(options.batch_size, WIDTH, device=options.device)
        loss = (model(x) - x).square().mean()
        loss.backward()
        while rank == 1 and step == 20 and os.path.exists(options.stuck):
            time.sleep(3600)  # this rank stays away
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {mean:.4f}", flush=True)
        time.sleep(0.02)
    dist.destroy_process_group()
    print(f"rank {rank}: trained", flush=True)


if __name__ == "__main__":
    main()
