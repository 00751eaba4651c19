"""A real training that waits for its data: an item takes 10 ms to make, as from a slow disk.

usage: starved.py [--num-workers N] [--steps N]
"""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--steps", type=int, default=1 << 30)
options = parser.parse_args()
torch.set_num_threads(1)


class Slow(Dataset):
    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.randn(64)


if options.num_workers < 1:
    print(  # Lightning's words
        "data_connector.py:425: The 'train_dataloader' does not have many workers which may be a "
        "bottleneck. Consider increasing the value of the `num_workers` argument` to "
        "`num_workers=3` in the `DataLoader` to improve performance.",
        flush=True,
    )
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Slow(), batch_size=16, num_workers=options.num_workers)
for step, batch in enumerate(loader):
    if step == options.steps:
        break
    time.sleep(0.1)  # as long as a GPU would compute
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
