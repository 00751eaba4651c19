"""Two ranks on the CPU: rank 1 leaves out the fourth collective. Each writes its flight record.

gloo records, too, in new versions; its time-out writes nothing: the program does, as NCCL would.
Arguments: where to (PREFIX), a file for the ranks to meet.
"""

import datetime
import os
import sys
import time

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank: int, prefix: str, meet: str) -> None:
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=f"file://{meet}", rank=rank, world_size=2, timeout=wait
    )
    values = torch.ones(8, 4)
    for _ in range(3):
        dist.all_reduce(values)
        time.sleep(0.3)  # gloo's threads set its counter of what is done in no order
    if rank == 0:
        _work = dist.all_reduce(values, async_op=True)  # nobody comes
    time.sleep(1)
    with open(f"{prefix}{rank}", "wb") as file:
        file.write(c10d._dump_fr_trace(True, True, False))
    time.sleep(1)  # neither may see the other leave before it has written
    os._exit(0)


if __name__ == "__main__":
    for number in (0, 1):
        mp.get_context("spawn").Process(target=main, args=(number, *sys.argv[1:3])).start()
