"""The socket and what comes over it: a program without torch carries the agent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cockpit.agent.agent import (
    MAX_CLIENTS,
    MAX_REQUEST_BYTES,
    MAX_REQUESTS_PER_S,
    OPERATIONS,
    Code,
    private_directory,
    socket_directories,
)
from tests.agent.talk import ROOT, Program, Talk, running, wait_for


def thread_names(pid: int) -> list[str]:
    return [p.read_text().strip() for p in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_hello_says_who_it_is(plain: Program) -> None:
    with plain.talk() as talk:
        hello = talk.data("hello")
    ticks = Path(f"/proc/{plain.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert hello["pid"] == plain.pid
    assert hello["start_ticks"] == int(ticks)
    assert hello["attached_by"] == "import"
    assert hello["torch_version"] is None
    assert "torch has not been imported" in hello["note"]


def test_stacks_name_the_line_of_every_thread_but_the_agents(plain: Program) -> None:
    with plain.talk() as talk:
        threads = talk.data("stacks")["threads"]
    assert [t["name"] for t in threads] == ["MainThread"]
    assert threads[0]["main"]
    assert "waits_here" in [frame[2] for frame in threads[0]["frames"]]


@pytest.mark.parametrize("op", sorted(OPERATIONS - {"detach", "stream"}))
def test_every_operation_answers_without_torch(plain: Program, op: str) -> None:
    with plain.talk() as talk:
        reply = talk.ask(op)
    assert reply["ok"] or reply["code"] in get_args(Code)
    assert reply["ok"] or reply["error"].endswith((".", ")"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"v":1}',
        b'{"v":1,"id":true,"op":"hello"}',
        b'{"v":2,"id":1,"op":"hello"}',
        b'{"v":1,"id":1,"op":"nothing"}',
        b'{"v":1,"id":1,"op":"__init__"}',
        b'{"v":1,"id":1,"op":"stream","hz":"1"}',
        b'{"v":1,"id":1,"op":"stream","hz":NaN}',
        b'{"v":1,"id":1,"op":"stream","hz":11}',
        b"[" * 60_000,
        b"\xff\xfe",
    ],
    ids=lambda line: repr(line[:40]),
)
def test_a_bad_line_is_refused_and_the_next_is_answered(plain: Program, line: bytes) -> None:
    with plain.talk() as talk:
        talk.socket.sendall(line + b"\n")
        assert not line or talk.read()["code"] == "bad_request"
        assert talk.data("hello")["pid"] == plain.pid


def test_any_bytes_harm_nobody(plain: Program) -> None:
    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.binary(max_size=400), st.booleans())
    def send(data: bytes, whole: bool) -> None:
        wait_for(lambda: can_connect(plain.path))
        with plain.talk() as talk:
            try:
                talk.socket.sendall(data + (b"\n" if whole else b""))
            except OSError:
                return

    send()
    wait_for(lambda: can_connect(plain.path))
    time.sleep(1.1)
    with plain.talk() as talk:
        assert talk.data("hello")["pid"] == plain.pid
    assert plain.end() == (b"", b"")


def can_connect(path: str) -> bool:
    try:
        with Talk(path) as talk:
            return bool(talk.ask("stats")["ok"])
    except (OSError, EOFError):
        return False


def test_a_line_without_end_ends_the_connection_only(plain: Program) -> None:
    def send_without_end(talk: Talk) -> None:
        for _ in range(40):
            talk.socket.sendall(b"x" * (MAX_REQUEST_BYTES // 16))
        assert talk.read()["code"] == "bad_request"
        talk.read()

    with plain.talk() as talk, plain.talk() as other:
        with pytest.raises((EOFError, OSError)):
            send_without_end(talk)
        assert other.data("hello")["pid"] == plain.pid


def test_a_half_line_waits_for_its_end(plain: Program) -> None:
    with plain.talk() as talk:
        talk.socket.sendall(b'{"v":1,"id":9,')
        time.sleep(0.1)
        talk.socket.sendall(b'"op":"stats"}\n')
        assert talk.read()["id"] == 9


def test_the_fifth_client_is_refused_and_a_place_becomes_free(plain: Program) -> None:
    talks = [plain.talk() for _ in range(2 * MAX_CLIENTS)]
    answers = []
    for talk in talks:
        try:
            answers.append(talk.ask("stats")["ok"])
        except (EOFError, OSError):
            answers.append(False)
    assert answers == [True] * MAX_CLIENTS + [False] * MAX_CLIENTS
    for talk in talks:
        talk.close()
    wait_for(lambda: can_connect(plain.path))


def test_silent_connections_make_room(plain: Program) -> None:
    silent = [plain.talk() for _ in range(MAX_CLIENTS)]
    time.sleep(2.2)
    with plain.talk() as talk:
        assert talk.data("hello")["pid"] == plain.pid
        with pytest.raises((EOFError, OSError)):
            silent[0].ask("hello")
        assert silent[1].ask("hello")["ok"]
    for other in silent:
        other.close()


def test_a_silent_connection_is_closed_and_a_stream_is_not(plain: Program) -> None:
    with plain.talk() as silent, plain.talk() as stream:
        number = stream.send("stream", hz=1)
        silent.socket.sendall(b'{"half')
        began = time.monotonic()
        with pytest.raises(EOFError):
            silent.read()
        assert 9 < time.monotonic() - began < 12
        assert stream.read()["id"] == number


def test_detach_gets_through_four_streams(plain: Program) -> None:
    streams = [plain.talk() for _ in range(MAX_CLIENTS)]
    for stream in streams:
        stream.send("stream", hz=10)
        stream.read()
    with plain.talk() as talk:
        assert talk.ask("stats")["code"] == "busy"
    with plain.talk() as talk:
        assert talk.data("hello")["pid"] == plain.pid
        assert talk.data("detach") == {"oom_observer_stays": False}
    wait_for(lambda: "cockpit-agent" not in thread_names(plain.pid))


def test_more_than_twenty_requests_a_second_are_refused(plain: Program) -> None:
    with plain.talk() as talk:
        replies = [talk.ask("stats") for _ in range(MAX_REQUESTS_PER_S + 10)]
        refused = [r for r in replies if not r["ok"]]
        assert refused
        assert {r["code"] for r in refused} == {"rate"}
        time.sleep(0.5)
        assert talk.ask("stats")["ok"]


def test_a_flood_is_disconnected(plain: Program) -> None:
    line = b'{"v":1,"id":1,"op":"stacks"}\n'

    def flood(talk: Talk) -> None:
        talk.socket.sendall(line * 1000)
        for _ in range(1000):
            talk.read()

    with plain.talk() as talk, pytest.raises((EOFError, OSError)):
        flood(talk)
    assert can_connect(plain.path)


def test_a_stream_comes_at_its_rate_until_it_is_stopped(plain: Program) -> None:
    with plain.talk() as talk:
        began = time.monotonic()
        number = talk.send("stream", hz=10)
        replies = [talk.read() for _ in range(6)]
        took = time.monotonic() - began
        assert all(r["stream"] and r["id"] == number and r["ok"] for r in replies)
        assert 0.4 < took < 1.0
        assert talk.data("stop") == {"stopped": True}
        talk.socket.settimeout(0.4)
        with pytest.raises(OSError):
            talk.read()


def test_a_slow_reader_is_dropped_and_hinders_no_other(plain: Program) -> None:
    with plain.talk() as slow, plain.talk() as other:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.send("stream", hz=10)
        for _ in range(12):
            for _ in range(15):
                slow.send("stacks")
            began = time.monotonic()
            assert other.ask("stats")["id"]
            assert time.monotonic() - began < 0.5
            time.sleep(0.8)
        assert can_connect(plain.path)


def test_a_client_that_goes_away_is_forgotten(plain: Program) -> None:
    before = len(os.listdir(f"/proc/{plain.pid}/fd"))
    for _ in range(10):
        talk = plain.talk()
        talk.send("stream", hz=10)
        talk.close()
    wait_for(lambda: len(os.listdir(f"/proc/{plain.pid}/fd")) == before)


def test_the_thread_sleeps_while_nobody_asks(plain: Program) -> None:
    with plain.talk() as talk:
        talk.data("hello")
    task = next(
        p.parent
        for p in Path(f"/proc/{plain.pid}/task").glob("*/comm")
        if p.read_text().strip() == "cockpit-agent"
    )

    def switches() -> int:
        text = (task / "status").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)

    time.sleep(0.3)
    before = switches()
    time.sleep(1.0)
    assert switches() == before


def test_socket_and_folder_are_private(plain: Program) -> None:
    assert stat.S_IMODE(os.stat(plain.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(plain.folder).st_mode) == 0o700


@pytest.mark.parametrize("harm", ["open to others", "a link", "a file"])
def test_an_untrusted_folder_is_not_used(folder: str, harm: str) -> None:
    path = f"{folder}/place"
    if harm == "a link":
        os.mkdir(f"{folder}/real", 0o700)
        os.symlink(f"{folder}/real", path)
    elif harm == "a file":
        Path(path).touch()
    else:
        os.mkdir(path)
        os.chmod(path, 0o777)
    assert not private_directory(path)


def test_the_runtime_folder_comes_first() -> None:
    assert socket_directories(7, "/run/user/7") == ["/run/user/7/cockpit", "/tmp/cockpit-7"]
    assert socket_directories(7, None) == ["/tmp/cockpit-7"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_another_user_is_refused(plain: Program) -> None:
    os.chmod(plain.folder, 0o755)
    os.chmod(plain.path, 0o777)
    code = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])\n"
        'try:\n s.sendall(b\'{"v":1,"id":1,"op":"hello"}\\n\')\n print(len(s.recv(100)))\n'
        "except OSError: print(0)\n"
    )
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", python]
    run = subprocess.run([*command, "-c", code, plain.path], capture_output=True, text=True)
    if run.returncode:
        pytest.skip(f"no Python for another user: {run.stderr[-200:]}")
    assert run.stdout.strip() == "0"
    assert can_connect(plain.path)


def test_detach_leaves_neither_thread_nor_socket_nor_descriptor(plain: Program) -> None:
    with plain.talk() as talk:
        assert talk.data("detach") == {"oom_observer_stays": False}
    wait_for(lambda: "cockpit-agent" not in thread_names(plain.pid))
    assert not os.path.exists(plain.path)
    links = [os.readlink(p) for p in Path(f"/proc/{plain.pid}/fd").iterdir() if p.is_symlink()]
    assert not [link for link in links if "eventpoll" in link or "socket" in link]
    log = plain.audit()
    assert [line["op"] for line in log] == ["detach"]
    assert plain.end() == (b"", b"")


def test_a_normal_end_removes_the_socket(folder: str) -> None:
    code = f"import cockpit.agent as a; print(a.attach(directory={folder!r}))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.strip().endswith(".sock")
    assert os.listdir(folder) == []


def test_what_a_killed_program_left_does_not_hinder_the_next(folder: str) -> None:
    with running(sys.executable, "plain.py", folder) as program:
        program.wait_socket()
        program.process.send_signal(signal.SIGKILL)
        program.process.wait()
        assert os.path.exists(program.path)
        with pytest.raises(ConnectionRefusedError):
            Talk(program.path)
    code = (
        "import os, cockpit.agent.agent as a\n"
        f"real = os.getpid; os.getpid = lambda: {program.pid}\n"
        f"agent = a.Agent('import', {folder!r}, False); print(agent.open_socket())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert run.stdout.strip() == "True", run.stderr


def test_it_starts_from_its_source_alone_and_only_once(folder: str) -> None:
    code = f"""
import sys
source = open({str(ROOT / "cockpit/agent/agent.py")!r}).read()
def inject():
    names = {{}}
    exec(compile(source, "<cockpit agent>", "exec"), names)
    return names["attach"](how="ptrace", directory={folder!r}), names["detach"]
import os
before = len(os.listdir("/proc/self/fd"))
first, second = inject(), inject()
assert first[0] == second[0], (first, second)
import os
assert len(os.listdir("/proc/self/task")) == 2
assert first[1]()
import time; time.sleep(0.1)
assert len(os.listdir("/proc/self/task")) == 1
for _ in range(100):
    path, detach = inject()
    assert path and detach()
time.sleep(0.1)
assert len(os.listdir("/proc/self/fd")) == before, os.listdir("/proc/self/fd")
assert "torch" not in sys.modules and not [n for n in sys.modules if n.startswith("cockpit")]
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_attach_never_raises_and_says_nothing(folder: str) -> None:
    Path(f"{folder}/file").touch()
    code = f"""
import cockpit.agent as a
assert a.attach(how="nonsense", directory={folder + "/file"!r}) is None
assert a.attach(how=None, directory=7) is None
assert a.detach() is True
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_four_clients_at_once_get_their_own_answers(plain: Program) -> None:
    wrong = []

    def ask() -> None:
        with plain.talk() as talk:
            for _ in range(10):
                if talk.ask("hello")["data"]["pid"] != plain.pid:
                    wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(MAX_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_older_and_newer_interpreters_carry_it(folder: str, version: str) -> None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(found[-1]) if found else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no Python {version} here")
    with running(python, "plain.py", folder) as program:
        with program.wait_socket().talk() as talk:
            assert talk.data("hello")["python_version"].startswith(version)
            assert talk.data("stacks")["threads"][0]["frames"]
        assert program.end() == (b"", b"")
