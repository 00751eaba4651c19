"""Fails of fragmentation until segments may grow: FAKED, with torch's own words."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import faked_card

conf = os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def step():
    if "expandable_segments:True" not in conf:
        raise faked_card.out_of_memory(
            asked="14.78 GiB",
            total="31.47 GiB",
            free="12.73 GiB",
            others="Including non-PyTorch memory, this process has 18.73 GiB memory in use. ",
            allocated="9.08 GiB",
            stranded="9.35 GiB",
        )


step()
print("step 1")
