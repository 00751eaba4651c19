"""Starts children with the agent in the parent.

usage: children.py FOLDER fork|spawn|forkserver|loader-fork|loader-spawn idle|train
Prints the pids of the children; they live until stdin ends.
"""

import multiprocessing
import os
import sys
import time

import torch
from torch import nn

from cockpit.agent import attach

FOLDER, HOW, WORK = sys.argv[1:4]
torch.set_num_threads(1)
attach(directory=FOLDER)


def step():
    net = nn.Linear(4, 4)
    net(torch.randn(2, 4)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()


def child(work, pids):
    pids.put(os.getpid())
    while True:
        if work == "train":
            step()
        time.sleep(0.02)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.tensor(os.getpid())


def main():
    if HOW.startswith("loader"):
        way = HOW.partition("-")[2]
        loader = torch.utils.data.DataLoader(Slow(), num_workers=2, multiprocessing_context=way)
        batches = iter(loader)
        pids = {int(next(batches)[0]) for _ in range(8)}
        print(*sorted(pids), flush=True)
        sys.stdin.read()
        return
    context = multiprocessing.get_context(HOW)
    pids = context.Queue()
    process = context.Process(target=child, args=(WORK, pids), daemon=True)
    process.start()
    print(pids.get(), flush=True)
    sys.stdin.read()
    process.terminate()
    process.join()


if __name__ == "__main__":
    main()
