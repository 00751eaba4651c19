"""Programs that really fail on a GPU, each in the way of its name: ``fails.py KIND``."""

import sys

import torch
from torch import nn

GIB = 1 << 30


def block(gib):
    return torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")


def oom_size():
    """Weights fit, the batch's activations do not."""
    net = nn.Sequential(*(nn.Linear(16384, 16384) for _ in range(32))).cuda()
    batch = torch.randn(65536, 16384, device="cuda")
    net(batch).sum().backward()


def oom_other():
    """Somebody else has filled the card before this one comes."""
    keep = [block(4) for _ in range(8)]
    keep.append(block(16))


def oom_fragmentation():
    """Big cached segments, each half taken by something small that stays."""
    free, _ = torch.cuda.mem_get_info()
    count = int(free / GIB) - 8
    pieces = [block(1) for _ in range(count)]
    del pieces
    keep = [block(0.5) for _ in range(count)]
    keep.append(block(count / 4))


def oom_fraction():
    """The card has room; the process may not have it."""
    torch.cuda.set_per_process_memory_fraction(0.05)
    keep = [block(1) for _ in range(64)]
    keep.clear()


def assert_index():
    """A token id beyond the table."""
    table = nn.Embedding(1000, 64).cuda()
    tokens = torch.randint(0, 1000, (8, 128), device="cuda")
    tokens[3, 17] = 1000
    table(tokens).sum().backward()
    torch.cuda.synchronize()


def assert_label():
    """A class that the head does not have."""
    logits = torch.randn(32, 10, device="cuda", requires_grad=True)
    labels = torch.randint(0, 10, (32,), device="cuda")
    labels[5] = 10
    nn.functional.cross_entropy(logits, labels).backward()
    torch.cuda.synchronize()


KERNEL = """
extern "C" __global__ void scale(float* x, long long far) { x[far] = x[0] * 2.0f; }
"""


def illegal_access():
    """A kernel of one's own writes far outside of what it was given."""
    kernel = torch.cuda._compile_kernel(KERNEL, "scale")
    x = torch.ones(1024, device="cuda")
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[x, 1 << 40])
    print(x.sum().item())


def hidden():
    """Started with CUDA_VISIBLE_DEVICES=''."""
    nn.Linear(8, 8).to("cuda")


def ordinal():
    """A card that is not there."""
    torch.zeros(8, device="cuda:13")


def cpu_tensors():
    """The model was moved, the batch left behind."""
    net = nn.Linear(64, 8).cuda()
    batch = torch.randn(16, 64)
    net(batch).sum().backward()


class OnTheGpu(torch.utils.data.Dataset):
    """Makes its items on the GPU: in a forked worker."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), float(index), device="cuda")


def fork_after_init():
    """CUDA was used before the workers were forked."""
    torch.ones(1, device="cuda")
    loader = torch.utils.data.DataLoader(OnTheGpu(), num_workers=2, multiprocessing_context="fork")
    for batch in loader:
        print(batch.sum())


globals()[sys.argv[1]]()
