"""Which processes have /dev/nvidia* open, whether NVML lists them or not.

A scan reads every open file of every process that we may look into: 1 to 2 µs a file. It runs on
a thread of its own, only when wanted, in small steps, and never takes more than 1 % of the time.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cockpit import procfs
from cockpit.procfs import Gap, Stat

_log = logging.getLogger(__name__)

PREFIX = "/dev/nvidia"
EVERY_S = 5.0
SHARE = 0.01
"""Of a core: a scan that took 100 ms is not repeated before 10 s have passed."""
STEP = 16
"""Processes between two pauses, so that the tick's thread is not kept from the interpreter."""

_GPU_FILE = re.compile(r"/nvidia(\d+)$")
_MINOR = re.compile(rb"Device Minor:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Holders:
    """Result of one scan."""

    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """pid → its open device files, sorted."""
    names: Mapping[int, str] = field(default_factory=dict)
    """pid → short name, for sentences."""
    looked_at: int = 0
    denied: int = 0
    """Processes of other users whose files we may not see."""


def scan(
    root: str = "/proc", prefix: str = PREFIX, *, skip: Iterable[int] = (), pause_s: float = 0.0
) -> Holders:
    """Looks once. Processes in ``skip`` are left out."""
    files: dict[int, tuple[str, ...]] = {}
    names: dict[int, str] = {}
    denied = looked_at = 0
    left_out = set(skip)
    for pid in procfs.pids(root):
        if pid in left_out:
            continue
        found = procfs.open_files(root, pid, prefix)
        if isinstance(found, Gap):
            denied += found.reason == "no_permission"
            continue
        looked_at += 1
        if found and isinstance(stat := procfs.stat(root, pid), Stat):
            files[pid], names[pid] = found, stat.name
        if pause_s and looked_at % STEP == 0:
            time.sleep(pause_s)
    return Holders(files, names, looked_at, denied)


def minors_held(files: Iterable[str]) -> frozenset[int]:
    """Minor numbers of the GPUs among device files; nvidiactl and nvidia-uvm name none."""
    return frozenset(int(match[1]) for name in files if (match := _GPU_FILE.search(name)))


def device_minors(root: str = "/proc") -> dict[str, int]:
    """PCI bus id (lower case) → N of /dev/nvidiaN, from /proc/driver/nvidia/gpus."""
    folder = f"{root}/driver/nvidia/gpus"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    minors: dict[str, int] = {}
    for name in names:
        raw = procfs.read(f"{folder}/{name}/information")
        match = None if isinstance(raw, Gap) else _MINOR.search(raw)
        if match:
            minors[name.lower()] = int(match[1])
    return minors


class HolderScan:
    """Scans in the background while somebody wants it."""

    def __init__(
        self, root: str = "/proc", prefix: str = PREFIX, *, every_s: float = EVERY_S
    ) -> None:
        self._root = root
        self._prefix = prefix
        self._every_s = every_s
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._latest: Holders | None = None
        self._thread = threading.Thread(target=self._run, name="holders", daemon=True)

    def start(self) -> None:
        """Begins; scans nothing before it is wanted."""
        self._thread.start()

    def want(self, wanted: bool) -> None:
        """Whether anybody looks at the result. The last one stays."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def stop(self) -> None:
        """Ends the thread, at the latest after the scan that it is in."""
        self._stopped.set()
        self._wanted.set()

    def latest(self) -> Mapping[int, tuple[str, ...]]:
        """pid → device files of the last scan; empty before the first."""
        return self._latest.files if self._latest else {}

    def holders(self) -> Holders | None:
        """The whole last result; None: no scan has ended yet."""
        return self._latest

    def _run(self) -> None:
        own = os.getpid()
        while True:
            self._wanted.wait()
            if self._stopped.is_set():
                return
            begin = time.thread_time()
            try:
                self._latest = scan(self._root, self._prefix, skip=(own,), pause_s=0.002)
            except Exception:  # noqa: BLE001 - a surprise in one scan must not end them for good
                _log.exception("looking for the holders of device files failed")
            cost = time.thread_time() - begin
            self._stopped.wait(max(self._every_s, cost / SHARE))
