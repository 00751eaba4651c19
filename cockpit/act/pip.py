"""pip, or uv where an environment has none: freeze, dry run with its report, install, remove.

Commands are lists of words; nothing passes a shell. What pip printed is data from outside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from cockpit.act import child
from cockpit.act.action import Console
from cockpit.act.child import Ended
from cockpit.act.interpreter import ASK_S, Interpreter, environment, new_enough
from cockpit.errors import CockpitError
from cockpit.model.text import clean

_UNREACHABLE = re.compile(
    r"connection broken by|ConnectionError|Could not fetch URL|Read timed out|ConnectTimeout"
    r"|Name or service not known|name resolution|ProxyError|SSLError|Connection refused"
    r"|error sending request|client error \(Connect\)|Failed to fetch",
    re.IGNORECASE,
)
_CHANGED = re.compile(r"^ ([+~-]) ([A-Za-z0-9._-]+)==(\S+)")
"""What ``uv pip install --dry-run`` prints for each package."""
_SOURCES = ("index-url", "extra-index-url", "find-links", "no-index")
_SOURCE_VARIABLES = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX")


@dataclass(frozen=True)
class Planned:
    """One package that a dry run would install."""

    name: str
    version: str
    size_bytes: int | None = None
    """Of its wheel, where it lies on this machine; None: not told."""

    @property
    def tag(self) -> str:
        """The local version: ``cu126`` of ``2.7.0+cu126``."""
        return self.version.partition("+")[2]


@dataclass(frozen=True)
class DryRun:
    """What a dry run came to."""

    ended: Ended
    installs: tuple[Planned, ...] = ()

    @property
    def unreachable(self) -> bool:
        """No index answered: nothing is known about what it has."""
        return not self.ended.ok and any(_UNREACHABLE.search(line) for line in self.ended.lines)

    def version(self, name: str) -> str | None:
        """That it would install."""
        return next((p.version for p in self.installs if p.name == name), None)


@dataclass(frozen=True)
class Pip:
    """The installer of one environment, and where its files are kept."""

    python: str
    folder: str
    """Private: logs and reports."""
    uv: str | None = None
    _environment: dict[str, str] = field(default_factory=environment, repr=False)

    def install(self, words: Sequence[str]) -> list[str]:
        """The exact command."""
        if self.uv is not None:
            return [self.uv, "pip", "install", "--python", self.python, *words]
        return [self.python, "-m", "pip", "install", *words]

    def remove(self, names: Sequence[str]) -> list[str]:
        """The exact command."""
        if self.uv is not None:
            return [self.uv, "pip", "uninstall", "--python", self.python, *names]
        return [self.python, "-m", "pip", "uninstall", "--yes", *names]

    def run(self, argv: Sequence[str], console: Console) -> Ended:
        """Install or remove; once files are being replaced, a cancel waits for the end."""
        return child.run(
            argv,
            os.path.join(self.folder, "install.log"),
            console,
            environment=self._environment,
            busy=_replaces,
        )

    def dry_run(self, words: Sequence[str], console: Console) -> DryRun:
        """Changes nothing, but may fill pip's cache. Raises CockpitError for no readable report."""
        log = os.path.join(self.folder, "dry-run.log")
        if self.uv is not None:
            argv = self.install(["--dry-run", *words])
            ended = child.run(argv, log, console, environment=self._environment, quiet=True)
            return DryRun(ended, _of_lines(ended.lines))
        report = os.path.join(self.folder, "report.json")
        argv = self.install(["--dry-run", "--retries", "1", "--report", report, *words])
        ended = child.run(argv, log, console, environment=self._environment, quiet=True)
        return DryRun(ended, _of_report(report) if ended.ok else ())

    def freeze(self) -> dict[str, str]:
        """Name → the line that would bring it back. Raises CockpitError."""
        return frozen_lines(self._ask(["freeze", "--all"] if self.uv is None else ["freeze"]))

    def inspect(self) -> str | None:
        """pip's JSON about all that is installed; None from uv, which has no such command."""
        return self._ask(["inspect"]) if self.uv is None else None

    def sources(self) -> tuple[str, ...]:
        """Where the user's configuration has packages come from; empty: the public index."""
        if self.uv is not None:
            found = ((name, os.environ.get(name)) for name in _SOURCE_VARIABLES)
            return tuple(f"{name}={value}" for name, value in found if value)
        pairs = (line.partition("=") for line in self._ask(["config", "list"]).splitlines())
        return tuple(
            f"{name}={value}" for name, _, value in pairs if name.rpartition(".")[2] in _SOURCES
        )

    def _ask(self, words: list[str]) -> str:
        argv = [self.python, "-m", "pip", *words]
        if self.uv is not None:
            argv = [self.uv, "pip", *words, "--python", self.python]
        try:
            ended = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=3 * ASK_S,
                cwd="/",
                env=self._environment,
                check=True,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            told = clean(" ".join(argv))
            raise CockpitError(f"`{told}` failed.") from error
        return ended.stdout


def pip_of(found: Interpreter, python: str, folder: str) -> Pip:
    """pip where the environment has one that knows dry runs, else uv."""
    own = found.pip is not None and new_enough(found.pip)
    return Pip(python=python, folder=folder, uv=None if own else shutil.which("uv"))


def frozen_lines(text: str) -> dict[str, str]:
    """Of ``pip freeze``: normalised name → line; editable ones by their ``#egg``."""
    found = {}
    for line in text.splitlines():
        name = re.match(r"[A-Za-z0-9._-]+(?===| @ )", line)
        egg = re.search(r"#egg=([A-Za-z0-9._-]+)", line)
        if name or egg:
            found[normalised(name[0] if name else egg[1] if egg else "")] = line.strip()
    return found


def normalised(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def masked(text: str) -> str:
    """A URL or setting without the password in it."""
    return re.sub(r"(?<=://)[^/@\s]+@", "…@", clean(text))


def _replaces(line: str) -> bool:
    """From here on pip removes old files and writes new ones."""
    return line.startswith(("Installing collected packages", "Attempting uninstall"))


def _of_report(path: str) -> tuple[Planned, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["install"]
        return tuple(
            Planned(
                normalised(row["metadata"]["name"]),
                row["metadata"]["version"],
                _size(row["download_info"]["url"]),
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CockpitError("pip's dry run gave no readable report: nothing was changed.") from error


def _of_lines(lines: Sequence[str]) -> tuple[Planned, ...]:
    found = (_CHANGED.match(line) for line in lines)
    return tuple(Planned(normalised(m[2]), m[3]) for m in found if m and m[1] != "-")


def _size(url: str) -> int | None:
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    try:
        return os.stat(unquote(parts.path)).st_size
    except OSError:
        return None
