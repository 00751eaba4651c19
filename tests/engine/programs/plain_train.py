"""A training without torch: with more than 16 a batch it runs out of memory at its third step.

usage: plain_train.py --batch-size N [--steps N] [--print NAME] [--wait S]
"""

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--accum-steps", type=int, default=1)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--print", action="append", default=[])
parser.add_argument("--wait", type=float, default=0.0)
options = parser.parse_args()
for name in options.print:
    print(f"{name}={os.environ.get(name)}")
print(f"in {os.getcwd()} with {options.batch_size} x {options.accum_steps}", flush=True)
time.sleep(options.wait)
for step in range(options.steps):
    if step == 3 and options.batch_size > 16:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    print(f"step {step}", flush=True)
