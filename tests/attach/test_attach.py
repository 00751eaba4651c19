"""From the question to the agent's answer and back, on processes that nobody prepared."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from attaching import (
    AS_OTHER_USER,
    BLOCKED,
    SLEEPS,
    TRAINER,
    VERSIONS,
    Runs,
    interpreter,
    needs_ptrace,
    needs_root,
    undisturbed,
    unharmed,
    until,
)

from cockpit.attach import attach, stacks
from cockpit.attach.client import AgentError, Client
from cockpit.attach.discover import Finder, find
from cockpit.attach.payload import agent_source, wrap

pytestmark = needs_ptrace


def attached(pid: int) -> attach.Outcome:
    outcome = attach.run(attach.plan(pid))
    assert outcome.state == "attached", outcome
    return outcome


def test_a_process_that_ended_hides_no_agent_of_the_others(runs: Runs):
    finder = Finder()
    first, second = runs.start(), runs.start()
    attached(first.pid)
    attached(second.pid)
    assert [one.pid for one in finder.find_all([first.pid, second.pid])] == [first.pid, second.pid]
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert [one.pid for one in finder.find_all([first.pid, second.pid])] == [second.pid]  # zombie
    first.wait()
    assert [one.pid for one in finder.find_all([first.pid, second.pid])] == [second.pid]
    assert attach.detach(second.pid).state == "detached"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unprepared_run_answers_within_a_second_and_is_let_go(version: str, runs: Runs):
    child = runs.start(python=interpreter(version))
    planned = attach.plan(child.pid)
    assert planned.confirm.startswith(f"Attach to pid {child.pid}? Its main thread is paused")
    began = time.monotonic()
    outcome = attach.run(planned)
    assert time.monotonic() - began < 1
    assert outcome.state == "attached", outcome
    assert outcome.hello["pid"] == child.pid
    assert outcome.hello["python_version"].startswith(version)
    assert outcome.hello["attached_by"] == "ptrace"
    assert outcome.sentence == f"Attached to pid {child.pid} (no torch loaded yet)"
    assert [agent.pid for agent in Finder().find_all([os.getpid(), child.pid])] == [child.pid]
    assert attach.detach(child.pid).sentence == f"Detached from pid {child.pid}."
    assert find(child.pid) is None
    unharmed(child)


def test_names_of_main_are_neither_used_nor_changed(runs: Runs):
    child = runs.start(
        "import builtins\n"
        "compile = exec = open = print_ = b = pid = how = source = 'mine'\n"
        "before = dict(globals()); before.pop('before', None)\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "after = dict(globals()); after.pop('before'); after.pop('after', None)\n"
        "builtins.print(before == after, sorted(set(after) ^ set(before)), flush=True)\n"
    )
    # input() blocks in C: the pending call runs when the line comes, before the comparison.
    outcome = attach.run(attach.plan(child.pid), wait_s=0.2)
    assert outcome.state == "queued"
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "True []\n"


def test_a_second_attach_finds_the_first(runs: Runs):
    child = runs.start()
    attached(child.pid)
    planned = attach.plan(child.pid)
    assert planned.agent is not None
    assert planned.confirm == ""
    assert attach.run(planned).state == "attached"
    attach.detach(child.pid)


def test_a_main_thread_inside_a_c_call_is_queued_with_its_stack(runs: Runs):
    child = runs.start(BLOCKED)
    outcome = attach.run(attach.plan(child.pid), wait_s=0.3)
    assert (outcome.state, outcome.exit_code) == ("queued", 0)
    inside = "is inside <module> (<string>:4) and " if stacks.find_py_spy() else ""
    assert outcome.sentence == (
        f"The attach is queued: the main thread {inside}has run no Python for 0.3 s. "
        "It takes effect when that call returns."
    )
    assert attach.wait(outcome, 0.1).state == "queued"
    child.stdin.write("\n")
    child.stdin.flush()
    assert attach.wait(outcome).state == "attached"
    attach.detach(child.pid)
    unharmed(child)


def test_an_agent_that_raises_at_its_start_says_what_happened(runs: Runs):
    child = runs.start()
    source = "raise ValueError('no \\x1b[31mred\\nsecond line')"
    outcome = attach.run(attach.plan(child.pid), source=source)
    assert (outcome.state, outcome.code) == ("failed", "no_socket")
    assert outcome.sentence.startswith(
        f"The agent was loaded into pid {child.pid} but did not start (ValueError: no "
    )
    assert "\x1b" not in outcome.sentence
    assert "second" not in outcome.sentence
    assert not os.path.exists(outcome.reason_path)
    unharmed(child)


def test_an_agent_without_a_private_folder_names_the_folder(runs: Runs):
    folder = Path("/tmp") / f"cockpit-{os.geteuid()}"
    child = runs.start(
        "import os, stat\n"
        "real = os.lstat\n"
        "def open_to_all(path, *more):\n"
        "    found = real(path, *more)\n"
        "    if not str(path).startswith('/tmp/cockpit-'): return found\n"
        "    return os.stat_result([stat.S_IFDIR | 0o777, *found[1:]])\n"
        "os.lstat = open_to_all\n"
        "print('ready', flush=True)\n"
        "import time\n"
        "while True: time.sleep(0.01)\n"
    )
    outcome = attach.run(attach.plan(child.pid))
    assert (outcome.state, outcome.code) == ("failed", "no_socket")
    assert f"({folder} is no directory of its user with mode 0700)" in outcome.sentence
    unharmed(child)


def test_an_agent_that_opens_no_socket_and_says_nothing_is_a_sentence_of_its_own(runs: Runs):
    child = runs.start()
    source = "def attach(how): return 'nowhere'"
    outcome = attach.run(attach.plan(child.pid), wait_s=0.5, source=source)
    assert (outcome.state, outcome.code) == ("failed", "no_socket")
    assert "opened no socket and gave no reason" in outcome.sentence
    unharmed(child)


# The main thread lets the GIL go and takes it back every 3 ms: other threads do not get it at all.
STARVES = """
import hashlib, time
print("ready", flush=True)
end = time.monotonic() + 7
while True:
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    if time.monotonic() < end:
        hashlib.sha256(b"x" * 4000)
"""
# As if nobody had the socket's thread run: it listens, and answers after argv[1] s.
LATE = """
import json, os, select, socket, threading, time
def attach(how):
    folder = f"/tmp/cockpit-{os.geteuid()}"
    os.makedirs(folder, 0o700, exist_ok=True)
    path = f"{folder}/{os.getpid()}.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(4)
    def serve():
        time.sleep(%s)
        connection = listener.accept()[0]
        for line in connection.makefile("rb"):
            reply = {"v": 1, "id": json.loads(line)["id"], "ok": True, "data": {}}
            connection.sendall(json.dumps(reply).encode() + b"\\n")
    threading.Thread(target=serve, daemon=True).start()
    return path
"""


def test_a_starved_agent_is_waited_for_and_the_attach_is_done_when_it_answers(runs: Runs):
    child = runs.start(STARVES)
    said: list[str] = []
    outcome = attach.run(attach.plan(child.pid), say=said.append)
    assert outcome.state == "attached", outcome
    # Where it gets its turn early, nothing is said.
    assert all("its first answer is waited for" in one for one in said)


def test_an_answer_after_the_first_wait_is_still_an_attach(runs: Runs):
    child = runs.start(SLEEPS)
    said: list[str] = []
    outcome = attach.run(attach.plan(child.pid), wait_s=0.5, source=LATE % 2.5, say=said.append)
    assert outcome.state == "attached", outcome
    assert len(said) == 2
    os.unlink(outcome.agent.path)


def test_a_socket_without_an_answer_is_told_from_no_socket(runs: Runs):
    child = runs.start(SLEEPS)
    outcome = attach.run(attach.plan(child.pid), source=LATE % 60, answer_s=1)
    assert (outcome.state, outcome.code) == ("failed", "no_answer")
    assert outcome.sentence == (
        f"The agent of pid {child.pid} has its socket but has not answered for 1 s: "
        "the program keeps the GIL. It answers once that is let go."
    )
    os.kill(child.pid, signal.SIGSTOP)
    again = attach.run(attach.plan(child.pid))
    assert (again.code, "kill -CONT" in again.sentence) == ("no_answer", True)
    child.kill()
    child.wait()
    os.unlink(f"/tmp/cockpit-{os.geteuid()}/{child.pid}.sock")


def test_a_socket_at_which_nobody_listens_is_told_from_both(runs: Runs):
    child = runs.start(SLEEPS)
    source = (LATE % 1).replace("listener.listen(4)", "return path")
    outcome = attach.run(attach.plan(child.pid), wait_s=0.5, source=source)
    assert (outcome.state, outcome.code) == ("failed", "refused")
    os.unlink(f"/tmp/cockpit-{os.geteuid()}/{child.pid}.sock")


def test_a_process_that_ends_meanwhile_and_one_that_was_replaced(runs: Runs):
    child = runs.start(BLOCKED)
    outcome = attach.run(attach.plan(child.pid), wait_s=0.1)
    planned = attach.plan(child.pid)
    child.kill()
    child.wait()
    assert attach.wait(outcome, 1).state == "gone"
    assert attach.run(planned).state == "gone"
    other = runs.start()
    stale = attach.plan(other.pid)
    stale = replace(stale, verdict=replace(stale.verdict, start_ticks=1))
    assert (attach.run(stale).state, attach.run(stale).exit_code) == ("gone", 5)
    unharmed(other)


def test_detach_of_what_has_no_agent_and_of_what_is_gone(runs: Runs):
    child = runs.start()
    assert attach.detach(child.pid).sentence == (
        f"pid {child.pid} has no agent: nothing to detach."
    )
    child.kill()
    child.wait()
    assert attach.detach(child.pid).state == "gone"


def test_a_child_forked_while_the_attach_was_queued_gets_no_agent(runs: Runs):
    child = runs.start(
        "import os, time\n"
        "print('ready', flush=True)\n"
        "os.read(0, 1)\n"
        "pid = os.fork()\n"
        "print(pid or os.getpid(), flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    outcome = attach.run(attach.plan(child.pid), wait_s=0.1)
    child.stdin.write("\n")
    child.stdin.flush()
    assert attach.wait(outcome).state == "attached"
    forked = int(child.stdout.readline())
    time.sleep(0.2)
    assert find(forked) is None
    os.kill(forked, 9)
    attach.detach(child.pid)


def test_a_hundred_cycles_leave_the_result_as_it_was(runs: Runs, tmp_path: Path):
    child = runs.start(TRAINER, str(tmp_path / "stop"))
    for _ in range(100):
        began = time.monotonic()
        attached(child.pid)
        assert time.monotonic() - began < 1
        assert attach.detach(child.pid).state == "detached"
    unharmed(child)
    (tmp_path / "stop").touch()
    result = child.stdout.readline()
    assert result == undisturbed(runs, result)


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_process_with_a_mount_and_pid_namespace_of_its_own(runs: Runs):
    # A private /tmp inside, and the process is pid 1 there: as in a container.
    argv = ("unshare", "-m", "--propagation", "private", "-p", "--fork", "--kill-child")
    code = (
        "import os, subprocess\n"
        "assert subprocess.call(['mount', '-t', 'tmpfs', 'none', '/tmp']) == 0\n"
        "print('ready', flush=True)\n"
        "while True: sum(range(1000))\n"
    )
    outer = runs.start(code, before=argv)
    pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
    outcome = attached(pid)
    assert outcome.hello["pid"] == 1
    assert outcome.agent.path.startswith(f"/proc/{pid}/root/tmp/cockpit-")
    assert [(agent.pid, agent.inner_pid) for agent in Finder().find_all([pid])] == [(pid, 1)]
    assert not any(name == "1.sock" for name in os.listdir(f"/tmp/cockpit-{os.geteuid()}"))
    assert attach.detach(pid).state == "detached"
    assert outer.poll() is None


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_root_attaches_to_another_users_run(runs: Runs):
    if not os.path.exists("/usr/bin/python3.11"):
        pytest.skip("needs a Python that other users can run")
    child = runs.start(python="/usr/bin/python3.11", before=AS_OTHER_USER)
    outcome = attached(child.pid)
    assert outcome.agent.path.endswith(f"/tmp/cockpit-1002/{child.pid}.sock")
    assert attach.detach(child.pid).state == "detached"
    unharmed(child)


def test_many_clients_at_once_and_a_closed_one_leave_the_run_alone(runs: Runs):
    child = runs.start()
    agent = attached(child.pid).agent
    for _ in range(12):
        with Client.connect(child.pid, agent.path) as client:
            client._socket.sendall(b'{"v": 1, "id"')
    until(lambda: answers(child.pid, agent.path))
    attach.detach(child.pid)
    unharmed(child)


def answers(pid: int, path: str) -> bool:
    try:
        with Client.connect(pid, path) as client:
            return client.call("hello")["pid"] == pid
    except AgentError:
        return False


def test_what_is_sent_is_old_python_and_survives_its_wrapping():
    text = agent_source()
    ast.parse(text, feature_version=(3, 8))
    wrapped = wrap(text, 7, "ptrace", "")
    assert wrapped.isascii()
    assert "\0" not in wrapped
    namespace = {"__builtins__": __builtins__}
    inner = f"import sys\nsys.modules[{__name__!r}].RAN.append('top')\n" + (
        f"def attach(how):\n    sys.modules[{__name__!r}].RAN.append(how)\n"
    )
    RAN.clear()
    exec(wrap(inner, os.getpid(), "ptrace", ""), namespace)
    assert RAN == ["top", "ptrace"]
    assert set(namespace) == {"__builtins__"}
    exec(wrap(inner, os.getpid() + 1, "ptrace", ""), namespace)
    assert len(RAN) == 2


RAN: list[str] = []


@pytest.mark.skipif(stacks.find_py_spy() is None, reason="needs py-spy")
def test_stacks_name_the_line_and_what_cannot_be_read_is_a_sentence(runs: Runs):
    child = runs.start(BLOCKED)
    dumped = stacks.dump(child.pid)
    assert dumped.inside == "<module> (<string>:4)"
    assert dumped.main.os_thread_id == child.pid
    child.kill()
    child.wait()
    assert stacks.dump(child.pid).failure


def test_without_py_spy_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert stacks.dump(1).failure == "py-spy is not installed: pip install py-spy"


def test_a_py_spy_that_hangs_or_lies_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "py-spy"
    monkeypatch.setattr(stacks, "find_py_spy", lambda: str(program))
    for text, failure in (
        ("exec sleep 20", "py-spy did not answer within 0.3 s."),
        ("echo nonsense", "py-spy answered something that cannot be read."),
        ("echo 'Error: no\x1b[1m luck' >&2; exit 1", "py-spy: no^[[1m luck"),
        ("echo Permission Denied >&2; exit 1", "without more rights: use sudo."),
    ):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        assert failure in stacks.dump(1, 0.3).failure
