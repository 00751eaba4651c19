"""The last way in: gdb 14 or newer puts the source into a pending call, as ``inject_ptrace`` does.

For a Python whose functions we do not find by ourselves, or that is too new for our own way. It
stands still for some 0.2 s, with all its threads. gdb calls two functions in it: mmap, for one page
with the name of a file, and Py_AddPendingCall. The page (4 KiB) stays when the source has run; the
file removes itself first of all. gdb is asked to end with SIGTERM, and not while it calls; it is
never killed: that would leave its traps in the program.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cockpit.attach import script_name
from cockpit.attach import target as targets
from cockpit.attach.target import Target
from cockpit.model.text import clean

OLDEST = (14, 0)
"""Before, gdb cannot call a function on CPUs with AMX; and it has no time limit for a call."""
LIMIT_S = 20.0
LEAVE_LIMIT_S = 10.0
END_LIMIT_S = 3.0
CALL_LIMIT_S = 2
"""For each of the two calls; gdb then takes the call back."""
_VERSION = re.compile(r"(\d+)\.(\d+)")

_RUN = """try:
    (lambda b: b.exec((lambda f: (f.read(), f.close())[0])(b.open({path!a}, "rb")), \
{{"__builtins__": b}}))(__import__("builtins"))
except:
    pass
"""
_REMOVED_FIRST = """try:
    __import__("os").getpid() == {pid} and __import__("os").unlink({path!a})
except:
    pass
"""
"""Not by a child that was forked before it ran."""

# Only the libraries in which the functions are: torch has some that take gdb seconds to read, while
# the program stands still.
_COMMANDS = """set pagination off
set confirm off
set unwind-on-signal on
set unwind-on-timeout on
set direct-call-timeout {limit}
sharedlibrary libpython
sharedlibrary libc\\.
shell mv may taken
if $_shell_exitcode != 0
  quit 1
end
set $page = (unsigned long) ((void *(*)(void *, unsigned long, int, int, int, long)) mmap) \
((void *) 0, 4096, 3, 34, -1, 0)
printf "page %lx\\n", $page
{words}
set $done = ((int (*)(void *, void *)) Py_AddPendingCall) \
((void *) &PyRun_SimpleString, (void *) $page)
printf "pending %d\\n", $done
detach
"""


@dataclass(frozen=True, slots=True)
class Gdb:
    """A gdb on this machine."""

    path: str
    version: tuple[int, int]

    @property
    def version_text(self) -> str:
        """``16.3``."""
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def refusal(self) -> str | None:
        """Why it cannot be used."""
        if self.version >= OLDEST:
            return None
        if _has_amx():
            return (
                f"gdb {self.version_text} cannot attach on this CPU (AMX). "
                "gdb 14 or newer is needed."
            )
        return f"gdb {self.version_text} is too old to attach with. gdb 14 or newer is needed."


@dataclass(frozen=True, slots=True)
class GdbInjection:
    """What came of it; ``script`` is the file that disappears once the source has run."""

    ok: bool
    code: str = "queued"
    """``queued``, or why not: gone, stopped, not_permitted, busy, not_python, failed."""
    sentence: str = ""
    script: str = ""

    def reached(self, pid: int) -> str:
        """The script as we reach it."""
        return _reached(pid, self.script)


def find_gdb() -> Gdb | None:
    """The gdb of $PATH; None where there is none that says its version."""
    path = shutil.which("gdb")
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--nx", "--version"], capture_output=True, timeout=5, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = done.stdout.decode("utf-8", "replace").partition("\n")[0]
    found = _VERSION.search(first.rpartition(" ")[2])
    return Gdb(path, (int(found[1]), int(found[2]))) if found else None


def inject(gdb: Gdb, target: Target, source: str, limit_s: float = LIMIT_S) -> GdbInjection:
    """Queue the source in the process. Blocks for 0.3 s and more; ``limit_s`` at most."""
    pid = target.pid
    if gdb.refusal is not None:
        return GdbInjection(False, "failed", gdb.refusal)
    try:
        script = _leave_script(target, source)
    except OSError as error:
        sentence = f"Nothing can be written into the /tmp of pid {pid} ({error.strerror})."
        return GdbInjection(False, "failed", sentence)
    injected = _refused_now(target) or _run(gdb, target, script, limit_s)
    if not injected.ok:
        with suppress(OSError):
            os.unlink(_reached(pid, script))
        if injected.code != "stopped":
            _wake(target)
    return injected


def _wake(target: Target) -> None:
    """A gdb that ends while it attaches leaves the process in the stop that it asked for."""
    now = targets.look(target.pid)
    if now and (now.start_ticks, now.state, now.tracer_pid) == (target.start_ticks, "T", 0):
        with suppress(OSError):
            os.kill(target.pid, signal.SIGCONT)


def _refused_now(target: Target) -> GdbInjection | None:
    """Asked at the last moment: gdb's call kills a process that is stopped."""
    pid, now = target.pid, targets.look(target.pid)
    if now is None or now.start_ticks != target.start_ticks or now.state in "ZX":
        return GdbInjection(False, "gone", f"pid {pid} has ended.")
    if now.state in "Tt":
        sentence = (
            f"pid {pid} is stopped (SIGSTOP). Attaching to a stopped process can kill it. "
            f"Continue it first: kill -CONT {pid}"
        )
        return GdbInjection(False, "stopped", sentence)
    return None


def _run(gdb: Gdb, target: Target, script: str, limit_s: float) -> GdbInjection:
    pid = target.pid
    with tempfile.TemporaryDirectory(prefix="cockpit-gdb-") as folder:
        Path(folder, "commands").write_text(_commands(_RUN.format(path=script)))
        Path(folder, "may").touch()
        try:
            debugger = _start(gdb, pid, folder)
        except OSError as error:
            return GdbInjection(False, "failed", f"gdb cannot be run ({error.strerror}).")
        if not _ended(debugger, folder, limit_s):
            return GdbInjection(False, "failed", f"gdb did not end in time; pid {pid} runs on.")
        answer = Path(folder, "answer").read_bytes()
    return _understood(pid, script, answer.decode("utf-8", "replace"))


def _ended(debugger: subprocess.Popen[bytes], folder: str, limit_s: float) -> bool:
    """By itself. SIGTERM in the middle of a call would leave the program in it, to crash behind it:
    only who renames the file ``may`` has the right to go on, gdb with its calls or we."""
    with suppress(subprocess.TimeoutExpired):
        debugger.wait(limit_s)
        return True
    try:
        os.rename(f"{folder}/may", f"{folder}/not")
    except FileNotFoundError:  # it calls, or has done so; it has a limit for each call
        with suppress(subprocess.TimeoutExpired):
            debugger.wait(2 * CALL_LIMIT_S + END_LIMIT_S)
            return True
        return False
    with suppress(subprocess.TimeoutExpired):  # it finds that it may not, and leaves
        debugger.wait(LEAVE_LIMIT_S)
        return False
    with suppress(ProcessLookupError):  # a wrapper's gdb is in its group
        os.killpg(debugger.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):  # then it is left alone
        debugger.wait(END_LIMIT_S)
    return False


def _start(gdb: Gdb, pid: int, folder: str) -> subprocess.Popen[bytes]:
    before = ("auto-load off", "debuginfod enabled off", "auto-solib-add off")
    early = [word for one in before for word in ("-iex", f"set {one}")]
    # A file, no pipe: gdb shall not die of the cockpit's end.
    with open(f"{folder}/answer", "wb") as answer:
        return subprocess.Popen(
            [gdb.path, "--nx", "--quiet", "--batch", *early, "-p", str(pid), "-x", "commands"],
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "SHELL": "/bin/sh"},
            start_new_session=True,
        )


def _commands(text: str) -> str:
    """The page is filled word by word: x86-64 and aarch64 have the low byte first."""
    raw = text.encode() + b"\0"
    raw += bytes(-len(raw) % 8)
    words = "\n".join(
        f"set *(unsigned long *) ($page + {at}) = {int.from_bytes(raw[at : at + 8], 'little'):#x}"
        for at in range(0, len(raw), 8)
    )
    return _COMMANDS.format(limit=CALL_LIMIT_S, words=words)


def _understood(pid: int, script: str, answer: str) -> GdbInjection:
    if re.search(r"^pending 0$", answer, re.M):
        return GdbInjection(True, script=script)
    if re.search(r"^pending -1$", answer, re.M):
        sentence = f"pid {pid} has too many pending calls; try again in a moment."
        return GdbInjection(False, "busy", sentence)
    if "Operation not permitted" in answer:
        return GdbInjection(False, "not_permitted", f"The kernel forbids attaching to pid {pid}.")
    if "No symbol" in answer:
        sentence = f"gdb finds no CPython in pid {pid} either: nothing to attach to."
        return GdbInjection(False, "not_python", sentence)
    if "timed out while in a function" in answer:
        sentence = f"pid {pid} took longer than {CALL_LIMIT_S} s; gdb took its call back."
        return GdbInjection(False, "busy", sentence)
    lines = [line for line in answer.splitlines() if line.strip() and not line.startswith("[")]
    reason = clean(lines[-1])[:200] if lines else "it gave no answer"
    return GdbInjection(False, "failed", f"gdb failed for pid {pid}: {reason}.")


def _leave_script(target: Target, source: str) -> str:
    """A file of the target's user in the /tmp that the target sees. Raises OSError."""
    path = script_name.new_path(target, "py")
    reached = _reached(target.pid, path)
    # A link would be followed out of the target's root.
    if not stat.S_ISDIR(os.lstat(os.path.dirname(reached)).st_mode):
        raise NotADirectoryError(20, "it is no directory")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(reached, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(_REMOVED_FIRST.format(pid=target.inner_pid, path=path) + source)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), target.uid, target.gids[1])
    return path


def _reached(pid: int, path: str) -> str:
    return f"/proc/{pid}/root{path}"


def _has_amx() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return any(line.startswith("flags") and " amx_tile" in line for line in file)
    except OSError:
        return False
