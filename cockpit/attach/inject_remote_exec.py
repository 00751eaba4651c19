"""The way in of Python 3.14 and newer: ``sys.remote_exec``, called by the target's own interpreter.

Our interpreter may be of another version, which remote_exec refuses. The target's is a program of
its owner, so it runs with that owner's uid, gid and groups, isolated (-I -S), with a time limit and
next to no environment. The process is not stopped; a stopped one takes it when it continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass

from cockpit import as_owner
from cockpit.as_owner import Owner
from cockpit.attach import script_name
from cockpit.attach import target as targets
from cockpit.attach.target import Target
from cockpit.model.text import clean

LIMIT_S = 5.0
_KEPT_ENVIRONMENT = ("LD_LIBRARY_PATH",)
"""Without it a libpython outside the usual places is not found."""

# Reads the source on stdin, writes it where the target can read it, and asks for it to be run.
# The script removes its own file: in the target it is the first thing that runs.
CALLER = """
import os, sys, tempfile
source = sys.stdin.buffer.read()
number, path = tempfile.mkstemp(prefix=sys.argv[2], suffix=".py", dir="/tmp")
try:
    with os.fdopen(number, "wb") as file:
        file.write(b"try:\\n __import__('os').unlink(%a)\\nexcept: pass\\n" % path)
        file.write(source)
    sys.remote_exec(int(sys.argv[1]), path)
except BaseException as error:
    os.unlink(path)
    print("refused", type(error).__name__, error)
else:
    print("queued", path)
"""


@dataclass(frozen=True, slots=True)
class RemoteExec:
    """What came of it; ``script`` is the file that disappears once the source has run."""

    ok: bool
    code: str = "queued"
    """``queued``, or why not: gone, disabled, not_permitted, failed."""
    sentence: str = ""
    script: str = ""


def remote_exec(target: Target, source: str, limit_s: float = LIMIT_S) -> RemoteExec:
    """Blocks for the start of one interpreter (20 ms); ``limit_s`` at most."""
    pid = target.pid
    try:
        interpreter = os.readlink(f"/proc/{pid}/exe")
        caller = _start(interpreter, target)
    except FileNotFoundError:
        return RemoteExec(False, "gone", f"pid {pid} has ended, or its interpreter was removed.")
    except OSError as error:
        sentence = f"The interpreter of pid {pid} cannot be run ({error.strerror})."
        return RemoteExec(False, "failed", sentence)
    try:
        answer, _ = caller.communicate(source.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        # It traces nothing: remote_exec only writes a few bytes, so it may be ended.
        caller.send_signal(signal.SIGKILL)
        caller.communicate()
        return RemoteExec(False, "failed", f"The interpreter of pid {pid} did not answer in time.")
    return _understood(pid, answer.decode("utf-8", "replace").strip())


def _start(interpreter: str, target: Target) -> subprocess.Popen[bytes]:
    environment = targets.environment(target.pid)
    kept = {name: environment[name] for name in _KEPT_ENVIRONMENT if name in environment}
    return as_owner.start(
        [interpreter, "-I", "-S", "-c", CALLER, str(target.pid), script_name.prefix(target)],
        Owner(target.uid, target.gids[1], target.groups),
        environment={"PATH": "/usr/bin:/bin", **kept},
    )


def _understood(pid: int, answer: str) -> RemoteExec:
    word, _, rest = answer.partition(" ")
    if word == "queued" and rest.startswith("/tmp/cockpit-attach-") and "\n" not in rest:
        return RemoteExec(True, script=rest)
    if "not enabled" in rest:
        sentence = (
            f"pid {pid} was started with remote debugging disabled (PYTHON_DISABLE_REMOTE_DEBUG)."
        )
        return RemoteExec(False, "disabled", sentence)
    if rest.startswith("PermissionError"):
        return RemoteExec(False, "not_permitted", f"The kernel forbids attaching to pid {pid}.")
    reason = clean(rest)[:200] or "it gave no answer"
    return RemoteExec(False, "failed", f"sys.remote_exec failed for pid {pid}: {reason}.")
