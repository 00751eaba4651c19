"""LD_LIBRARY_PATH: which of its folders have CUDA libraries that do not belong to the environment.

They are found before the ones that torch brings along: cuDNN of another version, the stub of the
driver, a cuda-compat on a GPU that does not support it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

_CUDA = re.compile(
    r"lib(?:cudart|cudnn\w*|cublas\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|nccl|nvrtc[\w-]*"
    r"|nvJitLink|cupti|nvToolsExt)\.so(?:\.[\d.]+)?"
)
_DRIVER = re.compile(r"libcuda\.so(?:\.[\d.]+)?")
MAX_NAMES = 20_000


class LibraryFolder(NamedTuple):
    """One entry of the path."""

    path: str
    libraries: tuple[str, ...]
    """CUDA libraries in it, sorted."""
    foreign: str | None
    """Why it should not be there; None: it may stay."""


def folders(value: str, prefix: str | None, cwd: str | None = None) -> tuple[LibraryFolder, ...]:
    """Each entry. ``prefix`` is the Python environment, whose own libraries belong there; a whole
    system (``/usr``) is none. ``cwd`` is where the run is: relative entries begin there."""
    own = prefix if prefix is not None and _is_environment(prefix) else None
    return tuple(_folder(path, own, cwd) for path in value.split(":"))


def kept(found: Sequence[LibraryFolder]) -> str | None:
    """The path with what may stay, in its order; None: nothing is left, unset it."""
    return ":".join(folder.path for folder in found if folder.foreign is None) or None


def _is_environment(prefix: str) -> bool:
    return any(os.path.exists(os.path.join(prefix, one)) for one in ("pyvenv.cfg", "conda-meta"))


def _folder(path: str, prefix: str | None, cwd: str | None) -> LibraryFolder:
    if not path:
        return LibraryFolder(path, (), "an empty entry means the working directory")
    place = path if cwd is None else os.path.join(cwd, path)
    if not os.path.isabs(place):
        return LibraryFolder(path, (), None)
    try:
        names = sorted(os.listdir(place)[:MAX_NAMES])
    except OSError:
        return LibraryFolder(path, (), None)  # not there: it finds nothing
    cuda = tuple(name for name in names if _CUDA.fullmatch(name))
    driver = tuple(name for name in names if _DRIVER.fullmatch(name))
    return LibraryFolder(path, (*cuda, *driver), _foreign(place, cuda, driver, prefix))


def _foreign(
    path: str, cuda: tuple[str, ...], driver: tuple[str, ...], prefix: str | None
) -> str | None:
    real = os.path.realpath(path)
    parts = real.split("/")
    if driver and "stubs" in parts:
        return "the stub of the driver's library: programs are linked with it, none can run with it"
    if driver and "compat" in parts:
        return "cuda-compat: it works on data-centre GPUs only, and not with newer drivers"
    if not cuda or (prefix and f"{real}/".startswith(os.path.realpath(prefix).rstrip("/") + "/")):
        return None
    if driver:
        return None  # the driver's own folder, as containers mount it
    return f"{', '.join(cuda[:3])}{' …' if len(cuda) > 3 else ''} in front of torch's own"
