"""Which build of torch fits a machine: compute capability, driver, Python and processor."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cockpit.diagnose.tables.cuda_compat import (
    BUILDS,
    GENERATION_DRIVER,
    GENERATIONS,
    MINIMUM_DRIVER,
    WHEEL_HOST,
    Build,
)
from cockpit.model.wheel import WheelChoice, runs, satisfies

Version = tuple[int, ...]


def fitting_build(
    capabilities: Sequence[str],
    *,
    driver: str | None = None,
    cuda: str | None = None,
    python: tuple[int, int] | None = None,
    machine: str = "x86_64",
    release: str | None = None,
) -> WheelChoice:
    """The newest build that runs on all these GPUs, or a refusal with what would help.

    ``driver`` is the kernel driver's version (``550.54.14``), ``cuda`` the newest CUDA that it runs
    (``12.4``); one of them is enough, the driver's wins. ``python`` None: not known, any.
    ``release``: of torch (``2.8.0``), where the index should have just that.
    """
    devices = tuple(dict.fromkeys(capabilities))
    found = _refused_device(devices, machine)
    if found is None and driver is None and cuda is None:
        found = _no("The driver's version is not known: which CUDA it runs cannot be told.")
    if found is not None:
        return found
    with_code = [b for b in BUILDS if b.machine == machine and _covers(b, devices)]
    if not with_code:
        return _no(_nothing_covers(devices, machine))
    for_python = [b for b in with_code if _has_python(b, python)]
    if not for_python:
        assert python is not None
        return _no(
            f"No build of torch for {_names(devices)} has wheels for Python {_dotted(python)}: "
            "make an environment with another Python."
        )
    of_release = [b for b in for_python if release and satisfies(release, b.torch)]
    for build in of_release + for_python:
        if _driver_runs(build, devices, driver, cuda):
            return _chosen(build, devices, driver, cuda)
    return _driver_too_old(for_python, devices, driver, cuda)


def _refused_device(devices: tuple[str, ...], machine: str) -> WheelChoice | None:
    if machine not in {build.machine for build in BUILDS}:
        return _no(f"There are no wheels of torch with CUDA for {machine} processors.")
    if any(_pair(device) < (5, 0) for device in devices):
        return _no(f"No present build of torch has code for {_names(devices)}: it is too old.")
    if "8.7" in devices:
        return _no("Jetson Orin (8.7) has wheels of its own, from NVIDIA for its JetPack.")
    return None


def _nothing_covers(devices: tuple[str, ...], machine: str) -> str:
    single = [d for d in devices if any(_covers(b, (d,)) for b in BUILDS if b.machine == machine)]
    if len(devices) > 1 and len(single) == len(devices):
        return (
            f"No one build of torch has code for {_names(devices)} together: use two environments, "
            "each with CUDA_VISIBLE_DEVICES set to the GPUs that its build knows."
        )
    return f"No build of torch for {machine} has code for {_names(devices)}."


def _chosen(
    build: Build, devices: tuple[str, ...], driver: str | None, cuda: str | None
) -> WheelChoice:
    of_driver = f"driver {driver}" if driver else f"a driver for CUDA {cuda}"
    return WheelChoice(
        index=build.tag,
        url=f"{WHEEL_HOST}/{build.tag}",
        torch=build.torch,
        why=f"{build.tag} has code for {_names(devices)} and runs with {of_driver}.",
        capabilities=devices,
    )


def _driver_too_old(
    builds: list[Build], devices: tuple[str, ...], driver: str | None, cuda: str | None
) -> WheelChoice:
    needed = min((_needed(build, devices) for build in builds), key=_version)
    have = f"driver {driver}" if driver else f"a driver for CUDA {cuda}"
    return WheelChoice(
        index=None,
        capabilities=devices,
        refusal=(
            f"No build of torch for {_names(devices)} runs with {have}: "
            f"the driver has to be {needed} or newer, which an administrator installs."
        ),
    )


def _no(sentence: str) -> WheelChoice:
    return WheelChoice(index=None, refusal=sentence)


def _covers(build: Build, devices: tuple[str, ...]) -> bool:
    return all(any(runs(code, device) for code in build.capabilities) for device in devices)


def _has_python(build: Build, python: tuple[int, int] | None) -> bool:
    oldest, newest = build.pythons
    return python is None or (python >= oldest and (newest is None or python <= newest))


def _driver_runs(
    build: Build, devices: tuple[str, ...], driver: str | None, cuda: str | None
) -> bool:
    if driver is not None:
        return _version(driver) >= _version(_needed(build, devices))
    return _version(cuda or "") >= _cuda_needed(build, devices)


def _needed(build: Build, devices: tuple[str, ...]) -> str:
    """The oldest driver that runs this build on these devices."""
    by_device = [driver for driver, _ in _generations(devices)]
    return max(MINIMUM_DRIVER[_major(build)], *by_device, key=_version)


def _cuda_needed(build: Build, devices: tuple[str, ...]) -> Version:
    return max((_major(build), 0), *(cuda for _, cuda in _generations(devices)))


def _generations(devices: tuple[str, ...]) -> list[tuple[str, Version]]:
    """What the devices themselves ask of the driver; a mark that all pass where they ask none."""
    found: list[tuple[str, Version]] = [("0", (0, 0))]
    for device in map(_pair, devices):
        asked = ((d, c) for low, high, d, c in GENERATION_DRIVER if low <= device <= high)
        found += list(asked)[:1]
    return found


def _major(build: Build) -> int:
    """``cu126`` is CUDA 12.6."""
    return int(build.tag.removeprefix("cu")[:-1])


def _names(devices: tuple[str, ...]) -> str:
    if not devices:
        return "this machine"
    return ", ".join(f"compute capability {d} {_generation(d)}".strip() for d in devices)


def _generation(device: str) -> str:
    name = GENERATIONS.get(device, "")
    return f"[{name}]" if name else ""


def _pair(device: str) -> tuple[int, int]:
    major, _, minor = device.partition(".")
    return int(major), int(minor or 0)


def _version(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _dotted(python: tuple[int, int]) -> str:
    return ".".join(map(str, python))
