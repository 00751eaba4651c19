"""The names of what an attach leaves in /tmp: a script until it runs, a reason until it is read.

``cockpit-attach-NAMESPACE-PID-TICKS-RANDOM.py`` (or ``.why``): the pid namespace in which that pid
was seen, the pid, and when that process began. So whoever finds one that is left can tell whether
its process may still run it. A script must not be taken from a living process: CPython 3.14 would
print that it cannot open it.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass

from cockpit import procfs
from cockpit.attach.target import Target

FOLDER = "/tmp"
_START = "cockpit-attach-"
_NAME = re.compile(_START + r"(\d+)-(\d+)-(\d+)-[A-Za-z0-9_]+\.(?:py|why)")


@dataclass(frozen=True, slots=True)
class Addressee:
    """The process that a file is for."""

    namespace: int
    pid: int
    start_ticks: int

    def has_ended(self) -> bool:
        """For certain: False where it may be a process of another namespace, or cannot be seen."""
        if self.namespace == 0 or self.namespace != _namespace():
            return False
        found = procfs.stat("/proc", self.pid)
        if isinstance(found, procfs.Gap):
            return found.reason == "gone"
        return found.start_ticks != self.start_ticks


def prefix(target: Target) -> str:
    """Of a file's name; what follows is random, and the ending."""
    return f"{_START}{_namespace()}-{target.pid}-{target.start_ticks}-"


def new_path(target: Target, ending: str) -> str:
    """As the target sees it; ``ending`` is py or why."""
    return f"{FOLDER}/{prefix(target)}{secrets.token_hex(8)}.{ending}"


def addressee(name: str) -> Addressee | None:
    """None where the name is none of these."""
    found = _NAME.fullmatch(name)
    return Addressee(*(int(number) for number in found.groups())) if found else None


def _namespace() -> int:
    """The number of our pid namespace; 0: unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
