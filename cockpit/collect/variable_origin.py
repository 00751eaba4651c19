"""Where an environment variable comes from: lines of start-up files, and the process that had it
first. Only reads; says what stands there, changes nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cockpit import procfs
from cockpit.procfs import Gap

MAX_BYTES = 1 << 20
MAX_FILES = 200
MAX_LINE = 4000
MAX_ANCESTORS = 64
_HOME_FILES = (
    *(".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_aliases", ".zshenv"),
    *(".zprofile", ".zshrc", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".config/fish/config.fish"),
    *(".pam_environment", ".config/environment.d", ".config/fish/conf.d", ".envrc"),
    ".ssh/environment",
)
_SYSTEM_FILES = (
    *("/etc/environment", "/etc/environment.d", "/etc/profile", "/etc/profile.d"),
    *("/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv", "/etc/zsh/zshrc", "/etc/zshrc"),
)
_ENVIRONMENT_FILES = ("bin/activate", "etc/conda/activate.d", "conda-meta/state")
_SOURCED = re.compile(r"(?:^|[;&]\s*)(?:source|\.)\s+[\"']?([~$/\w{}.-][^\s;&\"']*)")
_EXPORTING = (
    r"(?:export\s+|(?:declare|typeset)\s+-\w*x\w*\s+)?{name}=",
    r"setenv\s+{name}\s",
    r"set\s+(?:-\w+\s+)+{name}\s",
    r"unset\s+(?:-v\s+)?{name}\b",
    r"{name}\s+(?:DEFAULT|OVERRIDE)=",
)


class Origin(NamedTuple):
    """A line of a start-up file that sets, or unsets, the variable."""

    name: str
    path: str
    line: int
    """Counted from 1."""
    text: str
    """Data from outside: clean it."""


class Bearer(NamedTuple):
    """The outermost ancestor that was started with this value."""

    pid: int
    name: str
    """Of its program; data from outside."""
    certain: bool
    """Its own parent was seen to lack the value."""


def origins(
    names: Sequence[str],
    home: str,
    *,
    prefix: str | None = None,
    cwd: str | None = None,
    system: Sequence[str] = _SYSTEM_FILES,
) -> tuple[Origin, ...]:
    """Lines in the start-up files of the home, of the system, of the Python environment
    (``prefix``) and of the working directory (.envrc), in this order, and in what they source."""
    places = [os.path.join(home, name) for name in _HOME_FILES] + list(system)
    if prefix is not None:
        places += [os.path.join(prefix, name) for name in _ENVIRONMENT_FILES]
    if cwd is not None:
        places += [os.path.join(cwd, ".envrc"), os.path.join(cwd, ".env")]
    pattern = _pattern(names)
    found: list[Origin] = []
    queue, seen = [path for place in places for path in _files(place)], set[str]()
    while queue and len(seen) < MAX_FILES:
        path = queue.pop(0)
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            queue += _look(path, home, pattern, found)
    return tuple(found)


def first_bearer(pid: int, name: str, value: str, root: str = "/proc") -> Bearer | None:
    """Who handed the value down to this process; None: it has another one, or hides it."""
    mine = procfs.environment(root, pid)
    if isinstance(mine, Gap) or mine.get(name) != value:
        return None
    bearer = pid
    for _ in range(MAX_ANCESTORS):
        stat_ = procfs.stat(root, bearer)
        if isinstance(stat_, Gap):
            return None
        above = procfs.environment(root, stat_.ppid)
        if isinstance(above, Gap) or above.get(name) != value:
            return Bearer(bearer, stat_.name, not isinstance(above, Gap))
        bearer = stat_.ppid
    return None


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    either = "(?P<name>" + "|".join(map(re.escape, names)) + ")"
    forms = [form.format(name="(?:" + "|".join(map(re.escape, names)) + ")") for form in _EXPORTING]
    return re.compile(rf"(?:^|[;&]\s*)(?=(?:{'|'.join(forms)})).*?{either}")


def _look(path: str, home: str, pattern: re.Pattern[str], found: list[Origin]) -> list[str]:
    """Adds what the file says; the files that it sources."""
    sourced = []
    for number, line in enumerate(_lines(path), 1):
        text = line.strip()
        if text.startswith("#"):
            continue
        match = pattern.search(text[:MAX_LINE])
        if match:
            found.append(Origin(match["name"], path, number, text[:300]))
        for one in _SOURCED.finditer(text[:MAX_LINE]):
            sourced += _files(_expanded(one[1], home, path))
    return sourced


def _expanded(path: str, home: str, by: str) -> str:
    path = re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/)", lambda _: home, path)
    return path if path.startswith("/") else os.path.join(os.path.dirname(by), path)


def _files(place: str) -> list[str]:
    try:
        mode = os.stat(place).st_mode
        if stat.S_ISDIR(mode):
            names = sorted(os.listdir(place))[:50]
            return [p for p in (os.path.join(place, n) for n in names) if os.path.isfile(p)]
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return []
    return [place] if stat.S_ISREG(mode) else []


def _lines(path: str) -> Iterator[str]:
    raw = procfs.read_long(path, MAX_BYTES)
    if not isinstance(raw, Gap):
        yield from procfs.text(raw).split("\n")
