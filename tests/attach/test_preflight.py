"""Every refusal with its sentence: over a /proc made by hand, and over real processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attaching import AS_OTHER_USER, ROOT, Runs, interpreter, needs_ptrace, needs_root, until

from cockpit import procfs
from cockpit.attach import inject_gdb, preflight
from cockpit.attach.inject_gdb import Gdb
from cockpit.attach.preflight import Verdict, judge
from cockpit.attach.python_image import find_python
from cockpit.attach.target import Asker

PID = 4711
ME = Asker(pid=1, uid=1000, gid=1000, ptrace_capability=False, container=False)
ROOT_USER = Asker(pid=1, uid=0, gid=0, ptrace_capability=True, container=False)
BARE_ROOT = Asker(pid=1, uid=0, gid=0, ptrace_capability=False, container=True)
ATTACH = (
    "Attach to pid 4711? Its main thread is paused about 1 ms "
    "and the cockpit agent is loaded into it. [y/N]"
)
OTHER_USER = "pid 4711 belongs to alice; you are bob. Run the cockpit as alice, or with sudo."
NOT_DUMPABLE = "The kernel protects pid 4711 (not dumpable). Only root may attach."
STOPPED = (
    "pid 4711 is stopped (SIGSTOP). Attaching to a stopped process can kill it. "
    "Continue it first: kill -CONT 4711"
)
YAMA_1 = (
    "kernel.yama.ptrace_scope=1 forbids attaching to a process you did not start. "
    'Use sudo, or next time "cockpit run -- …" (needs no ptrace).'
)
YAMA_3 = 'kernel.yama.ptrace_scope=3: attaching is off until reboot. Use "cockpit run -- …".'
CONTAINER = (
    "ptrace is not allowed in this container. "
    'Start it with --cap-add SYS_PTRACE, or use "cockpit run -- …".'
)
PLAIN_ROOT = Asker(pid=1, uid=0, gid=0, ptrace_capability=False, container=False)
NO_CAPABILITY = (
    "This root has no CAP_SYS_PTRACE, which attaching to pid 4711 needs: "
    "start the cockpit where root has all its capabilities."
)
OTHER_NAMESPACE = (
    "pid 4711 lives in another user namespace, where this root has no rights: "
    "attach from inside it, or from the host."
)
EVEN_ROOT = (
    "The kernel forbids even root access to pid 4711: it belongs to a user namespace above this "
    "one, or a security module or sandbox protects it."
)
DISABLED = "pid 4711 was started with remote debugging disabled (PYTHON_DISABLE_REMOTE_DEBUG)."

Tree = Callable[..., str]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """``tree(state="T")`` → the folder that stands for /proc, with pid 4711 in it."""
    monkeypatch.setattr(procfs, "user_name", {1000: "bob", 1001: "alice", 0: "root"}.get)
    monkeypatch.setattr(preflight, "find_gdb", lambda: None)

    def make(
        state: str = "R",
        uid: int = 1000,
        owner: int | None = None,
        tracer: int = 0,
        tracer_name: str = "gdb",
        program: str | None = None,
        yama: int | None = None,
        environ: bytes = b"",
        argv: bytes = b"python\0train.py\0",
        tgid: int = PID,
        features: str = "",
        namespace: str = "mnt:[1]",
        user_namespace: str = "user:[1]",
        flags: int = 0,
    ) -> str:
        proc = tmp_path / "proc"
        folder = proc / str(PID)
        (folder / "ns").mkdir(parents=True)
        (proc / "self" / "ns").mkdir(parents=True)
        after = f"{state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0"
        (folder / "stat").write_text(f"{PID} (py (x)) {after}\n")
        (folder / "status").write_text(
            f"Name:\tpython\nTgid:\t{tgid}\nTracerPid:\t{tracer}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
            f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t{uid} \nNSpid:\t{PID}\t7\n"
            f"x86_Thread_features:\t{features}\n"
        )
        (folder / "environ").write_bytes(environ)
        (folder / "cmdline").write_bytes(argv)
        if os.geteuid() == 0:
            os.chown(folder / "environ", uid if owner is None else owner, -1)
        real = os.path.realpath(program or sys.executable)
        (folder / "exe").symlink_to(real)
        (folder / "root").symlink_to("/")
        python = find_python(os.getpid()) if program is None else None
        lines = [f"00400000-00500000 r-xp 00000000 00:01 5  {real}"]
        lines += (
            [f"7f0000000000-7f0000100000 r-xp 00000000 00:01 6  {python.path}"] if python else []
        )
        (folder / "maps").write_text("\n".join(lines) + "\n")
        (folder / "ns" / "mnt").symlink_to("mnt:[1]")
        (proc / "self" / "ns" / "mnt").symlink_to(namespace)
        (folder / "ns" / "user").symlink_to(user_namespace)
        (proc / "self" / "ns" / "user").symlink_to("user:[1]")
        if tracer:
            (proc / str(tracer)).mkdir()
            (proc / str(tracer) / "comm").write_text(f"{tracer_name}\n")
        if yama is not None:
            (proc / "sys/kernel/yama").mkdir(parents=True)
            (proc / "sys/kernel/yama/ptrace_scope").write_text(f"{yama}\n")
        return str(proc)

    return make


def ask(proc: str, asker: Asker = ME, opens: bool = True) -> Verdict:
    return judge(PID, asker=asker, proc=proc, may_open=lambda *_: opens)


as_root = needs_root  # the made-up owners of files need chown


@as_root
@needs_ptrace
@pytest.mark.parametrize(
    ("made", "asker", "opens", "sentence"),
    [
        ({"uid": 1001}, ME, True, OTHER_USER),
        ({"uid": 1001}, BARE_ROOT, True, CONTAINER),
        ({"owner": 0}, ME, True, NOT_DUMPABLE),
        ({"uid": 0, "owner": 1}, BARE_ROOT, True, CONTAINER),
        ({"state": "T"}, ME, True, STOPPED),
        ({"state": "t", "tracer": 512}, ME, True, "pid 4711 is already traced by pid 512 (gdb)."),
        ({"tracer": 512}, ME, True, "pid 4711 is already traced by pid 512 (gdb)."),
        (
            {"tracer": 512, "tracer_name": "\x1b[2Jgdb"},
            ME,
            True,
            "pid 4711 is already traced by pid 512 (^[[2Jgdb).",
        ),
        (
            {"state": "D"},
            ME,
            True,
            "pid 4711 is in an uninterruptible kernel call; try again in a moment.",
        ),
        ({"state": "Z"}, ME, True, "pid 4711 has ended; its parent has not collected it yet."),
        ({"tgid": 99}, ME, True, "4711 is a thread of pid 99: attach to that pid."),
        ({"yama": 1}, ME, False, YAMA_1),
        ({"yama": 2}, ME, False, YAMA_1.replace("=1", "=2")),
        ({"yama": 3}, ME, False, YAMA_3),
        ({"yama": 3}, ROOT_USER, False, YAMA_3),
        ({"yama": 1, "uid": 0}, BARE_ROOT, False, CONTAINER),
        ({"uid": 1001}, PLAIN_ROOT, True, NO_CAPABILITY),
        ({"uid": 0, "owner": 1}, PLAIN_ROOT, True, NO_CAPABILITY),
        ({"user_namespace": "user:[2]"}, ROOT_USER, False, OTHER_NAMESPACE),
        ({}, ROOT_USER, False, EVEN_ROOT),
        ({"flags": 0x200000}, ROOT_USER, True, "pid 4711 is a kernel thread: it runs no Python."),
        ({}, BARE_ROOT.__class__(1, 1000, 1000, False, True), False, CONTAINER),
        (
            {"program": "/bin/sleep"},
            ME,
            True,
            "pid 4711 is no Python process: the driver's view is all there is to see.",
        ),
        (
            {"features": "shstk"},
            ME,
            True,
            'pid 4711 uses a shadow stack (CET), which forbids attaching. Use "cockpit run -- …".',
        ),
    ],
)
def test_each_refusal_has_its_sentence(
    tree: Tree, made: dict, asker: Asker, opens: bool, sentence: str
):
    verdict = ask(tree(**made), asker, opens)
    assert verdict.refusal is not None
    assert verdict.refusal.sentence == sentence
    assert (verdict.way, verdict.confirm) == (None, "")
    assert verdict.refusal.retry == (made.get("state") == "D")


@needs_ptrace
@pytest.mark.parametrize(
    ("made", "asker"),
    [
        ({}, ME),
        ({"yama": 1}, ME),  # the kernel lets us: PR_SET_PTRACER, or a descendant
        ({"uid": 1001}, ROOT_USER),
        ({"owner": 0}, ROOT_USER),
        ({"state": "S"}, ME),
    ],
)
@as_root
def test_what_may_be_attached_has_a_question(tree: Tree, made: dict, asker: Asker):
    verdict = ask(tree(**made), asker)
    assert (verdict.way, verdict.confirm, verdict.start_ticks) == ("ptrace", ATTACH, 777)
    assert verdict.target.inner_pid == 7


def aged(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None, **changes: object):
    """The preflight finds this Python, as of another version."""
    from dataclasses import replace

    real = preflight.find_python

    def found(pid: int, proc: str):
        return replace(real(pid, proc), version=version, **changes)

    monkeypatch.setattr(preflight, "find_python", found)


@needs_ptrace
@as_root
@pytest.mark.parametrize(
    ("version", "changes", "sentence"),
    [
        (
            (3, 7),
            {},
            'pid 4711 runs Python 3.7; 3.8 or newer is needed. Use "cockpit run -- …".',
        ),
        (
            None,
            {},
            "pid 4711 runs a Python whose version is not known (older than 3.8?). "
            'Use "cockpit run -- …".',
        ),
        (
            (3, 13),
            {"free_threaded": True},
            "pid 4711 runs the free-threaded Python 3.13t: attaching is not safe there. "
            'Use "cockpit run -- …".',
        ),
        (
            (3, 12),
            {"machine": "aarch64"},
            "Attaching to an unprepared run works on x86-64 only, not on aarch64. "
            'Use "cockpit run -- …".',
        ),
    ],
)
def test_versions_that_were_never_tried_are_refused(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, version, changes: dict, sentence: str
):
    aged(monkeypatch, version, **changes)
    assert ask(tree()).refusal.sentence == sentence


@as_root
def test_python_3_14_is_asked_by_remote_exec(tree: Tree, monkeypatch: pytest.MonkeyPatch):
    aged(monkeypatch, (3, 14))
    verdict = ask(tree())
    assert verdict.way == "remote_exec"
    assert verdict.confirm == "Attach to pid 4711 with sys.remote_exec (no pause)? [y/N]"


@needs_ptrace
@as_root
@pytest.mark.parametrize(
    "made",
    [
        {"environ": b"PYTHON_DISABLE_REMOTE_DEBUG=1\0"},
        {"argv": b"python\0-X\0disable-remote-debug\0t.py\0"},
        {"namespace": "mnt:[2]"},
    ],
)
def test_where_remote_exec_is_off_ptrace_comes_next(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, made: dict
):
    aged(monkeypatch, (3, 14))
    verdict = ask(tree(**made))
    assert verdict.way == "ptrace"
    assert verdict.note


@as_root
def test_where_both_ways_are_closed_the_reason_is_remote_execs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
):
    aged(monkeypatch, (3, 15))
    made = tree(environ=b"PYTHON_DISABLE_REMOTE_DEBUG=1\0")
    assert ask(made).refusal.sentence == DISABLED


@as_root
def test_gdb_is_the_last_resort(tree: Tree, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preflight, "find_gdb", lambda: Gdb("/usr/bin/gdb", (16, 3)))
    aged(monkeypatch, (3, 15))
    proc = tree(environ=b"PYTHON_DISABLE_REMOTE_DEBUG=1\0")
    assert ask(proc).way == "gdb"
    assert ask(proc).confirm == (
        "Attach to pid 4711 with gdb 16.3? All its threads are paused about 0.2 s "
        "and the cockpit agent is loaded into it. [y/N]"
    )
    assert not ask(proc, opens=False).way  # what the kernel forbids, it forbids gdb too
    aged(monkeypatch, (3, 13), free_threaded=True)
    assert not ask(proc).way
    monkeypatch.setattr(preflight, "find_python", lambda *_: None)
    assert ask(proc).way == "gdb"  # its name is python3, and it exports nothing


@as_root
@pytest.mark.parametrize(
    ("amx", "sentence"),
    [
        (True, "gdb 13.1 cannot attach on this CPU (AMX). gdb 14 or newer is needed."),
        (False, "gdb 13.1 is too old to attach with. gdb 14 or newer is needed."),
    ],
)
def test_a_gdb_that_is_too_old_is_said(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, amx: bool, sentence: str
):
    monkeypatch.setattr(inject_gdb, "_has_amx", lambda: amx)
    monkeypatch.setattr(preflight, "find_gdb", lambda: Gdb("/usr/bin/gdb", (13, 1)))
    monkeypatch.setattr(preflight, "find_python", lambda *_: None)
    verdict = ask(tree())
    assert (verdict.way, verdict.refusal.sentence) == (None, sentence)


@as_root
def test_maps_that_even_root_may_not_read_are_not_blamed_on_the_user(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
):
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(preflight, "find_python", forbidden)
    assert ask(tree(), ROOT_USER).refusal.sentence == EVEN_ROOT


def test_a_pid_that_does_not_exist_and_one_that_was_reused(tree: Tree):
    proc = tree(uid=os.geteuid())
    asker = Asker(1, os.geteuid(), os.getegid(), True, False)
    assert judge(4712, asker=asker, proc=proc).refusal.code == "gone"
    assert judge(-1, asker=asker, proc=proc).refusal.code == "gone"
    reused = judge(PID, 776, asker=asker, proc=proc)
    assert reused.refusal.code == "replaced"
    assert "another process now" in reused.refusal.sentence


def test_a_process_that_ends_while_it_is_judged_has_ended(runs: Runs):
    child = runs.start()

    def ends(pid: int, _proc: str) -> bool:
        child.kill()
        child.wait()
        return os.access(f"/proc/{pid}/mem", os.R_OK)

    refusal = judge(child.pid, may_open=ends).refusal
    assert (refusal.code, refusal.sentence) == ("gone", f"pid {child.pid} has ended.")


def test_the_cockpit_does_not_attach_to_itself():
    assert judge(os.getpid()).refusal.sentence == f"pid {os.getpid()} is this cockpit itself."


@needs_ptrace
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_version_is_read_from_the_file(version: str, runs: Runs):
    found = find_python(runs.start(python=interpreter(version)).pid)
    assert found.version_text == version


def test_a_real_stopped_process_is_refused(runs: Runs):
    child = runs.start()
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: judge(child.pid).refusal is not None)
    assert judge(child.pid).refusal.code == "stopped"
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: judge(child.pid).refusal is None)


def test_a_real_zombie_is_refused():
    child = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
    assert judge(child.pid).refusal.code == "ended"
    child.wait()
    assert judge(child.pid).refusal.code == "gone"


TRACER = """
import sys
from cockpit.attach.ptrace import Tracee
held = Tracee(int(sys.argv[1]))
print("traced", flush=True)
sys.stdin.read()
"""


@needs_ptrace
def test_a_process_that_another_tracer_holds_is_refused(runs: Runs):
    child = runs.start()
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER, str(child.pid)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert tracer.stdout.readline() == b"traced\n"
        sentence = judge(child.pid).refusal.sentence
        assert sentence.startswith(f"pid {child.pid} is already traced by pid {tracer.pid} (py")
    finally:
        tracer.stdin.close()
        tracer.wait(5)
        tracer.stdout.close()
    until(lambda: judge(child.pid).refusal is None)


ASKS = """
import json, sys
from cockpit.attach.preflight import judge
refusal = judge(int(sys.argv[1])).refusal
print(json.dumps([refusal.code, refusal.sentence] if refusal else None))
"""


def asked_as_other_user(pid: int) -> list[str] | None:
    python = next(
        (p for p in ("/usr/bin/python3.11", "/usr/bin/python3", sys.executable) if os.access(p, 1)),
        sys.executable,
    )
    argv = [*AS_OTHER_USER, python, "-c", ASKS, str(pid)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"another user cannot run {python} here: {done.stderr[-200:]}")
    return json.loads(done.stdout)


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_another_users_real_process_is_refused(runs: Runs):
    child = runs.start()
    code, sentence = asked_as_other_user(child.pid)
    assert code == "not_permitted"
    assert "belongs to root; you are" in sentence


@needs_root
@needs_ptrace
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_an_own_process_that_is_not_dumpable_is_refused_to_its_user_not_to_root(runs: Runs):
    python = "/usr/bin/python3.11"
    if not os.path.exists(python):
        pytest.skip("needs a Python that other users can run")
    code = (
        "import ctypes, time\nassert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.01)\n"
    )
    child = runs.start(code, python=python, before=AS_OTHER_USER)
    code, sentence = asked_as_other_user(child.pid)
    assert code == "not_permitted"
    assert sentence == f"The kernel protects pid {child.pid} (not dumpable). Only root may attach."
    assert judge(child.pid).way == "ptrace"
