"""May this process be attached, and by which way? Asked before anything is touched.

The rules stand in the order in which the kernel and good sense ask: exists, owner, dumpable,
state, tracer, CPython, version, Yama. Each has one sentence to act on. Reads /proc only.
"""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cockpit import procfs
from cockpit.attach import target as targets
from cockpit.attach.inject_gdb import Gdb, find_gdb
from cockpit.attach.python_image import Python, find_python, looks_like_python
from cockpit.attach.target import Asker, Target
from cockpit.model.text import clean

Way = Literal["remote_exec", "ptrace", "gdb"]
RefusalCode = Literal[
    "gone",
    "not_permitted",
    "stopped",
    "ended",
    "busy",
    "traced",
    "not_python",
    "unsupported",
    "replaced",
]

_OVER = frozenset({"gone", "replaced", "ended"})
PTRACE_VERSIONS = ((3, 8), (3, 14))
"""First and last that the ptrace way was tried on. 3.14 only where remote_exec cannot be used."""
REMOTE_EXEC_SINCE = (3, 14)
HINT = 'Use "cockpit run -- …".'


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and why; ``retry``: a moment later the answer may be another."""

    code: RefusalCode
    sentence: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Either a way with the sentence to confirm, or a refusal."""

    pid: int
    start_ticks: int | None = None
    way: Way | None = None
    confirm: str = ""
    refusal: Refusal | None = None
    target: Target | None = None
    python: Python | None = None
    gdb: Gdb | None = None
    note: str = ""
    """What to know besides: why not the better way."""


def judge(
    pid: int,
    start_ticks: int | None = None,
    *,
    asker: Asker | None = None,
    proc: str = "/proc",
    may_open: Callable[[int, str], bool] | None = None,
) -> Verdict:
    """The whole preflight. ``may_open`` says whether the kernel lets us at the memory."""
    verdict = _judged(pid, start_ticks, asker, proc, may_open)
    found = verdict.target
    if verdict.refusal is None or verdict.refusal.code in _OVER or found is None:
        return verdict
    # What ends between two questions is refused everything: that is not the reason.
    again = targets.look(pid, proc)
    if again is None or again.start_ticks != found.start_ticks or again.state in "ZX":
        return _refused(pid, found, Refusal("gone", f"pid {pid} has ended."))
    return verdict


def _judged(
    pid: int,
    start_ticks: int | None,
    asker: Asker | None,
    proc: str,
    may_open: Callable[[int, str], bool] | None,
) -> Verdict:
    who = asker or Asker.of_this_process(proc)
    found = targets.look(pid, proc) if pid > 0 else None
    if found is None:
        return _refused(pid, None, Refusal("gone", f"There is no process {pid}."))
    if start_ticks is not None and found.start_ticks != start_ticks:
        sentence = f"pid {pid} is another process now; the one you meant has ended."
        return _refused(pid, found, Refusal("replaced", sentence))
    refusal = (
        _itself(found, who)
        or _owner(found, who, proc)
        or _dumpable(found, who, proc)
        or _state(found)
        or _tracer(found, proc)
    )
    if refusal:
        return _refused(pid, found, refusal)
    try:
        python = find_python(pid, proc)
    except OSError as error:
        return _refused(pid, found, _unreadable(found, who, proc, error))
    kernel = _yama(found, who, proc, may_open or _may_open)
    refusal = _python(found, python, proc) or kernel
    if python is None or refusal:
        asked = None if kernel else _by_gdb(found, python, proc)
        return asked or _refused(pid, found, refusal or _no_python(pid, proc))
    return _way(found, python, who, proc)


def _itself(found: Target, who: Asker) -> Refusal | None:
    if found.pid == who.pid:
        return Refusal("unsupported", f"pid {found.pid} is this cockpit itself.")
    if found.leader_pid != found.pid:
        sentence = f"{found.pid} is a thread of pid {found.leader_pid}: attach to that pid."
        return Refusal("unsupported", sentence)
    if found.kernel_thread:
        return Refusal("not_python", f"pid {found.pid} is a kernel thread: it runs no Python.")
    return None


def _owner(found: Target, who: Asker, proc: str) -> Refusal | None:
    # As __ptrace_may_access in kernel/ptrace.c asks: real, effective and saved id must be ours.
    same = set(found.uids[:3]) == {who.uid} and set(found.gids[:3]) == {who.gid}
    if same or who.ptrace_capability:
        return None
    if who.uid == 0:
        return _even_root(found, who, proc)
    owner, asker = procfs.user_name(found.uid), procfs.user_name(who.uid)
    if found.uid == who.uid:
        sentence = (
            f"pid {found.pid} runs with other user or group ids than you. Only root may attach."
        )
        return Refusal("not_permitted", sentence)
    return Refusal(
        "not_permitted",
        f"pid {found.pid} belongs to {owner}; you are {asker}. "
        f"Run the cockpit as {owner}, or with sudo.",
    )


def _dumpable(found: Target, who: Asker, proc: str) -> Refusal | None:
    if not found.protected or who.ptrace_capability:
        return None
    if who.uid == 0:
        return _even_root(found, who, proc)
    sentence = f"The kernel protects pid {found.pid} (not dumpable). Only root may attach."
    return Refusal("not_permitted", sentence)


def _state(found: Target) -> Refusal | None:
    pid = found.pid
    # A traced thread that stands still shows t: who traces it is the better answer.
    if found.state == "T" or (found.state == "t" and not found.tracer_pid):
        return Refusal(
            "stopped",
            f"pid {pid} is stopped (SIGSTOP). Attaching to a stopped process can kill it. "
            f"Continue it first: kill -CONT {pid}",
        )
    if found.state in "ZX":
        return Refusal("ended", f"pid {pid} has ended; its parent has not collected it yet.")
    if found.state == "D":
        sentence = f"pid {pid} is in an uninterruptible kernel call; try again in a moment."
        return Refusal("busy", sentence, retry=True)
    return None


def _tracer(found: Target, proc: str) -> Refusal | None:
    if not found.tracer_pid:
        return None
    name = clean(targets.name_of(found.tracer_pid, proc))
    return Refusal(
        "traced", f"pid {found.pid} is already traced by pid {found.tracer_pid} ({name})."
    )


def _python(found: Target, python: Python | None, proc: str) -> Refusal | None:
    if python is None:
        return _no_python(found.pid, proc)
    text, pid = python.version_text, found.pid
    if python.version is None:
        sentence = f"pid {pid} runs a Python whose version is not known (older than 3.8?). {HINT}"
        return Refusal("unsupported", sentence)
    if python.version >= REMOTE_EXEC_SINCE:
        return None
    if python.version < PTRACE_VERSIONS[0]:
        return Refusal(
            "unsupported", f"pid {pid} runs Python {text}; 3.8 or newer is needed. {HINT}"
        )
    return _ptrace_refusal(found, python)


def _ptrace_refusal(found: Target, python: Python) -> Refusal | None:
    """Why the ptrace way cannot be taken."""
    pid, text = found.pid, python.version_text
    if python.free_threaded:
        sentence = f"pid {pid} runs the free-threaded Python {text}: attaching is not safe there. "
        return Refusal("unsupported", sentence + HINT)
    if python.version is None or python.version > PTRACE_VERSIONS[1]:
        return Refusal(
            "unsupported", f"Attaching to Python {text} by ptrace was never tried. {HINT}"
        )
    if python.machine != "x86-64" or platform.machine() != "x86_64":
        sentence = f"Attaching to an unprepared run works on x86-64 only, not on {python.machine}. "
        return Refusal("unsupported", sentence + HINT)
    if found.shadow_stack:
        sentence = f"pid {pid} uses a shadow stack (CET), which forbids attaching. "
        return Refusal("unsupported", sentence + HINT)
    return None


def _yama(
    found: Target, who: Asker, proc: str, may_open: Callable[[int, str], bool]
) -> Refusal | None:
    """Opening /proc/PID/mem asks the kernel's whole question (Yama, PR_SET_PTRACER, LSMs)."""
    if may_open(found.pid, proc):
        return None
    scope = targets.yama_scope(proc)
    if scope >= 3:
        return Refusal(
            "not_permitted",
            f"kernel.yama.ptrace_scope={scope}: attaching is off until reboot. {HINT}",
        )
    if who.uid == 0 or who.ptrace_capability:
        return _even_root(found, who, proc)
    if who.container and not scope:
        return _container()
    if scope:
        return Refusal(
            "not_permitted",
            f"kernel.yama.ptrace_scope={scope} forbids attaching to a process you did not start. "
            'Use sudo, or next time "cockpit run -- …" (needs no ptrace).',
        )
    sentence = f"The kernel forbids access to the memory of pid {found.pid}. {HINT}"
    return Refusal("not_permitted", sentence)


def _way(found: Target, python: Python, who: Asker, proc: str) -> Verdict:
    note = ""
    if python.version is not None and python.version >= REMOTE_EXEC_SINCE:
        note = _no_remote_exec(found, who, proc)
        if not note:
            return Verdict(
                found.pid,
                found.start_ticks,
                "remote_exec",
                f"Attach to pid {found.pid} with sys.remote_exec (no pause)? [y/N]",
                target=found,
                python=python,
            )
        if refusal := _ptrace_refusal(found, python):
            refused = _refused(found.pid, found, Refusal(refusal.code, note))
            return _by_gdb(found, python, proc) or refused
    return Verdict(
        found.pid,
        found.start_ticks,
        "ptrace",
        f"Attach to pid {found.pid}? Its main thread is paused about 1 ms "
        "and the cockpit agent is loaded into it. [y/N]",
        target=found,
        python=python,
        note=note,
    )


def _by_gdb(found: Target, python: Python | None, proc: str) -> Verdict | None:
    """The last resort; None where gdb could not do it either, or there is none."""
    gdb = find_gdb() if _gdb_may_help(found, python, proc) else None
    if gdb is None:
        return None
    if gdb.refusal:
        return _refused(found.pid, found, Refusal("unsupported", gdb.refusal))
    return Verdict(
        found.pid,
        found.start_ticks,
        "gdb",
        f"Attach to pid {found.pid} with gdb {gdb.version_text}? All its threads are paused about "
        "0.2 s and the cockpit agent is loaded into it. [y/N]",
        target=found,
        python=python,
        gdb=gdb,
    )


def _gdb_may_help(found: Target, python: Python | None, proc: str) -> bool:
    """Where only our own way does not know its way: a symbol table, a version, a machine."""
    if found.shadow_stack:
        return False
    if python is None:
        return looks_like_python(found.pid, proc)
    if python.free_threaded or python.version is None or python.version < PTRACE_VERSIONS[0]:
        return False
    unknown = python.version > PTRACE_VERSIONS[1]
    return unknown or python.machine == platform.machine() == "aarch64"


def _no_remote_exec(found: Target, who: Asker, proc: str) -> str:
    """Why sys.remote_exec cannot be used; empty when it can."""
    pid = found.pid
    argv = targets.arguments(pid, proc)
    off = targets.environment(pid, proc).get("PYTHON_DISABLE_REMOTE_DEBUG")
    if off or "disable-remote-debug" in argv or "-Xdisable-remote-debug" in argv:
        return (
            f"pid {pid} was started with remote debugging disabled (PYTHON_DISABLE_REMOTE_DEBUG)."
        )
    # Its interpreter runs as its owner, in our mount namespace: neither may be in the way.
    if targets.same_namespace(pid, "mnt", proc) is False:
        return f"pid {pid} lives in another mount namespace, where its interpreter cannot be run."
    if found.uid != who.uid and (found.protected or targets.yama_scope(proc)):
        return f"The owner of pid {pid} may not attach to it (protected, or by Yama)."
    return ""


def _unreadable(found: Target, who: Asker, proc: str, error: OSError) -> Refusal:
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return Refusal("gone", f"pid {found.pid} has ended.")
    if who.uid == 0 or who.ptrace_capability:
        return _even_root(found, who, proc)
    sentence = f"The kernel protects pid {found.pid} (not dumpable). Only root may attach."
    return Refusal("not_permitted", sentence)


def _even_root(found: Target, who: Asker, proc: str) -> Refusal:
    """What root lacks, or what stands above root."""
    if not who.ptrace_capability and who.container:
        return _container()
    if not who.ptrace_capability:
        sentence = f"This root has no CAP_SYS_PTRACE, which attaching to pid {found.pid} needs: "
        sentence += "start the cockpit where root has all its capabilities."
    elif targets.same_namespace(found.pid, "user", proc) is False:
        sentence = f"pid {found.pid} lives in another user namespace, where this root has no "
        sentence += "rights: attach from inside it, or from the host."
    else:
        sentence = f"The kernel forbids even root access to pid {found.pid}: it belongs to a user "
        sentence += "namespace above this one, or a security module or sandbox protects it."
    return Refusal("not_permitted", sentence)


def _container() -> Refusal:
    return Refusal(
        "not_permitted",
        "ptrace is not allowed in this container. "
        'Start it with --cap-add SYS_PTRACE, or use "cockpit run -- …".',
    )


def _no_python(pid: int, proc: str) -> Refusal:
    if not looks_like_python(pid, proc):
        sentence = f"pid {pid} is no Python process: the driver's view is all there is to see."
        return Refusal("not_python", sentence)
    sentence = f"pid {pid} runs no CPython with exported symbols: nothing to attach to. {HINT}"
    return Refusal("not_python", sentence)


def _refused(pid: int, found: Target | None, refusal: Refusal) -> Verdict:
    ticks = found.start_ticks if found else None
    return Verdict(pid, ticks, refusal=refusal, target=found)


def _may_open(pid: int, proc: str) -> bool:
    try:
        os.close(os.open(f"{proc}/{pid}/mem", os.O_RDWR))
    except OSError:
        return False
    return True
