"""How a run was started: from the record that ``cockpit run`` keeps, or from its process in /proc.

What the cockpit itself had put into the environment (the agent's path, the old record's directory)
is taken out again; ``cockpit run`` puts the new run's own there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from cockpit import procfs
from cockpit.act.command_words import NotUnderstoodError, find_program
from cockpit.act.identity import Subject, all_stats, look
from cockpit.act.job import Family
from cockpit.act.relaunch_plan import MARK
from cockpit.act.run_python import python_of
from cockpit.attach import run_record
from cockpit.attach import target as targets
from cockpit.attach.launch import name_of
from cockpit.attach.run_environment import BOOTSTRAP, DIRECTORY
from cockpit.attach.run_record import Meta, RunRecord, interpreter, load_run
from cockpit.collect.owners import container_of, slurm_of
from cockpit.engine.flow_subject import is_alive
from cockpit.errors import CockpitError, RefusedError, TargetGoneError
from cockpit.model.flow import FlowRequest
from cockpit.model.run_command import RunCommand
from cockpit.model.secret import HIDDEN
from cockpit.paths import state_directory
from cockpit.procfs import Gap

_PROC = "/proc"
COMMAND_LIMIT = 1 << 20
_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def command_of(request: FlowRequest, record: RunRecord | None) -> RunCommand | None:
    """Of the kept run, else as the user has typed it, else of the process; None: not known."""
    try:
        if record is not None:
            return from_record(record.directory)
        if request.command:
            return _typed_for(request)
        if request.pid is not None:
            return from_process(request.pid, request.start_ticks)
    except CockpitError:
        return None
    return None


def _typed_for(request: FlowRequest) -> RunCommand:
    """The user's words; where the process lives as well, it has to be ended before."""
    found = typed(request.command, request.cwd or os.getcwd())
    if not is_alive(request):
        return found
    assert request.pid is not None
    return replace(found, pid=request.pid, start_ticks=run_record.start_ticks(request.pid))


def from_record(directory: str) -> RunCommand:
    """Raises TargetGoneError where there is no record. The environment is without secrets, unless
    the run still lives: then it is read from its process."""
    record = load_run(directory)
    meta = record.meta
    if record.state == "running":
        living = _living(meta, directory)
        if living is not None:
            return living
    kept = {n: v for n, v in meta.environment.items() if HIDDEN not in v and n != MARK}
    return RunCommand(
        argv=meta.command,
        cwd=meta.cwd,
        uid=os.stat(directory).st_uid,
        source="record",
        environment=kept,
        unknown=tuple(n for n, v in meta.environment.items() if HIDDEN in v),
        interpreter=meta.python,
        pid=meta.pid if record.state == "running" else None,
        start_ticks=meta.start_ticks,
        slurm_job=_foreign_job(meta.environment),
        name=meta.name,
        directory=directory,
        refusal=_elsewhere(record.state, meta),
    )


def from_process(pid: int, start_ticks: int | None = None) -> RunCommand:
    """Of a living process; of a rank or a worker its launcher is taken.

    Raises TargetGoneError, and RefusedError where its environment may not be read.
    """
    subject = look(pid)
    if subject is None or start_ticks not in (None, subject.stat.start_ticks):
        raise TargetGoneError(f"pid {pid} has ended.")
    head = Family(all_stats()).head(subject)
    environment = _environment(head)
    directory = environment.get(DIRECTORY)
    if directory and _is_record_of(directory, head):
        return from_record(directory)
    return _of(head, _cleaned(environment, None))


def typed(argv: tuple[str, ...], cwd: str) -> RunCommand:
    """A command that the user gives; its environment is the cockpit's own."""
    return RunCommand(
        argv=argv,
        cwd=cwd,
        uid=os.geteuid(),
        source="typed",
        environment=dict(os.environ),
        name=name_of(argv),
        interpreter=interpreter(argv, os.environ),
    )


def _living(meta: Meta, directory: str) -> RunCommand | None:
    subject = look(meta.pid)
    if subject is None:
        return None
    try:
        environment = _cleaned(_environment(subject), meta)
    except RefusedError:
        return None
    found = _of(subject, environment)
    # The record has the words as they were typed: /proc shows `python …/torchrun` for torchrun.
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    own = {"argv": meta.command, "cwd": meta.cwd or found.cwd, "interpreter": meta.python}
    return RunCommand(**{**values, **own, "name": meta.name, "directory": directory})


def _of(subject: Subject, environment: dict[str, str]) -> RunCommand:
    pid = subject.pid
    argv = _argv(pid)
    target = targets.look(pid)
    link = procfs.read_link(f"{_PROC}/{pid}/cwd")
    cwd = None if isinstance(link, Gap) else link
    return RunCommand(
        argv=argv,
        cwd=cwd,
        uid=subject.uid,
        source="process",
        environment=environment,
        interpreter=_interpreter(pid),
        pid=pid,
        start_ticks=subject.stat.start_ticks,
        inner_pid=target.inner_pid if target else None,
        container=_container(pid, environment),
        slurm_job=_foreign_job(environment, _cgroup(pid)),
        name=name_of(argv) if argv else None,
        refusal=_incomplete(argv, environment),
    )


def _interpreter(pid: int) -> str | None:
    """Its environment's Python: the kernel names the base one, into which nobody should install."""
    try:
        return python_of(pid)
    except CockpitError:  # in a container, or no Python: there is none that we could start
        return None


def _environment(subject: Subject) -> dict[str, str]:
    raw = procfs.read_long(f"{_PROC}/{subject.pid}/environ", COMMAND_LIMIT)
    if isinstance(raw, Gap):
        if raw.reason == "gone":
            raise TargetGoneError(f"pid {subject.pid} has ended.")
        owner = procfs.user_name(subject.uid)
        raise RefusedError(f"pid {subject.pid} belongs to {owner}: its environment is not ours.")
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs if name}


def _argv(pid: int) -> tuple[str, ...]:
    """Whole, and bytes that are no UTF-8 as os.fsdecode has them: it is to be run."""
    raw = procfs.read_long(f"{_PROC}/{pid}/cmdline", COMMAND_LIMIT)
    if isinstance(raw, Gap) or not raw:
        return ()
    return tuple(os.fsdecode(word) for word in raw.removesuffix(b"\0").split(b"\0"))


def _cleaned(environment: Mapping[str, str], meta: Meta | None) -> dict[str, str]:
    """Without what ``cockpit run`` had set; what it had replaced is put back."""
    found = dict(environment)
    for name, value in (meta.set_for_run if meta else {}).items():
        if found.get(name) == value:
            before = meta.environment.get(name) if meta else None
            found.pop(name)
            if before is not None and HIDDEN not in before:
                found[name] = before
    if "PYTHONPATH" in found:
        entries = [e for e in found["PYTHONPATH"].split(os.pathsep) if e != BOOTSTRAP]
        found["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del found["PYTHONPATH"]
    return {n: v for n, v in found.items() if n != MARK and not n.startswith("COCKPIT_RUN_")}


def _incomplete(argv: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    if not argv:
        return "The process does not show its command (it is ending, or hides it)."
    several = all(name in environment for name in _RANK) and environment["WORLD_SIZE"] != "1"
    if several and not _launches(argv):
        return (
            "It is one rank of a distributed run whose launcher is not known: start the whole run "
            "again by the command that started it."
        )
    return None


def _launches(argv: tuple[str, ...]) -> bool:
    try:
        return bool(find_program(argv).launchers)
    except NotUnderstoodError:
        return False


def _container(pid: int, environment: Mapping[str, str]) -> str | None:
    """None where it shares our files: then it is no other place than ours."""
    if targets.same_namespace(pid, "mnt") is not False:
        return None
    return container_of(_cgroup(pid), environment)


def _cgroup(pid: int | str) -> str:
    raw = procfs.read_long(f"{_PROC}/{pid}/cgroup", 16384)
    return "" if isinstance(raw, Gap) else procfs.text(raw)


def _foreign_job(environment: Mapping[str, str], cgroup: str = "") -> str | None:
    job = slurm_of(cgroup, environment)
    return None if job is None or job == slurm_of(_cgroup("self"), os.environ) else job


def _elsewhere(state: str, meta: Meta) -> str | None:
    if state != "elsewhere":
        return None
    return f"This run was started on {meta.host}: start it again there."


def _is_record_of(directory: str, head: Subject) -> bool:
    """The variable is the process's own word: it is believed only where it names a record among
    ours, of just this process, that we have written."""
    folder = state_directory(os.environ)
    if folder is None or head.uid != os.geteuid():
        return False
    if os.path.realpath(os.path.dirname(directory)) != os.path.realpath(folder / "runs"):
        return False
    try:
        ours = os.lstat(os.path.join(directory, "meta.json")).st_uid == os.geteuid()
        meta = load_run(directory).meta
    except (OSError, TargetGoneError):  # its record was removed while it runs
        return False
    return ours and (meta.pid, meta.start_ticks) == (head.pid, head.stat.start_ticks)
