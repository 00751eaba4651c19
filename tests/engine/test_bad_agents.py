"""Agents that answer in the protocol's form and say nonsense: an error or a gap, never a crash."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cockpit.attach.client import AgentError
from cockpit.attach.discover import AgentSocket
from cockpit.engine import in_run
from cockpit.engine.runs import Runs
from cockpit.model.event import Event
from cockpit.model.gpu import Gpu
from cockpit.model.memory import RunRequest
from cockpit.model.run import Run
from tests.agent.talk import wait_for


class Liar:
    """Serves an agent's socket from this process; ``data`` may be changed while it runs."""

    def __init__(self, folder: Path) -> None:
        self.data: dict[str, Any] = {}
        self.path = str(folder / f"{os.getpid()}.sock")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile() as lines:
            for line in lines:
                request = json.loads(line)
                streams = request["op"] == "stream"
                told = self.data.get(request["op"], {})
                for data in told if streams else [told]:
                    reply = {"v": 1, "id": request["id"], "ok": True, "data": data}
                    connection.sendall(json.dumps(reply | {"stream": streams}).encode() + b"\n")


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    one = Liar(tmp_path)
    yield one
    one.server.shutdown(socket.SHUT_RDWR)
    one.server.close()


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ("empty_cache", {"before": ["x"], "step": "three"}),
        ("gc", {"before": [{"index": "x"}]}),
        ("profile", {"top": 5}),
        ("empty_cache", {"before": [{"index": 0, "reserved_bytes": "x"}]}),
    ],
)
def test_an_operations_answer_that_is_nonsense_is_an_error_with_a_sentence(
    liar: Liar, op: Any, told: dict[str, Any]
) -> None:
    liar.data[op] = told
    agent = AgentSocket(os.getpid(), os.getpid(), liar.path)
    with pytest.raises(AgentError, match="The answer cannot be read"):
        in_run.do(agent, RunRequest(pid=os.getpid(), op=op), lambda _: None, {})


def test_rows_of_devices_that_are_no_rows_are_passed_over(liar: Liar) -> None:
    liar.data["gc"] = {"before": ["x", {"index": 0}], "after": 7, "step": 3}
    agent = AgentSocket(os.getpid(), os.getpid(), liar.path)
    outcome = in_run.do(agent, RunRequest(pid=os.getpid(), op="gc"), lambda _: None, {0: 2})
    assert [row.gpu for row in outcome.before] == [2]
    assert outcome.after == ()


@pytest.mark.parametrize("rows", [["x"], [{"device": []}], [3]])
def test_a_segment_map_that_is_nonsense_is_an_error(liar: Liar, rows: list[Any]) -> None:
    liar.data["snapshot"] = {"segments": rows}
    agent = AgentSocket(os.getpid(), os.getpid(), liar.path)
    with pytest.raises(AgentError, match="The segment map cannot be read"):
        in_run.ask(agent, os.getpid(), "segments", False, {})


@pytest.mark.parametrize(
    "threads", [["x"], [{"name": "a"}], [{"name": "a", "frames": [["train.py", 3]]}], 5]
)
def test_stacks_that_are_nonsense_are_read_from_outside(
    liar: Liar, threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar.data["stacks"] = {"threads": threads}
    program = "print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()  # while it starts, there is no stack to read yet
    dump = in_run.stacks.dump
    monkeypatch.setattr(in_run.stacks, "dump", lambda _: dump(child.pid))
    agent = AgentSocket(os.getpid(), os.getpid(), liar.path)
    found = in_run.ask(agent, os.getpid(), "stacks", False, {})
    child.communicate(b"\n")
    assert found.read_by == "py-spy"
    assert found.sentence.startswith("What its agent says of the threads cannot be read")
    assert "GIL" not in found.sentence


def test_a_sample_of_nonsense_is_a_gap_and_the_next_good_one_is_heard(liar: Liar) -> None:
    liar.data |= {"hello": {"pid": os.getpid()}}
    good = {"step": 4, "devices": [{"index": 0, "ooms": 1}]}
    bad = {"step": 3, "devices": [{"index": [], "ooms": "x"}, "x"]}
    liar.data["stream"] = [{"devices": [{"index": 0, "ooms": 0}]}, bad]
    events: list[Event] = []
    runs = Runs(events.append, tidies=False)

    def row() -> Run:
        (found,) = runs.read((), (Gpu(index=0),))
        return found

    runs.note(AgentSocket(os.getpid(), os.getpid(), liar.path))
    wait_for(lambda: row().gaps == {"devices": "bad_reply"})
    assert runs.gpu_by_index(os.getpid()) == {0: 0}
    liar.data["stream"] = [good, good, {"step": 5, "devices": [{"index": 0, "ooms": 2}]}]
    wait_for(lambda: row().step == 5)
    wait_for(lambda: bool(events))
