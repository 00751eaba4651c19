"""The errors that cross rooms.

    CockpitError
    ├── UsageError        wrong argument or config file             exit 2
    ├── NoDriverError     no usable NVIDIA driver or GPU            exit 3
    ├── RefusedError      not permitted, or refused by policy       exit 4
    ├── TargetGoneError   the process does not exist (any more)     exit 5
    └── LinkError         the engine ended, or speaks another protocol   exit 1

Each message is one sentence that a person can act on.
"""

from __future__ import annotations


class CockpitError(Exception):
    """Base of all; ``exit_code`` is what a command ends with."""

    exit_code = 1


class UsageError(CockpitError):
    """A wrong argument, or a config file that cannot be read."""

    exit_code = 2


class NoDriverError(CockpitError):
    """NVML cannot be used, or there is no device."""

    exit_code = 3


class RefusedError(CockpitError):
    """The policy or the kernel says no."""

    exit_code = 4


class TargetGoneError(CockpitError):
    """The process does not exist, or its pid belongs to a later process."""

    exit_code = 5


class LinkError(CockpitError):
    """The engine ended unasked, or speaks another protocol."""
