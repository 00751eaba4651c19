"""GPU core dumps: where a run has left one, and which kernel failed, as cuda-gdb reads it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from cockpit.model.text import clean

DEBUGGER = "cuda-gdb"
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
READ_S = 120.0
"""A dump names all modules of the process; of torch that is some hundred MiB."""
_EXCEPTION = re.compile(r"CUDA Exception: ([^\n]{1,120})")
_KERNEL = re.compile(r"^#0\s+(?:0x[0-9a-f]{1,16} in )?(\S.{0,300}?)<<<", re.M)


def newest(directory: str) -> str | None:
    """The last dump in the directory of a run's record; None: there is none."""
    try:
        found = [one for one in os.scandir(directory) if one.name.endswith(".nvcudmp")]
        return max(found, key=lambda one: one.stat().st_mtime).path if found else None
    except OSError:
        return None


def failure(path: str) -> str | None:
    """``Warp Illegal Address in scale``; None without cuda-gdb, or where it cannot tell."""
    program = shutil.which(DEBUGGER, path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))
    if program is None:
        return None
    argv = [program, "-nx", "-batch", "-iex", "set auto-load off"]
    argv += ["-ex", f"target cudacore {path}", "-ex", "bt 1"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=READ_S,
            cwd="/",
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read(done.stdout)


def read(text: str) -> str | None:
    """From what cuda-gdb prints."""
    exception, kernel = _EXCEPTION.search(text), _KERNEL.search(text)
    if exception is None:
        return None
    return clean(exception[1].strip() + (f" in {kernel[1].strip()}" if kernel else ""))


def by_hand(path: str) -> str:
    """What a person types to look into it."""
    return f"{DEBUGGER} -ex 'target cudacore {clean(path)}'"
