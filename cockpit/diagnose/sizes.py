"""Sizes as programs print them, to bytes: ``1.50 GiB``, ``0 bytes``, ``412 MiB``."""

from __future__ import annotations

import re

SIZE = r"(\d{1,12}(?:\.\d{1,6})?)\s*(bytes|[KMGTPE]i?B)"
"""Number and unit."""
_SIZE = re.compile(SIZE, re.IGNORECASE)
_POWERS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def to_bytes(number: str, unit: str) -> int:
    """Base 1024 whatever the unit is called: torch, vLLM and JAX mean it so."""
    return round(float(number) * (1 << 10 * _POWERS[unit[0].lower()]))


def parse(text: str | None) -> int | None:
    """The first size in ``text``."""
    match = _SIZE.search(text) if text else None
    return to_bytes(match[1], match[2]) if match else None
