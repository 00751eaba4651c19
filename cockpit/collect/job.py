"""Whose Python is examined: interpreter, owner, environment and root of a process, of a path, or
of the user's PATH. Reads only; nothing is started here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from cockpit import as_owner, procfs
from cockpit.as_owner import Owner
from cockpit.collect.host import container_kind
from cockpit.collect.owners import container_of
from cockpit.errors import RefusedError, TargetGoneError, UsageError
from cockpit.model.checkup_facts import JobFacts
from cockpit.model.text import clean
from cockpit.procfs import Gap

TOLD = re.compile(
    r"(?:CUDA_\w+|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES)|NCCL_\w+|LD_LIBRARY_PATH"
    r"|SLURM_JOB_GPUS|PYTORCH_(?:CUDA_ALLOC_CONF|ALLOC_CONF|NVML_BASED_CUDA_CHECK))$"
)
"""Variables that a checkup may print; all others stay where they are."""
KEPT_FOR_OTHERS = re.compile(
    r"(?:PATH|LANG|LC_ALL|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|CUDA_\w+|NVIDIA_\w+)$"
)
"""Of root's environment, where another user's interpreter is run as that user."""
OURS = re.compile(r"COCKPIT_\w+$|PYTHONINSPECT$|CUDA_(?:ENABLE_COREDUMP|COREDUMP)_\w+$")
"""Not passed on: a probe is no run to be watched, waits for nobody, and leaves no core."""
BOOTSTRAP = "/cockpit/agent/bootstrap"
"""End of the PYTHONPATH entry that ``cockpit run`` puts in front."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]*$")
_SITE = re.compile(rb" (/[^\n]*?)/lib(?:64)?/python\d[\d.]*/site-packages/")


@dataclass(frozen=True)
class Job:
    """How to start what is examined."""

    owner: Owner
    python: str | None
    why: str = ""
    """Where there is no interpreter: why."""
    pid: int | None = None
    start_ticks: int | None = None
    named: bool = True
    root: str = "/"
    """Its root directory as we reach it."""
    outside: bool = False
    """That is another file system than ours: nothing of it can be run from here."""
    own_devices: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    container: str | None = None
    cpu_s: float | None = None

    def facts(self) -> JobFacts:
        """What of it is told."""
        told = {name: value for name, value in self.environment.items() if TOLD.match(name)}
        return JobFacts(
            python=self.python,
            why=self.why,
            pid=self.pid,
            user=procfs.user_name(self.owner.uid),
            named=self.named,
            outside=self.outside,
            own_devices=self.own_devices,
            container=self.container,
            cpu_s=self.cpu_s,
            variables=told,
        )


def of_process(pid: int, start_ticks: int | None = None, proc: str = "/proc") -> Job:
    """Raises TargetGoneError, RefusedError."""
    stat = procfs.stat(proc, pid)
    if isinstance(stat, Gap) or start_ticks not in (None, stat.start_ticks):
        raise TargetGoneError(f"There is no process {pid} (any more).")
    owner = as_owner.of_process(pid, proc)
    if owner is None:
        raise RefusedError(
            f"pid {pid} does not run as one user alone: its interpreter is not started by us."
        )
    environment = procfs.environment(proc, pid, 1 << 20)
    if not as_owner.may_run_as(owner) or isinstance(environment, Gap):
        who = procfs.user_name(owner.uid)
        raise RefusedError(
            f"pid {pid} belongs to {who}: its interpreter and environment are examined as {who} "
            "only. Ask that user, or use sudo."
        )
    cwd = procfs.read_link(f"{proc}/{pid}/cwd")
    outside = not _same(f"{proc}/{pid}/root/", "/")
    python, why = (None, _outside(pid, proc)) if outside else _interpreter(pid, environment, proc)
    if python is not None and owner.uid == 0 and (writer := _writer(python)) is not None:
        why = f"pid {pid} runs {clean(python)} as root, which {writer} may change"
        python = None
    again = procfs.stat(proc, pid)
    if isinstance(again, Gap) or again.start_ticks != stat.start_ticks:
        raise TargetGoneError(f"Process {pid} ended while it was looked at.")
    return Job(
        owner=owner,
        python=python,
        why=why,
        pid=pid,
        start_ticks=stat.start_ticks,
        root=f"{proc}/{pid}/root",
        outside=outside,
        own_devices=not _same(f"{proc}/{pid}/root/dev/", "/dev/"),
        environment=passed_on(environment),
        cwd=cwd if isinstance(cwd, str) and not outside and os.path.isdir(cwd) else "/",
        container=_container(pid, environment, proc),
        cpu_s=stat.cpu_ticks / procfs.HZ,
    )


def of_path(python: str, environment: Mapping[str, str]) -> Job:
    """Raises UsageError for what is no program, RefusedError where nobody may run it."""
    if "/" in python:
        path: str | None = os.path.abspath(os.path.expanduser(python))
    else:
        path = shutil.which(python, path=environment.get("PATH"))
    if path is None or not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise UsageError(f"{clean(python)} is no program that can be run.")
    return _here(path, owner_of(path), environment)


def candidates(environment: Mapping[str, str]) -> Iterator[Job]:
    """The interpreters that the user might mean, the likeliest first, each once."""
    seen: set[str] = set()
    for path in _likely(environment):
        if path and path not in seen and os.access(path, os.X_OK):
            seen.add(path)
            try:
                job = of_path(path, environment)
            except (UsageError, RefusedError):
                continue  # the next one; a named one would have said why
            yield replace(job, named=False)


def nobody(environment: Mapping[str, str], why: str) -> Job:
    """No interpreter at all: the machine alone is examined."""
    return replace(_here(None, as_owner.ourselves(), environment), why=why, named=False)


def owner_of(path: str) -> Owner:
    """Who could change what would run: nobody but root, or one user. Raises RefusedError.

    Root must not run what another user may have written: the program, the folders above it, its
    virtual environment, and what the links point to are looked at.
    """
    uids = {uid for uid in _uids(path) | _uids(os.path.realpath(path)) if uid}
    if os.geteuid() != 0 or not uids:
        return as_owner.ourselves()
    owner = as_owner.of_account(uids.pop()) if len(uids) == 1 else None
    if owner is None:
        raise RefusedError(
            f"{clean(path)} belongs to several users or to none: root does not run it. "
            "Start `cockpit doctor` as the user who trains."
        )
    return owner


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a probe: as it is, without what is ours."""
    kept = {name: value for name, value in environment.items() if not OURS.match(name)}
    if "PYTHONPATH" in kept:
        # An empty entry, as `PYTHONPATH=$PYTHONPATH:/x` leaves one, is the working directory.
        entries = kept["PYTHONPATH"].split(os.pathsep)
        entries = [one for one in entries if one and not one.endswith(BOOTSTRAP)]
        kept["PYTHONPATH"] = os.pathsep.join(entries)
    return kept


def _here(path: str | None, owner: Owner, environment: Mapping[str, str]) -> Job:
    mine = owner.uid == os.geteuid()
    if not mine:
        environment = {n: v for n, v in environment.items() if KEPT_FOR_OTHERS.match(n)}
    return Job(
        owner=owner,
        python=path,
        environment=passed_on(environment),
        cwd=_directory() if mine else "/",
        container=container_kind(),
    )


def _directory() -> str:
    try:
        return os.getcwd() if os.path.isdir(".") else "/"
    except FileNotFoundError:  # deleted
        return "/"


def _likely(environment: Mapping[str, str]) -> Iterator[str | None]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            yield os.path.join(folder, "bin", "python")
    for name in ("python", "python3"):
        yield shutil.which(name, path=environment.get("PATH"))
    yield sys.executable


def _uids(path: str) -> set[int]:
    found: set[int] = set()
    venv = os.path.dirname(os.path.dirname(path))
    marks = [os.path.join(venv, name) for name in ("pyvenv.cfg", "lib")]
    here = path
    while here != "/":
        marks.append(here)
        here = os.path.dirname(here)
    for one in marks:
        try:
            found |= {os.lstat(one).st_uid, os.stat(one).st_uid}
        except OSError:
            continue  # no virtual environment; a program that is gone fails at its start
    return found


# -- the interpreter of a process


def _interpreter(pid: int, environment: Mapping[str, str], proc: str) -> tuple[str | None, str]:
    """Its path as it was called, for a virtual environment hangs on that; or why there is none."""
    exe = procfs.read_link(f"{proc}/{pid}/exe")
    if isinstance(exe, Gap):
        return None, f"the program of pid {pid} cannot be looked at ({exe.reason})"
    if exe.endswith(" (deleted)"):
        return None, f"the interpreter of pid {pid} was replaced or removed since it started"
    if not _PYTHON.match(os.path.basename(exe)):
        return None, f"pid {pid} runs {clean(os.path.basename(exe))}, which is no Python"
    for path in _called(pid, environment, proc):
        if path and _same(path, exe):
            return path, ""
    return exe, ""


def _called(pid: int, environment: Mapping[str, str], proc: str) -> Iterator[str | None]:
    argv = procfs.command(proc, pid)
    word = argv[0] if not isinstance(argv, Gap) and argv else ""
    cwd = procfs.read_link(f"{proc}/{pid}/cwd")
    if word.startswith("/"):
        yield word
    elif "/" in word and isinstance(cwd, str):
        yield os.path.join(cwd, word)
    elif word:
        yield shutil.which(word, path=environment.get("PATH"))
    # A program that set its title, such as a worker of Ray or vLLM, has no argv any more.
    maps = procfs.read_long(f"{proc}/{pid}/maps", 1 << 20)
    found = None if isinstance(maps, Gap) else _SITE.search(maps)
    for folder in (procfs.text(found[1]) if found else None, environment.get("VIRTUAL_ENV")):
        if folder:
            yield os.path.join(folder, "bin", "python")


def _writer(python: str) -> str | None:
    """Who but root could have written an interpreter that root's job runs."""
    try:
        owner = owner_of(python)
    except RefusedError:
        return "others"
    return None if owner.uid == 0 else procfs.user_name(owner.uid)


def _outside(pid: int, proc: str) -> str:
    """Not entered, also where we could: outside of its cgroup and without its limits the
    container's interpreter would be given our rights, which a container is there to withhold.
    """
    groups = procfs.read_long(f"{proc}/{pid}/cgroup", 16384)
    name = container_of("" if isinstance(groups, Gap) else procfs.text(groups), {})
    return (
        f"pid {pid} has a root file system of its own ({name or 'a container'}), which is not "
        "entered from outside"
    )


def _container(pid: int, environment: Mapping[str, str], proc: str) -> str | None:
    groups = procfs.read_long(f"{proc}/{pid}/cgroup", 16384)
    text = "" if isinstance(groups, Gap) else procfs.text(groups)
    return container_of(text, environment) or container_kind()


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
