"""What stands where the GPUs would be when the driver cannot be used: the cause and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.gpu import DriverError
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, wrapped
from cockpit.tui.render.glyphs import Glyphs

_TITLES: dict[str, str] = {
    "lib_rm_version_mismatch": "The driver's library and its kernel module are of two versions",
    "driver_not_loaded": "The NVIDIA driver is not loaded",
    "library_not_found": "There is no NVIDIA driver library on this machine",
    "no_permission": "No permission to use the NVIDIA driver",
    "no_devices": "The driver works but finds no GPU",
    "no_such_gpu": "None of the GPUs of --only exists",
    "gpu_is_lost": "A GPU is lost",
    "unknown": "The NVIDIA driver does not work",
}

_ADVICE: dict[str, tuple[str, ...]] = {
    "lib_rm_version_mismatch": (
        "The driver was updated under the running system. End what uses a GPU, then reload the "
        "module: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        "Or reboot.",
    ),
    "driver_not_loaded": (
        "sudo modprobe nvidia, then read the answer: dmesg | grep -i nvrm",
        "After a new kernel: is the module built for it? dkms status",
    ),
    "library_not_found": (
        "Without an NVIDIA GPU: cockpit --demo shows everything on a simulated machine.",
        "In a container: was it started with --gpus all (NVIDIA Container Toolkit)?",
    ),
    "no_permission": (
        "Look at ls -l /dev/nvidia*: your user needs to read and write them.",
        "In a container or under a scheduler: ask for a GPU, the device cgroup forbids it now.",
    ),
    "no_devices": (
        "Does lspci | grep -i nvidia show the GPU? If not, it has fallen off the bus or is off.",
        "In a container: is a GPU passed in? CUDA_VISIBLE_DEVICES does not matter here.",
    ),
}
_ANYTHING = ("Try nvidia-smi; its message and dmesg | grep -i nvrm tell more.",)


def driver_panel(error: DriverError, width: int, glyphs: Glyphs) -> list[Line]:
    """Cause, the driver's own words and the next steps, wrapped."""
    room = max(12, width - 4)
    title = _TITLES.get(error.code, _TITLES["unknown"])
    lines = _block(f"! {title}", 1, room, "error")
    if not _says_the_same(title, error.message):
        lines += _block(foreign(error.message), 3, room - 2, "")
        lines += [((f"   NVML: {foreign(error.code)}", "dim"),)]
    lines += [()]
    lines += _steps(error, room)
    lines += [
        (),
        *_block("Host and processes below go on; the driver is tried again.", 1, room, "dim"),
    ]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _says_the_same(title: str, message: str) -> bool:
    """The driver's words add nothing: most words of the title, and hardly more than these."""
    words = {word for word in title.lower().split() if len(word) > 3}
    shared = words & set(message.lower().rstrip(".").split())
    return len(message) < len(title) + 12 and 3 * len(shared) >= 2 * len(words)


def _steps(error: DriverError, room: int) -> list[Line]:
    """The engine's own advice; where it has none, the table's."""
    advice = error.advice or _ADVICE.get(error.code, _ANYTHING)
    lines: list[Line] = [((" What to do", "label"),)]
    for number, step in enumerate(advice, start=1):
        lines += _numbered(number, wrapped(foreign(step), max(8, room - 5)))
    return lines


def _numbered(number: int, texts: Sequence[str]) -> list[Line]:
    first: Line = ((f"   {number}  ", "accent"), (texts[0], ""))
    return [first, *((("      ", ""), (text, "")) for text in texts[1:])]


def _block(text: str, indent: int, room: int, role: Role) -> list[Line]:
    return [((" " * indent + part, role),) for part in wrapped(text, max(8, room))]
