"""Which interpreter has a real torch: $COCKPIT_TORCH_PYTHON, else this one. Imports no torch."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

TORCH = os.environ.get("COCKPIT_TORCH_PYTHON", "")
if not TORCH and importlib.util.find_spec("torch") is not None:
    TORCH = sys.executable
needs_torch = pytest.mark.skipif(
    not TORCH, reason="needs torch (pip install torch==2.13.0, or set COCKPIT_TORCH_PYTHON)"
)
