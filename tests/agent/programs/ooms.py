"""A run whose OOMs are FAKED (faked_cuda.py). usage: ooms.py FOLDER

A file FOLDER/oom is one OOM that the program survives, FOLDER/die one that ends it.
"""

import os
import sys
import time
import types

import torch

sys.path.insert(0, __file__.rpartition("/programs/")[0])
import faked_cuda

from cockpit.agent import attach

faked_cuda.install(torch)
torch.cuda.get_device_properties = lambda i: types.SimpleNamespace(uuid="0aa" + "0" * 5)
folder = sys.argv[1]
attach(how="launch", directory=folder, observe_oom=True)
(observer,) = faked_cuda.observers
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters())


def runs_out(asked):
    observer(0, asked, 70 << 30, 1 << 30)
    torch._C._cuda_memoryStats(0)["num_ooms"] += 1


while not os.path.exists(folder + "/die"):
    optimizer.step()
    time.sleep(0.01)
    if os.path.exists(folder + "/oom"):
        os.unlink(folder + "/oom")
        runs_out(2 << 30)
runs_out(3 << 30)
sys.exit(1)
