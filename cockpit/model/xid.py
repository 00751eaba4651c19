"""What NVIDIA's Xid codes mean, in plain words. Pure data, for events and for diagnosis.

Source: NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cockpit.model.event import Severity

XidOrigin = Literal["program", "hardware", "driver", "consequence", "notice"]


class Xid(NamedTuple):
    """One code."""

    meaning: str
    """A few words, lower case, without the number."""
    hint: str
    """What it usually comes from, or what to do; one clause without a full stop."""
    severity: Severity
    origin: XidOrigin


def _program(meaning: str, hint: str) -> Xid:
    return Xid(meaning, hint, "warning", "program")


def _hardware(meaning: str, hint: str) -> Xid:
    return Xid(meaning, hint, "error", "hardware")


_RESET = "stop the programs on it and reset the GPU"
_LINKS = "check both ends of the link, then reset the GPUs that it joins, or reboot"

XIDS: dict[int, Xid] = {
    8: _program("a kernel ran into the launch time-out", "restart the program"),
    13: _program(
        "exception in a kernel",
        "usually the program's own: an address or an instruction that is not allowed",
    ),
    31: _program(
        "memory page fault",
        "usually the program read or wrote outside its memory",
    ),
    32: _program("the driver's command buffer was corrupted", "restart the program"),
    38: Xid("driver firmware error", "update the driver if it comes again", "error", "driver"),
    43: Xid(
        "a channel was stopped",
        "follows another error of the same program, such as an assert in a kernel",
        "info",
        "consequence",
    ),
    44: Xid("graphics engine fault", "harmless when it comes alone", "info", "notice"),
    45: Xid(
        "the driver cleaned up after a program",
        "normal after a kill or after another Xid",
        "info",
        "consequence",
    ),
    46: _hardware("the GPU stopped processing", _RESET),
    48: _hardware(
        "uncorrectable memory error (double-bit ECC)",
        "stop the programs on it and reset the GPU; if Xid 64 follows, it has to be replaced",
    ),
    61: _hardware("an internal controller stopped", _RESET),
    62: _hardware("an internal controller halted", _RESET),
    63: Xid(
        "a bad memory row was taken out of use",
        "reset the GPU when it is idle, to bring the spare row in",
        "warning",
        "hardware",
    ),
    64: _hardware("a bad memory row could not be replaced", "take the GPU out of service"),
    68: Xid("video engine exception", "restart the program", "warning", "program"),
    69: _program("graphics engine class error", "restart the program"),
    74: _hardware("NVLink error", _LINKS),
    79: _hardware(
        "the GPU has fallen off the bus",
        "the machine has to be rebooted; then look at power, heat and the PCIe slot",
    ),
    92: Xid("many corrected memory errors", "watch whether the count grows", "warning", "hardware"),
    93: Xid("a configuration notice of the driver", "nothing to do", "info", "notice"),
    94: Xid(
        "uncorrectable memory error, contained to one program",
        "restart the program; reset the GPU when it is idle",
        "warning",
        "hardware",
    ),
    95: _hardware(
        "uncorrectable memory error, not contained",
        "every result on this GPU is suspect: stop the programs and reset it",
    ),
    109: _hardware("a context switch timed out", _RESET),
    110: _hardware("a security fault stopped the GPU", _RESET),
    119: _hardware(
        "the GPU's system processor (GSP) does not answer",
        "calls on it may block for minutes; reset the GPU, or reboot",
    ),
    120: _hardware("the GPU's system processor (GSP) failed", "reset the GPU, or reboot"),
    121: Xid("corrected error on the chip-to-chip link", "nothing to do", "info", "notice"),
    136: _hardware("the link to the CPU failed its training", _RESET),
    137: Xid(
        "NVLink reported a fault of a remote access",
        "usually another GPU's program caused it",
        "warning",
        "program",
    ),
    140: _hardware("uncorrectable error in the GPU", _RESET),
    143: _hardware("the GPU failed to start", _RESET),
    154: Xid(
        "the driver changed what it recommends for this GPU",
        "the kernel log names it: none, reset or reboot",
        "warning",
        "notice",
    ),
    155: _hardware("NVLink was lost", _LINKS),
    156: _hardware("resources of the GPU are gone until a reset", _RESET),
    158: _hardware("fatal time-out in the GPU", _RESET),
    **{code: _hardware("NVLink error", _LINKS) for code in range(144, 151)},
}
"""The codes that people meet; any other is :data:`UNKNOWN_XID`."""

UNKNOWN_XID = Xid(
    "an error that the driver reports", "look it up in NVIDIA's Xid catalogue", "warning", "notice"
)


def explain(code: int) -> Xid:
    """Never fails: an unlisted code has a general answer."""
    return XIDS.get(code, UNKNOWN_XID)
