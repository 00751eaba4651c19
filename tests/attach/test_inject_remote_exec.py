"""The remote_exec way: whose interpreter runs, as whom, for how long, and what is left behind.

A real 3.14 takes part where one is at hand; else a stand-in plays the target's interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from glob import glob
from pathlib import Path

import pytest
from attaching import AS_OTHER_USER, Runs, interpreter, needs_root

from cockpit.attach import attach, inject_remote_exec
from cockpit.attach.inject_remote_exec import CALLER, RemoteExec, remote_exec
from cockpit.attach.target import look


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``stand_in(code)``: what runs instead of the target's interpreter."""

    def make(code: str) -> None:
        program = tmp_path / "python3.14"
        program.write_text(f"#!/usr/bin/env python3\n{code}\n")
        program.chmod(0o755)
        tmp_path.chmod(0o755)
        real = os.readlink

        def readlink(path: str, **options: object) -> str:
            return str(program) if str(path).endswith("/exe") else real(path, **options)

        monkeypatch.setattr(inject_remote_exec.os, "readlink", readlink)

    return make


def test_its_answer_is_understood(runs: Runs, stand_in):
    target = look(runs.start().pid)
    for answer, expected in (
        ("queued /tmp/cockpit-attach-x.py", RemoteExec(True, script="/tmp/cockpit-attach-x.py")),
        ("refused RuntimeError Remote debugging is not enabled in the remote process", "disabled"),
        ("refused PermissionError [Errno 13] Permission denied", "not_permitted"),
        ("refused RuntimeError PyRuntime address lookup failed", "failed"),
        ("queued /etc/passwd", "failed"),
        ("", "failed"),
    ):
        stand_in(f"print({answer!r})")
        done = remote_exec(target, "0")
        if isinstance(expected, RemoteExec):
            assert done == expected
        else:
            assert (done.ok, done.code) == (False, expected)
            assert done.sentence.endswith((".", ")."))


def test_it_is_isolated_and_gets_next_to_no_environment(
    runs: Runs, stand_in, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_THE_COCKPIT", "1")
    stand_in(
        "import os, sys, json\n"
        "print('refused', 'X', json.dumps([sys.argv[1:4], sorted(os.environ), os.getcwd()]))"
    )
    child = runs.start()
    words = remote_exec(look(child.pid), "0").sentence
    assert '"-I", "-S", "-c"' in words
    assert "SECRET" not in words


def test_it_is_ended_after_its_time(runs: Runs, stand_in):
    stand_in("import time; time.sleep(30)")
    began = time.monotonic()
    done = remote_exec(look(runs.start().pid), "0", limit_s=0.5)
    assert (done.ok, done.code) == (False, "failed")
    assert time.monotonic() - began < 2


@needs_root
def test_as_root_it_runs_with_its_owners_ids(runs: Runs, stand_in, tmp_path: Path):
    if not os.path.exists("/usr/bin/python3.11"):
        pytest.skip("needs a Python that other users can run")
    for folder in [tmp_path, *tmp_path.parents][:4]:
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    stand_in(
        "import os, json\n"
        "print('refused', 'X', json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]))"
    )
    child = runs.start(python="/usr/bin/python3.11", before=AS_OTHER_USER)
    words = remote_exec(look(child.pid), "0").sentence
    found = json.loads(words[words.index("[") : words.rindex("]") + 1])
    assert found == [[1002] * 3, [1002] * 3, []]


def test_what_it_runs_leaves_no_file_when_it_is_refused():
    before = set(glob("/tmp/cockpit-attach-*"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CALLER, "1", "cockpit-attach-0-1-2-"],
        input=b"0",
        capture_output=True,
    )
    if sys.version_info < (3, 14):
        assert done.stdout.startswith(b"refused AttributeError")
    assert set(glob("/tmp/cockpit-attach-*")) == before


def test_the_script_removes_itself_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = "import sys\nsys.remote_exec = lambda pid, path: exec(open(path).read(), {})\n"
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", fake + CALLER, "1", "cockpit-attach-0-1-2-"],
        input=f"open({str(out)!r}, 'w').write('ran')".encode(),
        capture_output=True,
        text=False,
    )
    word, path = done.stdout.decode().split()
    assert (word, out.read_text(), os.path.exists(path)) == ("queued", "ran", False)


def test_a_real_3_14_is_attached_without_a_pause(runs: Runs):
    child = runs.start(python=interpreter("3.14"))
    outcome = attach.run(attach.plan(child.pid))
    assert (outcome.state, outcome.stopped_ms) == ("attached", None)
    assert outcome.hello["attached_by"] == "remote_exec"
    assert attach.detach(child.pid).state == "detached"
