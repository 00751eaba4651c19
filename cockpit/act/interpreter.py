"""The Python environment that a run uses: what it is, who owns it, whether pip may act on it.

Asked of the interpreter itself, by a short program of the standard library. Changes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import msgspec
from msgspec import Struct

from cockpit import procfs
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.text import clean
from cockpit.model.wheel import FAMILY
from cockpit.procfs import Gap, user_name

ASK_S = 20.0
"""A cold interpreter on a network disk takes seconds."""
MAPS_BYTES = 8 << 20
OLDEST_PIP = (22, 2)
"""The first with ``--dry-run``, ``--report`` and ``inspect``. https://pip.pypa.io/en/stable/news/"""
_REDIRECTING = frozenset(
    f"PIP_{name}"
    for name in (
        *("USER", "TARGET", "PREFIX", "ROOT", "REPORT", "DRY_RUN", "QUIET", "VERBOSE"),
        *("UPGRADE", "FORCE_REINSTALL", "IGNORE_INSTALLED", "NO_DEPS", "REQUIREMENT", "PYTHON"),
    )
) | {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX"}

_PROGRAM = """
import json, os, sys, sysconfig
from importlib import metadata, util
def place(name):
    try:
        spec = util.find_spec(name)
    except Exception:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else ()
    return os.path.realpath(places[0]) if places else None
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
def installer(name):
    try:
        return (metadata.distribution(name).read_text("INSTALLER") or "").strip()
    except metadata.PackageNotFoundError:
        return ""
marked = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({
    "prefix": sys.prefix,
    "python": list(sys.version_info[:2]),
    "machine": os.uname().machine,
    "site": os.path.realpath(sysconfig.get_path("platlib")),
    "torch_folder": place("torch"),
    "torch_installer": installer("torch"),
    "versions": {name: one for name, one in found.items() if one},
    "pip": version("pip"),
    "managed": sys.prefix == sys.base_prefix and os.path.exists(marked),
    "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
}))
"""


class Interpreter(Struct, frozen=True, kw_only=True):
    """What an interpreter says of its environment."""

    prefix: str
    python: tuple[int, int]
    machine: str
    site: str
    """Where pip would put compiled packages."""
    torch_folder: str | None
    torch_installer: str
    """``pip``, ``uv``, ``conda``; empty: not told."""
    versions: dict[str, str]
    """Of torch, torchvision, torchaudio, those that are there."""
    pip: str | None
    managed: bool
    """Marked EXTERNALLY-MANAGED: the distribution's own (PEP 668)."""
    conda: bool

    @property
    def name(self) -> str:
        """The environment's directory name: what a person types to confirm. The whole path where
        that is only a version, as pyenv and uv call their Pythons."""
        name = os.path.basename(self.prefix.rstrip("/"))
        return self.prefix if re.fullmatch(r"[\d.]*", name) else name


def ask(python: str, uid: int) -> Interpreter:
    """Run it and hear. Raises RefusedError before running what another user could have written.

    ``uid`` is the run's owner. Raises CockpitError when the interpreter does not answer.
    """
    own = os.geteuid()
    if uid != own:
        raise RefusedError(
            f"The run belongs to {user_name(uid)}: only a cockpit of that user may change "
            "its environment."
        )
    refuse_foreign(python)
    try:
        ended = subprocess.run(
            [python, "-c", _PROGRAM, *FAMILY],
            capture_output=True,
            timeout=ASK_S,
            cwd="/",
            env=environment(),
            check=True,
            start_new_session=True,
        )
        return msgspec.json.decode(ended.stdout, type=Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise CockpitError(f"{clean(python)} does not tell about itself: {_why(error)}.") from error


def refuse_foreign(python: str) -> None:
    """An interpreter, or its environment, of a third user is not run. Raises RefusedError."""
    folder = os.path.dirname(os.path.dirname(python))
    for path in (python, os.path.realpath(python), folder):
        try:
            owner = os.lstat(path).st_uid
        except OSError as error:
            raise RefusedError(f"{clean(path)} cannot be looked at: {error.strerror}.") from error
        if owner not in (0, os.geteuid()):
            raise RefusedError(
                f"{clean(path)} belongs to {user_name(owner)}: only a cockpit of that user "
                "may change that environment."
            )


def refusal(found: Interpreter, python: str) -> str | None:
    """Why nothing may be installed into it, as a sentence; None: it may."""
    shown = clean(found.prefix)
    if found.managed:
        return (
            f"{clean(python)} is the system's own Python (EXTERNALLY-MANAGED): pip does not touch "
            "it. Make an environment (python3 -m venv DIR) and start the run with its Python."
        )
    if found.conda and found.torch_installer == "conda":
        return f"torch in {shown} is conda's own: conda has to change it, pip would break it."
    owner = os.stat(found.site).st_uid if os.path.isdir(found.site) else None
    if owner != os.geteuid():
        name = "nobody" if owner is None else user_name(owner)
        return f"{shown} belongs to {name}: only a cockpit of that user may change it."
    if not os.access(found.site, os.W_OK):
        return f"{clean(found.site)} cannot be written."
    if found.torch_folder and os.path.dirname(found.torch_folder) != found.site:
        return (
            f"torch is loaded from {clean(found.torch_folder)}, outside of {shown}: "
            "what pip installs into the environment would not be used."
        )
    return _no_tool(found, python)


def _no_tool(found: Interpreter, python: str) -> str | None:
    if shutil.which("uv") and (found.pip is None or not new_enough(found.pip)):
        return None
    if found.pip is None:
        return f"There is no pip in {clean(found.prefix)}: {clean(python)} -m ensurepip adds it."
    if not new_enough(found.pip):
        return (
            f"pip {clean(found.pip)} knows no dry run: update it first with "
            f"{clean(python)} -m pip install --upgrade pip."
        )
    return None


def new_enough(pip: str) -> bool:
    """It has a dry run with a report."""
    parts = pip.split(".")[:2]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= OLDEST_PIP


def environment() -> dict[str, str]:
    """Ours for children, without what would bend an interpreter or send pip elsewhere.

    Index, proxy and certificate settings stay: they are the user's.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _REDIRECTING}
    return {
        **kept,
        "PYTHONUNBUFFERED": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "NO_COLOR": "1",
    }


def users_of(folder: str, root: str = "/proc") -> tuple[int, ...]:
    """Processes that have files of this folder mapped; those of others are not seen."""
    wanted = folder.rstrip("/").encode() + b"/"
    own = os.getpid()
    found = []
    for pid in procfs.pids(root):
        maps = procfs.read_long(f"{root}/{pid}/maps", MAPS_BYTES) if pid != own else Gap("self")
        if not isinstance(maps, Gap) and wanted in maps:
            found.append(pid)
    return tuple(sorted(found))


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {ASK_S:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        last = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-1:]
        return clean(last[0])[:200] if last else f"it ended with status {error.returncode}"
    return clean(str(error))[:200]
