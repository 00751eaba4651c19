"""Calls the OOM observer as torch does (FAKED, see faked_cuda.py); prints the record."""

import json
import sys

import torch

sys.path.insert(0, __file__.rpartition("/programs/")[0])
import faked_cuda

from cockpit.agent import attach, detach

faked_cuda.install(torch)
path = attach(how="launch", directory=sys.argv[1], observe_oom=True)
(observer,) = faked_cuda.observers


def allocates():
    for _ in range(5):
        assert observer(0, 2 << 30, 1 << 30, 1 << 20) is None


allocates()
agent = sys.modules["_cockpit_agent_registry"].agent
assert agent.oom_records == 5
print(json.dumps(agent.last_oom))
torch._C._cuda_memoryStats = None  # from now on everything in the observer fails
agent.oom_records = 0
allocates()
assert detach()
allocates()
