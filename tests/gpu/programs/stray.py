"""Leaves a real stray: a rank that holds GIB of VRAM after its launcher has ended.

usage: stray.py GIB   prints the pid of the rank, then ends.
"""

import os
import sys
import time

GIB = float(sys.argv[1])

read_end, write_end = os.pipe()
if os.fork() == 0:
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    # exec, so that /proc/PID/environ has the rank, as a launcher's child would
    code = (
        "import os, sys, time, torch\n"
        f"x = torch.ones(int({GIB} * 2**30), dtype=torch.uint8, device='cuda')\n"
        "torch.cuda.synchronize()\n"
        f"os.write({write_end}, str(os.getpid()).encode())\n"
        f"os.close({write_end})\n"
        "null = os.open('/dev/null', os.O_RDWR)\n"
        "[os.dup2(null, fd) for fd in (0, 1, 2)]\n"
        "time.sleep(900)\n"
    )
    os.set_inheritable(write_end, True)
    os.execv(sys.executable, [sys.executable, "-c", code, "train.py", "--local-rank=0"])
os.close(write_end)
pid = b""
while True:
    part = os.read(read_end, 64)
    if not part:
        break
    pid += part
print(pid.decode(), flush=True)
time.sleep(0.2)
