"""An index outside of its table: FAKED kernel, noticed late unless each kernel is waited for."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
from faked_card import lookup, synchronize

table = [0.5] * 16
tokens = [3, 7, 16]
rows = lookup(table, tokens)
total = sum(rows)
synchronize()
print("step 1")
