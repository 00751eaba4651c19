"""CUDA_VISIBLE_DEVICES against the GPUs that there are: what it hides, and what it should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

NONE_WORDS = ("", "-1", "NoDevFiles", "void", "none")
"""``NoDevFiles`` and ``-1`` come from Slurm for a job without ``--gres``."""


_NUMBER = re.compile(r"\s*([+-]?\d{1,9})")


class Listed(Protocol):
    """What an entry of the variable can name."""

    @property
    def index(self) -> int:
        """NVML's."""

    @property
    def uuid(self) -> str | None:
        """``GPU-…``."""


def number_of(entry: str) -> int | None:
    """Like strtol, as CUDA reads it: a sign is allowed, what follows the digits does not count."""
    match = _NUMBER.match(entry)
    return int(match[1]) if match else None


def named(entry: str, first: str, devices: Sequence[Listed]) -> int | None:
    """Index of the device that an entry names: by number or by the unique beginning of a UUID,
    whichever of the two the ``first`` entry of the list is."""
    if not first.startswith("GPU-"):
        number = number_of(entry)
        return number if any(device.index == number for device in devices) else None
    if not entry.startswith("GPU-") or entry == "GPU-":
        return None
    found = [device.index for device in devices if (device.uuid or "").startswith(entry)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Device:
    """A GPU as NVML lists it."""

    index: int
    uuid: str
    mig: tuple[str, ...] = ()
    """UUIDs of its MIG instances."""


@dataclass(frozen=True)
class Advice:
    """What is wrong with a value and what would be right."""

    problem: str | None
    """A sentence; None: it hides nothing by mistake."""
    value: str | None
    """To set; None: to unset."""


def advise(value: str | None, devices: Sequence[Device], *, slurm: bool = False) -> Advice:
    """``value`` as the process was started with; None: not set.

    CUDA reads the list up to the first entry that names no device, and counts devices
    fastest-first where CUDA_DEVICE_ORDER does not say PCI_BUS_ID: only the range of an index is
    judged here, not which GPU it means.
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    if value is None:
        return Advice(None, None)
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0] in NONE_WORDS:
        return _hides_all(value, slurm)
    meant = [_meant(entry, entries[0], devices) for entry in entries]
    good = [entry for entry, device in zip(entries, meant, strict=True) if device is not None]
    if len(good) < len(entries):
        bad = entries[meant.index(None)]
        return _bad_entry(value, bad, good, devices)
    if len(set(meant)) < len(meant):
        once = ",".join(dict(zip(reversed(meant), reversed(entries), strict=True)).values())
        return Advice(f"CUDA_VISIBLE_DEVICES={value} names a device twice: CUDA shows none.", once)
    instances = [entry for entry in entries if entry.startswith("MIG-")]
    if len(instances) > 1:
        return Advice("A process can use one MIG instance only: the first.", instances[0])
    return Advice(None, value)


def _hides_all(value: str, slurm: bool) -> Advice:
    if slurm:
        return Advice(
            f"CUDA_VISIBLE_DEVICES is {value!r}: Slurm gave this job no GPU. Ask for one "
            "(--gres=gpu:1 or --gpus=1); to unset it would take other people's.",
            value,
        )
    return Advice(f"CUDA_VISIBLE_DEVICES is {value!r}, which hides every GPU.", None)


def _bad_entry(value: str, bad: str, good: list[str], devices: Sequence[Device]) -> Advice:
    problem = (
        f"{bad} in CUDA_VISIBLE_DEVICES={value} names no GPU of this machine: CUDA ignores it and "
        "all that follow."
    )
    entries = [entry.strip() for entry in value.split(",")]
    if bad in NONE_WORDS:
        return Advice(problem, ",".join(entries[: entries.index(bad)]) or None)
    if bad.startswith("GPU-") and entries[0].startswith("GPU-"):
        meant = max((device.uuid for device in devices), key=lambda u: _shared(u, bad), default="")
        if _shared(meant, bad) >= len("GPU-") + 4:
            fixed = [meant if entry == bad else entry for entry in entries]
            return Advice(problem, ",".join(fixed))
    return Advice(problem, ",".join(dict.fromkeys(good)) or None)


def _meant(entry: str, first: str, devices: Sequence[Device]) -> int | str | None:
    """A GPU's index, or a MIG instance's UUID."""
    if not first.startswith("MIG-"):
        return named(entry, first, devices)
    found = [one for device in devices for one in device.mig if one.startswith(entry)]
    return found[0] if found and len(entry) > len("MIG-") else None


def _shared(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
