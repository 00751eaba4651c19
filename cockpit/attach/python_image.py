"""The CPython in another process: which version, and where the functions lie that we call.

Reads /proc/PID/maps and the files named there, through /proc/PID/root: nothing of the process
itself is read or stopped. What may be done with the finding is said in ``preflight``.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from cockpit.attach.elf import EM_AARCH64, EM_X86_64, Image, NotElfError, read_image

CALLS = ("Py_AddPendingCall", "PyRun_SimpleString")
_AGES = (
    ("PyModule_AddObjectRef", (3, 10)),
    ("PyThreadState_GetFrame", (3, 9)),
    ("PyCode_NewWithPosOnlyArgs", (3, 8)),
)
"""Functions that came with a version: 3.11 was the first to export Py_Version."""
_FREE_THREADED = "_Py_DecRefShared"
"""Object/object.c: exported only where Py_GIL_DISABLED is defined."""
_WANTED = (*CALLS, "Py_Version", _FREE_THREADED, *(name for name, _ in _AGES))
_MACHINES = {EM_X86_64: "x86-64", EM_AARCH64: "aarch64"}
_LIBRARY = re.compile(r"libpython3[^/]*\.so[^/]*$")


@dataclass(frozen=True, slots=True)
class Python:
    """One CPython, mapped into a process."""

    path: str
    """As the process sees it."""
    version: tuple[int, int] | None
    """None: older than 3.8, or not to be told."""
    free_threaded: bool
    machine: str
    """``x86-64``, ``aarch64``, or the number of the ELF header."""
    addresses: dict[str, int]
    """Where the functions of CALLS lie in the process."""
    first_bytes: dict[str, bytes]
    """How their code begins in the file: what must also stand in memory, else the file on disk
    is not the one that was mapped."""

    @property
    def version_text(self) -> str:
        """``3.12``, ``3.13t`` or ``unknown``."""
        if self.version is None:
            return "unknown"
        return f"{self.version[0]}.{self.version[1]}" + ("t" if self.free_threaded else "")


def find_python(pid: int, proc: str = "/proc") -> Python | None:
    """None: no CPython with exported symbols. Raises OSError where maps cannot be read."""
    for path, mapped_at, source in _candidates(pid, proc):
        try:
            with open(source, "rb") as file:
                found = _read(file, path, mapped_at)
        except (OSError, NotElfError, struct.error):
            continue  # replaced on disk, or no program at all: perhaps the next one is it
        if found is not None:
            return found
    return None


def looks_like_python(pid: int, proc: str = "/proc") -> bool:
    """By the names of its program and libraries, whatever they export."""
    try:
        names = [os.readlink(f"{proc}/{pid}/exe"), *mapped_files(pid, proc)]
    except OSError:
        return False
    is_program = os.path.basename(names[0]).startswith("python3")
    return is_program or any(_LIBRARY.search(name) for name in names)


def mapped_files(pid: int, proc: str = "/proc") -> dict[str, int]:
    """Each mapped file and its lowest address, in the order of addresses."""
    found: dict[str, int] = {}
    with open(f"{proc}/{pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                found.setdefault(fields[5], int(fields[0].partition("-")[0], 16))
    return found


def _candidates(pid: int, proc: str) -> Iterator[tuple[str, int, str]]:
    # The executable first: a static CPython may have loaded a libpython that it does not use.
    # /proc/PID/exe opens it even when it was deleted or lies in another mount namespace.
    files = mapped_files(pid, proc)
    executable = os.readlink(f"{proc}/{pid}/exe")
    if executable in files:
        yield executable, files[executable], f"{proc}/{pid}/exe"
    for path, mapped_at in files.items():
        if _LIBRARY.search(path):
            yield path, mapped_at, f"{proc}/{pid}/root{path}"


def _read(file: BinaryIO, path: str, mapped_at: int) -> Python | None:
    image = read_image(file, _WANTED)
    if not all(name in image.symbols for name in CALLS):
        return None
    bias = image.bias(mapped_at)
    return Python(
        path=path,
        version=_version(file, image),
        free_threaded=_FREE_THREADED in image.symbols,
        machine=_MACHINES.get(image.machine, str(image.machine)),
        addresses={name: image.symbols[name] + bias for name in CALLS},
        first_bytes={name: _bytes_at(file, image, image.symbols[name], 16) for name in CALLS},
    )


def _version(file: BinaryIO, image: Image) -> tuple[int, int] | None:
    if "Py_Version" in image.symbols:
        raw = _bytes_at(file, image, image.symbols["Py_Version"], 8)
        number = int.from_bytes(raw, "little")
        return (number >> 24 & 0xFF, number >> 16 & 0xFF) if number >> 24 == 3 else None
    return next((version for name, version in _AGES if name in image.symbols), None)


def _bytes_at(file: BinaryIO, image: Image, address: int, size: int) -> bytes:
    offset = image.offset_of(address)
    if offset is None:
        return b""
    file.seek(offset)
    return file.read(size)
