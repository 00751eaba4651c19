"""One of two gloo ranks; rank 1 stays away from the last collective.

usage: ranks.py FOLDER RANK [COUNT]. Rank 0 leaves COUNT more of them undone before that.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

from cockpit.agent import attach

folder, rank = sys.argv[1], int(sys.argv[2])
more = int(sys.argv[3]) if len(sys.argv) > 3 else 0
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
value = torch.ones(4)
for _ in range(5):
    dist.all_reduce(value)
attach(directory=folder)
if rank == 0:
    undone = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(more)]
    dist.all_reduce(value)
while True:
    time.sleep(0.1)
