"""Driver, toolkit, compute capability and wheels: what runs with what, with the source."""

from __future__ import annotations

import re

MINIMUM_DRIVER: dict[int, str] = {11: "450.80", 12: "525.60", 13: "580.65"}
"""CUDA major version → oldest Linux driver that runs it (minor-version compatibility).
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"""

TOOLKIT_DRIVER: dict[str, str] = {
    "11.4": "470.42.01",
    "11.7": "515.43.04",
    "11.8": "520.61.05",
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595.45.04",
    "13.3": "610.43.02",
}
"""Toolkit → driver shipped with it; PTX and new minor features need it.
https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html"""

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


def runs(code: str, device: str) -> bool:
    """Machine code of X.y runs on X.z with z >= y; the integrated 8.7 and 11.0 are apart."""
    code_major, _, code_minor = code.partition(".")
    major, _, minor = device.partition(".")
    if "8.7" in (code, device) and code != device:
        return False
    return code_major == major and int(minor or 0) >= int(code_minor or 0)


INDEX_RELEASES: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    "cu118": ((2, 0), (2, 7)),
    "cu126": ((2, 6), None),
    "cu128": ((2, 7), (2, 10)),
    "cu130": ((2, 9), None),
}
"""Index → first and last release of torch in it (None: still made), as far as is known.
https://github.com/pytorch/pytorch/blob/main/RELEASE.md"""


def best_wheel(driver_cuda: str | None, capabilities: list[str], torch: str | None) -> str | None:
    """The newest index that fits the driver, all the devices and the release of torch.

    None: no index is known that does, or nothing is known of the machine.
    """
    if driver_cuda is None:
        return None
    fitting = [
        name
        for name, version, oldest in WHEEL_INDEXES
        if version[0] <= int(driver_cuda.partition(".")[0])
        and all(_pair(one) >= oldest for one in capabilities)
        and (all(_pair(one) < (10, 0) for one in capabilities) or version >= (12, 8))
        and _has_release(name, torch)
    ]
    return fitting[-1] if fitting else None


def _has_release(index: str, torch: str | None) -> bool:
    if torch is None:
        return True
    first, last = INDEX_RELEASES[index]
    release = _pair(torch)
    return first <= release and (last is None or release <= last)


def _pair(version: str) -> tuple[int, int]:
    """The first two numbers of ``2.13.0+cpu``."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]] + [0, 0]
    return numbers[0], numbers[1]


def is_newer(one: str, other: str) -> bool:
    """``12.8`` is newer than ``12.4``, and ``12.10`` than both."""
    return _pair(one) > _pair(other)
