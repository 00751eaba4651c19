"""LD_LIBRARY_PATH: which of its folders have CUDA libraries that do not belong to the environment.

They are found before the ones that torch brings along: cuDNN of another version, the stub of the
driver, a cuda-compat on a GPU that does not support it.
"""

from __future__ import annotations

import os
import re
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


def folders(value: str, prefix: str | None) -> tuple[LibraryFolder, ...]:
    """Each entry; ``prefix`` is the Python environment, whose own libraries belong there."""
    return tuple(_folder(path, prefix) for path in value.split(":"))


def without_foreign(value: str, prefix: str | None) -> str | None:
    """The path with what may stay, in its order; None: nothing is left, unset it."""
    kept = [folder.path for folder in folders(value, prefix) if folder.foreign is None]
    return ":".join(kept) or None


def _folder(path: str, prefix: str | None) -> LibraryFolder:
    if not path:
        return LibraryFolder(path, (), "an empty entry means the working directory")
    try:
        names = sorted(os.listdir(path)[:MAX_NAMES])
    except OSError:
        return LibraryFolder(path, (), None)  # not there: it finds nothing
    cuda = tuple(name for name in names if _CUDA.fullmatch(name))
    driver = tuple(name for name in names if _DRIVER.fullmatch(name))
    return LibraryFolder(path, (*cuda, *driver), _foreign(path, cuda, driver, prefix))


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
