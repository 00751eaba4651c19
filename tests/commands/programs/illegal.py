"""Writes outside of its memory: FAKED kernel, noticed late unless each kernel is waited for."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
from faked_card import scatter, synchronize

weights = [0.0] * 16
places = [3, 7, 1 << 40]
scatter(weights, places)
total = sum(weights)
synchronize()
print("step 1")
