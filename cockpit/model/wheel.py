"""A build of torch: which index has it, and what machine code runs on what device. No I/O."""

from __future__ import annotations

from msgspec import Struct

FAMILY = ("torch", "torchvision", "torchaudio")
"""Installed together, from one index: their compiled parts fit each other only so."""


class WheelChoice(Struct, frozen=True, kw_only=True):
    """The build that fits these GPUs, this driver and this Python, or why there is none."""

    index: str | None
    """Name of the index and local version tag, such as ``cu126``; None: see ``refusal``."""
    url: str | None = None
    """Of the index."""
    torch: str = ""
    """Version constraint of torch, such as ``>=2.7``; empty: any that the index has."""
    why: str = ""
    """A sentence: why this one."""
    capabilities: tuple[str, ...] = ()
    """The devices that it has to run on, such as ``9.0``; empty: not known."""
    refusal: str | None = None
    """Why no build fits, and what would help."""


def runs(code: str, device: str) -> bool:
    """Machine code of X.y runs on X.z with z >= y; the integrated 8.7 and 11.0 are apart."""
    code_major, _, code_minor = code.partition(".")
    major, _, minor = device.partition(".")
    if "8.7" in (code, device) and code != device:
        return False
    return code_major == major and int(minor or 0) >= int(code_minor or 0)


def capability(architecture: str) -> str | None:
    """``sm_90`` or ``sm_120a`` of ``torch.cuda.get_arch_list()`` as ``9.0``, ``12.0``."""
    digits = architecture.removeprefix("sm_").rstrip("af")
    if not architecture.startswith("sm_") or not digits.isdigit() or len(digits) < 2:
        return None
    return f"{digits[:-1]}.{digits[-1]}"


def satisfies(version: str, constraint: str) -> bool:
    """``2.7.1`` against ``>=2.7,<2.10``: only >= and <, which is all that the table has."""
    have = _numbers(version)
    for part in filter(None, constraint.split(",")):
        if part.startswith(">=") and have < _numbers(part[2:]):
            return False
        if part.startswith("<") and have >= _numbers(part[1:]):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split("."):
        digits = "".join(c for c in part if c.isdigit())
        if digits != part:
            break
        parts.append(int(digits))
    return tuple(parts)
