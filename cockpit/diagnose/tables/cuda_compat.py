"""Driver, toolkit, compute capability and wheels: what runs with what, with the source."""

from __future__ import annotations

import re
from typing import NamedTuple

MINIMUM_DRIVER: dict[int, str] = {11: "450.80", 12: "525.60", 13: "580.65"}
"""CUDA major version → oldest Linux driver that runs it (minor-version compatibility).
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"""

GENERATIONS: dict[str, str] = {
    "5.0": "Maxwell",
    "5.2": "Maxwell",
    "6.0": "Pascal (P100)",
    "6.1": "Pascal (P40, GTX 10)",
    "7.0": "Volta (V100)",
    "7.5": "Turing (T4, RTX 20)",
    "8.0": "Ampere (A100, A30)",
    "8.6": "Ampere (A10, A40, RTX 30)",
    "8.7": "Ampere (Orin)",
    "8.9": "Ada (L4, L40S, RTX 40)",
    "9.0": "Hopper (H100, H200)",
    "10.0": "Blackwell (B200)",
    "10.3": "Blackwell (B300)",
    "11.0": "Blackwell (Thor)",
    "12.0": "Blackwell (RTX 50, RTX PRO)",
    "12.1": "Blackwell (GB10)",
}
"""Compute capability → generation. https://developer.nvidia.com/cuda-gpus"""

WHEEL_INDEXES: tuple[tuple[str, tuple[int, int], tuple[int, int]], ...] = (
    ("cu118", (11, 8), (3, 5)),
    ("cu126", (12, 6), (5, 0)),
    ("cu128", (12, 8), (7, 0)),
    ("cu130", (13, 0), (7, 5)),
)
"""Index of torch wheels, its CUDA, the oldest compute capability in it.
PYTORCH_RELEASES_CODE_CC in torch/cuda/__init__.py, https://github.com/pytorch/pytorch/issues/157517"""

WHEEL_HOST = "https://download.pytorch.org/whl"
"""Its folders are the indexes. https://pytorch.org/get-started/locally/"""


class Build(NamedTuple):
    """Releases of torch on one index that have the same machine code."""

    tag: str
    """Name of the index, and local version of what it holds."""
    torch: str
    """Constraint: the releases of which this is known."""
    capabilities: tuple[str, ...]
    pythons: tuple[tuple[int, int], tuple[int, int] | None]
    """Oldest and newest CPython with a wheel; None: no end is known."""
    machine: str = "x86_64"


_OLD = ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")
_NEW = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
_ARM = ("8.0", "9.0", "10.0", "11.0", "12.0")
BUILDS: tuple[Build, ...] = (
    Build("cu130", ">=2.9", _NEW, ((3, 10), None)),
    Build("cu126", ">=2.8", _OLD, ((3, 9), None)),
    Build("cu126", ">=2.6,<2.8", _OLD, ((3, 9), (3, 13))),
    Build("cu128", ">=2.9,<2.10", ("7.0", *_NEW), ((3, 10), (3, 14))),
    Build("cu128", ">=2.7,<2.9", _NEW, ((3, 9), (3, 13))),
    Build("cu124", ">=2.4,<2.7", _OLD, ((3, 8), (3, 12))),
    Build("cu118", ">=2.1,<2.8", _OLD, ((3, 8), (3, 13))),
    Build("cu130", ">=2.9", _ARM, ((3, 10), None), "aarch64"),
    Build("cu126", ">=2.8", ("8.0", "9.0"), ((3, 10), None), "aarch64"),
)
"""In the order of choice. PYTORCH_RELEASES_CODE_CC in torch/cuda/__init__.py and
.ci/manywheel/build_cuda.sh of pytorch; the installed wheel's get_arch_list() is the last word."""

GENERATION_DRIVER: tuple[tuple[tuple[int, int], tuple[int, int], str, tuple[int, int]], ...] = (
    ((10, 7), (10, 7), "615", (13, 4)),
    ((10, 0), (99, 9), "570.26", (12, 8)),
)
"""Compute capabilities, first and last, the driver that they need, and the CUDA that it runs.
https://docs.nvidia.com/datacenter/tesla/drivers/"""

BLACKWELL_INDEX = "cu128"
"""The oldest index with sm_100 and sm_120."""


def cuda_of_driver(found: int) -> str:
    """``found version 11040`` of a message: 1000 * major + 10 * minor of the newest CUDA."""
    return f"{found // 1000}.{found % 1000 // 10}"


def wheel_for_driver(cuda: str) -> str | None:
    """The newest index whose major version the driver runs; None below CUDA 11."""
    major = int(cuda.partition(".")[0])
    fitting = [name for name, version, _ in WHEEL_INDEXES if version[0] <= major]
    return fitting[-1] if fitting else None


def wheel_for_capability(capability: str) -> str:
    """The index that has code for a device: the choice that needs the oldest driver."""
    major, _, minor = capability.partition(".")
    device = (int(major), int(minor or 0))
    if device >= (10, 0):
        return BLACKWELL_INDEX
    return "cu126"


def _pair(version: str) -> tuple[int, int]:
    """The first two numbers of ``2.13.0+cpu``."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]] + [0, 0]
    return numbers[0], numbers[1]


def is_newer(one: str, other: str) -> bool:
    """``12.8`` is newer than ``12.4``, and ``12.10`` than both."""
    return _pair(one) > _pair(other)
