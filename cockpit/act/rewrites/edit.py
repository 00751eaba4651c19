"""What a rewrite of source text comes to. Needs no libcst, so that a plan can be held cheaply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
"""What is known of the run: ``workers``, ``python_version``, ``on_cpu``, ``cannot_load``."""


@dataclass(frozen=True)
class Edit:
    """A certain change: the whole new text of the file, and what a person should know of it."""

    text: str
    title: str
    """Such as ``compute the forward pass in bf16``: the diff says where."""
    loses: str
    verify: str


Rewrite = Callable[[str, int, Facts], Edit | None]
"""(source text, line from 1, facts) → the edit; None where place or sense are not certain."""
