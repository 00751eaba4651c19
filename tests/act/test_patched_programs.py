"""Patched programs are run by a real torch (CPU): they work, and the change does what it promises.

Where a program needs a GPU another device stands in, which each case says: ``cpu`` for autocast,
``meta`` for a model that is elsewhere than its batch.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cockpit.act.action import Console
from cockpit.act.patch import Patch
from tests.agent.conftest import torch_python

__all__ = ["torch_python"]

_RUN = """
import json, runpy, sys, torch
answers = []
torch.cuda.set_device = lambda number: chosen.append(number)  # there is no GPU here
for path in sys.argv[1:]:
    torch.manual_seed(0)
    chosen = []
    try:
        found = runpy.run_path(path, init_globals={"chosen": chosen}, run_name="__main__")
        answers.append([found["answer"], found.get("same")])
    except RuntimeError as error:
        answers.append([str(error), None])
print(json.dumps(answers))
"""
_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "3",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""As torchrun sets it."""


@dataclass
class Program:
    kind: str
    text: str
    before: Any
    """``answer`` of the program as it was, or a part of the error that it ends with.

    What the program calls ``same`` must not change at all.
    """
    after: Any
    facts: dict[str, Any] = field(default_factory=dict)
    instead: tuple[str, str] = ("", "")
    """In the patched text, for a machine without a GPU."""


PROGRAMS = [
    Program(
        "detach_loss",
        """
import torch
model = torch.nn.Linear(4, 1)
losses, total = [], 0.0
for x in torch.randn(5, 2, 4):
    loss = model(x).square().mean()  #@
    loss.backward()
    losses.append(loss)
    total += loss
kept = any(torch.is_tensor(one) and one.requires_grad for one in [*losses, total])
same = [round(float(sum(losses)), 4), round(float(total), 4)]
answer = kept
""",
        True,
        False,
    ),
    Program(
        "autocast_bf16",
        """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
for x, y in [(torch.randn(3, 4), torch.tensor([0, 1, 0]))]:
    out = model(x)  #@
    loss = torch.nn.functional.cross_entropy(out, y)
    loss.backward()
grads = {str(p.grad.dtype) for p in model.parameters()}
same = [str(loss.dtype), sorted(grads), round(loss.item(), 1)]
answer = [str(out.dtype)]
""",
        ["torch.float32"],
        ["torch.bfloat16"],
        instead=('autocast("cuda"', 'autocast("cpu"'),
    ),
    Program(
        "to_device",
        """
import torch
device = torch.device("meta")
model = torch.nn.Linear(4, 2).to(device)
criterion = torch.nn.MSELoss()
loader = [(torch.randn(3, 4), torch.randn(3, 2), ["a", "b", "c"])]
for x, y, names in loader:
    loss = criterion(model(x), y)  #@
    loss.backward()
answer = str(loss.device)
""",
        "not on the expected device",
        "meta",
    ),
    Program(
        "dataloader",
        """
import os
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor([i, os.getpid()])


loader = DataLoader(Numbers(), batch_size=2)  #@
rows = torch.cat(list(loader))
answer = [rows[:, 0].tolist(), len(set(rows[:, 1].tolist()) - {os.getpid()})]
""",
        [list(range(8)), 0],
        [list(range(8)), 2],
        facts={"workers": 2},
    ),
    Program(
        "gradient_checkpointing",
        """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5)) for _ in range(4)]
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)  #@
        return x


kept = []
model = Net()
with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
    loss = model(torch.randn(2, 8)).sum()
    saved = len(kept)
    loss.backward()
norm = sum(p.grad.norm().item() for p in model.parameters())
same = round(norm, 3)
answer = saved >= 12
""",
        True,
        False,
    ),
    Program(
        "map_location",
        """
import os
import tempfile
import torch

path = os.path.join(tempfile.mkdtemp(), "model.pt")
model = torch.nn.Linear(2, 2)
# as if it had been saved on a GPU
torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, where: None)
torch.save(model.state_dict(), path)
torch.serialization._package_registry.pop(0)
model.load_state_dict(torch.load(path, weights_only=True))  #@
answer = "loaded"
""",
        "CUDA device",
        "loaded",
        facts={"cannot_load": True},
    ),
    Program(
        "set_device",
        """
import torch
import torch.distributed as dist

dist.init_process_group()  #@
dist.destroy_process_group()
answer = chosen
""",
        [],
        [3],
    ),
    Program(
        "sync_free",
        """
import torch
reads = []
item = torch.Tensor.item
torch.Tensor.item = lambda self: reads.append(1) or item(self)
total = 0.0
for x in torch.randn(6, 4):
    loss = x.square().mean()
    total += loss.item()  #@
same = [round(total, 4), type(total).__name__]
answer = len(reads)
""",
        6,
        0,
    ),
    Program(
        "no_grad",
        """
import torch
model = torch.nn.Linear(4, 2)
model.eval()
for x in torch.randn(3, 2, 4):
    out = model(x)  #@
answer = out.requires_grad
""",
        True,
        False,
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.kind)
def test_the_patched_program_runs_and_does_what_was_promised(
    program: Program, torch_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lines = program.text.split("\n")
    (line,) = (i for i, one in enumerate(lines, 1) if one.endswith("#@"))
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for path in (before, after):
        path.write_text(program.text.replace("  #@", ""))
    patch = Patch(program.kind, str(after), line, program.facts)
    assert patch.refusal is None
    patch.run(Console(print))
    if program.instead[0]:
        after.write_text(after.read_text().replace(*program.instead))
    (was, same), (now, same_now) = run(torch_python, before, after)
    assert (program.before in was) if isinstance(was, str) else was == program.before
    assert now == program.after
    assert same_now == same


def run(python: str, *paths: Path) -> list[Any]:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", _RUN, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **_RANK},
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))
