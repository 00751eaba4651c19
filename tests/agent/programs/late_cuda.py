"""The agent first, then torch with CUDA (FAKED, see faked_cuda.py); prints what was installed."""

import json
import sys

from cockpit.agent import attach

attach(directory=sys.argv[1], observe_oom=True, history=True)

import torch  # noqa: E402

sys.path.insert(0, __file__.rpartition("/programs/")[0])
import faked_cuda  # noqa: E402

recorded = []
queued = torch.cuda._queued_calls
torch.cuda._queued_calls = [one for one in queued if "cuda_arrived" in repr(one[0])]
faked_cuda.install(torch)
torch.cuda.memory._record_memory_history = lambda **given: recorded.append(given.get("max_entries"))
for call, _ in torch.cuda._queued_calls:
    call()
left = sum(hasattr(finder, "arrived") for finder in sys.meta_path)
print(json.dumps({"observers": len(faked_cuda.observers), "history": recorded, "left": left}))
