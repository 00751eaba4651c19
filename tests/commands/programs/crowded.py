"""Needs a simulated card almost for itself: FAKED, the card is the state file of tests/simnvml.

Its holders are real processes. usage: crowded.py NEEDED_MIB
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import faked_card

TOTAL_MIB = 143771


def holders():
    found = {}
    with open(os.environ["SIMNVML_STATE"]) as file:
        rows = [line.split()[1:] for line in file if line.startswith("proc ")]
    for words in rows:
        row = dict(word.partition("=")[::2] for word in words)
        try:
            with open(f"/proc/{row.get('hold', row['pid'])}/stat") as file:
                dead = file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if not dead:
            found[row["pid"]] = int(row["vram"])
    return found


def load(needed):
    held = holders()
    free = TOTAL_MIB - sum(held.values())
    if needed > free:
        raise faked_card.out_of_memory(
            asked=f"{needed / 1024:.2f} GiB",
            total=f"{TOTAL_MIB / 1024:.2f} GiB",
            free=f"{free / 1024:.2f} GiB",
            others="".join(
                f"Process {pid} has {mib / 1024:.2f} GiB memory in use. "
                for pid, mib in held.items()
            ),
            allocated="0 bytes",
            stranded="0 bytes",
        )


load(int(sys.argv[1]))
print("step 1")
