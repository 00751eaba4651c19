"""The last way in, with a real gdb 14 or newer: $COCKPIT_GDB, else the one of $PATH.

``pip install gdb-for-pwndbg`` gives one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from attaching import SLEEPS, THREADS, Runs, interpreter, needs_ptrace, unharmed, until

from cockpit.attach import attach, inject_gdb, preflight
from cockpit.attach.inject_gdb import Gdb, find_gdb, inject
from cockpit.attach.target import look

pytestmark = needs_ptrace
PROGRAMS = {"sleeps": SLEEPS, "threads": THREADS}


@pytest.fixture
def gdb(monkeypatch: pytest.MonkeyPatch) -> Gdb:
    wanted = os.environ.get("COCKPIT_GDB")
    if wanted:
        monkeypatch.setenv("PATH", os.path.dirname(wanted), prepend=os.pathsep)
    found = find_gdb()
    if found is None or found.version < inject_gdb.OLDEST:
        pytest.skip("needs gdb 14 or newer (pip install gdb-for-pwndbg, or set COCKPIT_GDB)")
    return found


def touches(path: Path) -> str:
    return f"__import__('os').close(__import__('os').open({str(path)!r}, 65))\n"


@pytest.mark.parametrize("version", ["3.8", "3.11", "3.13"])
@pytest.mark.parametrize("program", ["sleeps", "threads"])
def test_the_source_runs_and_its_file_is_gone(
    gdb: Gdb, runs: Runs, tmp_path: Path, version: str, program: str
):
    child = runs.start(PROGRAMS[program], python=interpreter(version))
    for number in range(3):
        done = inject(gdb, look(child.pid), touches(tmp_path / str(number)))
        assert (done.ok, done.sentence) == (True, "")
        until((tmp_path / str(number)).exists)
        assert not os.path.exists(done.script)
    unharmed(child)


def test_a_python_that_we_do_not_find_is_attached(
    gdb: Gdb, runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preflight, "find_python", lambda *_: None)
    child = runs.start(SLEEPS, python=interpreter("3.11"))
    planned = attach.plan(child.pid)
    assert planned.verdict.way == "gdb"
    outcome = attach.run(planned)
    assert (outcome.state, outcome.exit_code) == ("attached", 0), outcome
    assert outcome.hello["attached_by"] == "gdb"
    assert attach.detach(child.pid).state == "detached"
    unharmed(child)


@pytest.mark.parametrize("limit_s", [0.03, 0.1, 0.2, 0.25])
def test_a_gdb_that_takes_too_long_is_asked_to_end_and_harms_nobody(
    gdb: Gdb, runs: Runs, tmp_path: Path, limit_s: float
):
    child = runs.start(SLEEPS)
    done = inject(gdb, look(child.pid), touches(tmp_path / "ran"), limit_s)
    assert done.ok or "did not end in time" in done.sentence
    unharmed(child, 0.3)


@pytest.mark.parametrize("limit_s", [0.05, 0.07, 0.09])
def test_a_gdb_that_ends_while_it_attaches_leaves_no_stopped_program(
    gdb: Gdb, runs: Runs, monkeypatch: pytest.MonkeyPatch, limit_s: float
):
    monkeypatch.setattr(inject_gdb, "LEAVE_LIMIT_S", 0)  # SIGTERM at once
    child = runs.start(SLEEPS)
    inject(gdb, look(child.pid), "pass", limit_s)
    unharmed(child, 0.3)


@pytest.mark.parametrize(("limit_s", "slow_s"), [(1.0, 1.5), (20.0, 4)])
def test_a_call_is_finished_or_taken_back_but_never_broken_off(
    gdb: Gdb, runs: Runs, monkeypatch: pytest.MonkeyPatch, limit_s: float, slow_s: float
):
    """usleep stands in for a Py_AddPendingCall that waits for its lock."""
    call, _, rest = inject_gdb._COMMANDS.partition("set $done = ")
    after = rest[rest.index("printf") :]
    slow = f"set $done = ((int (*)(unsigned)) usleep) ({slow_s * 1e6:.0f})\n"
    monkeypatch.setattr(inject_gdb, "_COMMANDS", call + slow + after)
    child = runs.start(SLEEPS)
    done = inject(gdb, look(child.pid), "pass", limit_s)
    assert (done.ok, done.code) == ((True, "queued") if slow_s < 2 else (False, "busy")), done
    if done.script:
        os.unlink(done.script)  # nothing was queued that would
    unharmed(child, 3)


def test_what_is_stopped_gone_or_no_python_is_left_alone(gdb: Gdb, runs: Runs):
    child = runs.start(SLEEPS)
    seen = look(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: look(child.pid).state == "T")
    assert inject(gdb, seen, "").code == "stopped"
    os.kill(child.pid, signal.SIGCONT)
    unharmed(child)
    child.kill()
    child.wait()
    assert inject(gdb, seen, "").code in ("gone", "failed")
    other = subprocess.Popen(["sleep", "60"])
    try:
        done = inject(gdb, look(other.pid), "")
        assert (done.ok, done.code) == (False, "not_python"), done
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("GNU gdb (Debian 13.1-3) 13.1", (13, 1)),
        ("GNU gdb (GDB) Red Hat Enterprise Linux 14.2-3.el9", (14, 2)),
        ("GNU gdb (Ubuntu 15.0.50.20240403-0ubuntu1) 15.0.50.20240403-git", (15, 0)),
    ],
)
def test_its_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, version: tuple[int, int]
):
    (tmp_path / "gdb").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "gdb").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gdb() == Gdb(str(tmp_path / "gdb"), version)


def test_without_gdb_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gdb() is None
