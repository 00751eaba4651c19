"""Which Python a running process uses: that of its environment, not the one that a link leads to.

The kernel's ``exe`` names the base interpreter of a venv, with which pip would change the wrong
place. So the ways of calling it are tried, and taken where they lead to that very file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from cockpit import procfs
from cockpit.act.interpreter import MAPS_BYTES
from cockpit.errors import CockpitError, RefusedError, TargetGoneError
from cockpit.model.text import clean
from cockpit.procfs import Gap

_LOADED = re.compile(rb" (/[^\n]*?)/lib/python3[\d.]*/site-packages/torch/")
"""Where its torch was loaded from: the environment, whatever argv says."""


def python_of(pid: int, root: str = "/proc") -> str:
    """An absolute path. Raises TargetGoneError, RefusedError (container), CockpitError."""
    exe = procfs.read_link(f"{root}/{pid}/exe")
    if isinstance(exe, Gap):
        if exe.reason == "gone":
            raise TargetGoneError(f"pid {pid} has ended.")
        raise RefusedError(f"The interpreter of pid {pid} cannot be seen: it belongs to another.")
    if _elsewhere(pid, root):
        raise RefusedError(
            f"pid {pid} runs in a container: its environment has to be changed inside of it."
        )
    if not os.path.basename(exe).startswith(("python", "pypy")):
        raise CockpitError(f"pid {pid} is no Python, but {clean(exe)}.")
    found = (one for one in _callings(pid, root) if _same_file(one, exe))
    return next(found, exe)


def _callings(pid: int, root: str) -> Iterator[str]:
    maps = procfs.read_long(f"{root}/{pid}/maps", MAPS_BYTES)
    loaded = None if isinstance(maps, Gap) else _LOADED.search(maps)
    if loaded:
        yield f"{procfs.text(loaded[1])}/bin/python"
    environment = procfs.environment(root, pid)
    variables = {} if isinstance(environment, Gap) else environment
    command = procfs.command(root, pid)
    if not isinstance(command, Gap) and command and command[0]:
        yield from _first_word(command[0], procfs.read_link(f"{root}/{pid}/cwd"), variables)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name, "").startswith("/"):
            yield os.path.join(variables[name], "bin", "python")


def _first_word(word: str, cwd: str | Gap, variables: dict[str, str]) -> Iterator[str]:
    if word.startswith("/"):
        yield word
    elif "/" in word and not isinstance(cwd, Gap):
        yield os.path.normpath(os.path.join(cwd, word))
    elif "/" not in word:
        found = shutil.which(word, path=variables.get("PATH", ""))
        if found is not None and found.startswith("/"):
            yield found


def _same_file(path: str, exe: str) -> bool:
    try:
        return os.path.samefile(path, exe)
    except OSError:
        return False


def _elsewhere(pid: int, root: str) -> bool:
    """Its root directory is not ours: what a path means to it is another file here."""
    try:
        theirs, ours = os.stat(f"{root}/{pid}/root/"), os.stat("/")
    except OSError:
        return False  # not ours to look at: `interpreter.ask` refuses by its owner
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)
