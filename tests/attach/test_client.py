"""The client against a server that behaves well, badly, or not at all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.attach import client as client_module
from cockpit.attach.client import (
    AgentError,
    Client,
    EndedError,
    NoAnswerError,
    NotTrustedError,
)

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """``serve(function)`` → the path of a socket; the function gets each connection."""
    servers = []

    def start(handle: Callable[[socket.socket], None], folder: Path = tmp_path) -> str:
        path = str(folder / "1.sock")
        server = socket.socket(socket.AF_UNIX)
        here = os.open(folder, os.O_PATH)
        server.bind(f"/proc/self/fd/{here}/1.sock")
        os.close(here)
        server.listen(4)
        servers.append(server)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    handle(connection)

        threading.Thread(target=accept, daemon=True).start()
        return path

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def answers(*lines: object) -> Callable[[socket.socket], None]:
    """Reads one request; answers with the lines (dicts get the request's id)."""

    def handle(connection: socket.socket) -> None:
        request = json.loads(connection.makefile().readline() or '{"id": 0}')
        for line in lines:
            if isinstance(line, dict):
                line = json.dumps({"v": 1, "id": request["id"], **line}).encode() + b"\n"
            try:
                connection.sendall(line)
            except OSError:
                return
        connection.settimeout(5)
        connection.recv(1)

    return handle


def connect(path: str) -> Client:
    return Client.connect(os.getpid(), path)


def test_an_answer_is_its_data(serve: Serve):
    with connect(serve(answers({"ok": True, "data": {"pid": 7}}))) as client:
        assert client.call("hello") == {"pid": 7}


def test_lines_that_answer_something_else_are_passed_over(serve: Serve):
    other = {"ok": True, "stream": True, "data": {"old": 1}}
    path = serve(answers(other, {"id": 99, "ok": True}, {"ok": True, "data": {"new": 2}}))
    with connect(path) as client:
        assert client.call("stats") == {"new": 2}


def test_a_refusal_has_the_agents_code_and_its_sentence_cleaned(serve: Serve):
    said = {"ok": False, "code": "no_step", "error": "No optimizer\x1b[31m step\nwithin 10 s"}
    with connect(serve(answers(said))) as client, pytest.raises(AgentError) as caught:
        client.call("gc")
    assert caught.value.code == "no_step"
    assert str(caught.value) == "No optimizer^[[31m step^Jwithin 10 s"


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"v": 1, "id": 1}\n',
        b'{"v": "1", "id": 1, "ok": true}\n',
        b'{"v": 1, "id": 1, "ok": true, "data": 3}\n',
        b'{"v": 2, "id": 1, "ok": true}\n',
        b"[" * 100_000 + b"\n",
        b"\n",
    ],
)
def test_what_is_not_the_protocol_is_a_sentence(serve: Serve, garbage: bytes):
    with connect(serve(answers(garbage))) as client, pytest.raises(AgentError) as caught:
        client.call("hello")
    assert caught.value.code == "bad_reply"


def test_a_line_without_end_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "MAX_REPLY_BYTES", 1 << 20)
    with connect(serve(answers(b"x" * (2 << 20)))) as client, pytest.raises(AgentError) as caught:
        client.call("hello")
    assert caught.value.code == "bad_reply"


def test_a_long_answer_arrives_whole(serve: Serve):
    with connect(serve(answers({"ok": True, "data": {"map": "y" * (4 << 20)}}))) as client:
        assert len(client.call("snapshot", limit_s=10)["map"]) == 4 << 20


def test_silence_ends_at_the_deadline(serve: Serve):
    with connect(serve(answers())) as client:
        began = time.monotonic()
        with pytest.raises(NoAnswerError):
            client.call("hello", limit_s=0.2)
        assert 0.15 < time.monotonic() - began < 1


def test_half_a_line_drop_by_drop_ends_at_the_same_deadline(serve: Serve):
    def drip(connection: socket.socket) -> None:
        for _ in range(200):
            try:
                connection.sendall(b"{")
            except OSError:
                return
            time.sleep(0.02)

    with connect(serve(drip)) as client:
        began = time.monotonic()
        with pytest.raises(NoAnswerError):
            client.call("hello", limit_s=0.3)
        assert time.monotonic() - began < 1


def test_a_closed_connection_is_an_end(serve: Serve):
    with connect(serve(lambda connection: None)) as client, pytest.raises(EndedError):
        client.call("hello")


def test_a_socket_that_nobody_serves_and_one_that_is_not_there(tmp_path: Path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "1.sock"))
    dead.close()
    with pytest.raises(EndedError) as caught:
        connect(str(tmp_path / "1.sock"))
    assert caught.value.refused
    with pytest.raises(EndedError) as caught:
        connect(str(tmp_path / "2.sock"))
    assert not caught.value.refused
    with pytest.raises(AgentError):
        connect(str(tmp_path / "no" / "folder.sock"))


def test_another_process_behind_the_socket_is_not_trusted(tmp_path: Path):
    path = tmp_path / "1.sock"
    code = (
        "import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n"
        "s.listen()\nprint('ready', flush=True)\nsys.stdin.read()\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        server.stdout.readline()
        with pytest.raises(NotTrustedError) as caught:
            connect(str(path))
        pid = os.getpid()
        expected = f"The socket of pid {pid} is served by pid {server.pid}: not trusted."
        assert str(caught.value) == expected
        Client.connect(server.pid, str(path)).close()
    finally:
        server.stdin.close()
        server.wait(5)
        server.stdout.close()


def test_a_path_longer_than_an_address_is_reached(serve: Serve, tmp_path: Path):
    folder = tmp_path.joinpath(*["a" * 60] * 4)
    folder.mkdir(parents=True)
    path = serve(answers({"ok": True, "data": {}}), folder)
    assert len(path) > 200
    with connect(path) as client:
        assert client.call("hello") == {}


def test_a_stream_gives_samples_until_it_is_closed_from_another_thread(serve: Serve):
    def endless(connection: socket.socket) -> None:
        request = json.loads(connection.makefile().readline())
        assert (request["op"], request["hz"]) == ("stream", 50)
        for count in range(10_000):
            line = {"v": 1, "id": 1, "ok": True, "stream": True, "data": {"n": count}}
            try:
                connection.sendall(json.dumps(line).encode() + b"\n")
            except OSError:
                return
            time.sleep(0.01)

    client = connect(serve(endless))
    seen = []

    def follow() -> None:
        for sample in client.stream(50):
            seen.append(sample["n"])

    threading.Timer(0.3, client.close).start()
    with pytest.raises(AgentError):
        follow()
    assert seen == list(range(len(seen)))
    assert len(seen) > 5


def test_a_stream_that_falls_silent_says_so(serve: Serve):
    line = {"ok": True, "stream": True, "data": {"n": 1}}
    with connect(serve(answers(line))) as client:
        samples = client.stream(10, limit_s=0.2)
        assert next(samples) == {"n": 1}
        with pytest.raises(NoAnswerError):
            next(samples)


def test_a_request_that_is_too_long_is_not_sent(serve: Serve):
    with connect(serve(answers())) as client, pytest.raises(AgentError) as caught:
        client.call("set", name="x", value="y" * 70_000)
    assert caught.value.code == "bad_request"
