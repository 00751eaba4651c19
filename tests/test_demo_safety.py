"""No code path from a demo or a replay reaches a signal, an attach or pip.

An audit hook, which Python code cannot take away, watches a fresh interpreter: it writes down every
attempt to signal, start or replace a process, and every import of the rooms that could.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FORBIDDEN_MODULES = ("cockpit.act", "cockpit.attach", "subprocess", "pynvml", "ctypes", "psutil")

WATCH = """
import json, sys

FORBIDDEN = (
    "os.kill", "os.killpg", "signal.pthread_kill", "subprocess.Popen", "os.posix_spawn",
    "os.spawn", "os.exec", "os.fork", "os.forkpty", "os.system", "os.startfile", "pty.spawn",
    "ctypes.dlopen", "ctypes.dlsym", "socket.connect", "socket.bind",
)
seen = []

def watch(event, arguments):
    if event in FORBIDDEN:
        seen.append(f"{event}{arguments!r}")
    elif event == "open" and str(arguments[0]).startswith(("/proc/", "/dev/nvidia")):
        seen.append(f"open {arguments[0]}")

sys.addaudithook(watch)

# without an audit event of its own in every version
import signal
if hasattr(signal, "pidfd_send_signal"):
    signal.pidfd_send_signal = lambda *a: seen.append("pidfd_send_signal")

def report(forbidden):
    found = sorted(
        m for m in sys.modules if any(m == f or m.startswith(f + ".") for f in forbidden)
    )
    return json.dumps({"seen": seen, "modules": found})
"""

EXERCISE = """
from cockpit.collect.demo_scenarios import SCENARIOS
from cockpit.collect.recording import RecordedMachine, RecordingWriter
from cockpit.collect.simulated import SimulatedMachine
from cockpit.errors import CockpitError
from cockpit.model.action import KillRequest, Target

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "KILL", "STOP", "CONT", "USR1", "USR2")
kills = 0

def exercise(machine):
    global kills
    machine.start()
    snapshot = machine.snapshot(1.0)
    machine.relatives(snapshot)
    pids = [p.pid for p in snapshot.processes][:20] + [1, 2, PARENT]
    for pid in pids:
        try:
            machine.details(pid, None)
        except CockpitError:
            pass
    for signal in SIGNALS:
        for job in (False, True):
            request = KillRequest(
                targets=tuple(Target(pid=p) for p in pids), signal=signal, job=job, grace_s=0.0
            )
            plan = machine.plan_kill(request)
            kills += len(machine.run_kill(plan.id, plan.typed, lambda sentence: None))
            machine.snapshot(1.0)

now = [0.0]
def demo(name):
    return SimulatedMachine(
        name, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )

for name in SCENARIOS:
    path = f"{FOLDER}/{name}.jsonl.gz"
    with RecordingWriter(path) as writer:
        writer.write(demo(name).snapshot(1.0))
    exercise(demo(name))
    exercise(RecordedMachine(path))
assert kills > 500, kills
"""


def watched(body: str) -> dict[str, list[str]]:
    run = subprocess.run(
        [sys.executable, "-c", WATCH + body + f"\nprint(report({FORBIDDEN_MODULES!r}))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_kills_in_a_demo_or_a_replay_reach_no_real_process(tmp_path: Path) -> None:
    values = f"import os\nPARENT = os.getppid()\nFOLDER = {str(tmp_path)!r}\n"
    assert watched(values + EXERCISE) == {"seen": [], "modules": []}


def test_the_watch_itself_sees_a_signal_a_fork_and_a_forbidden_module() -> None:
    found = watched("import os\nos.kill(os.getpid(), 0)\nimport subprocess\nos.system('true')\n")
    assert len(found["seen"]) == 2
    assert "subprocess" in found["modules"]


ENGINE = """
import os, threading

from cockpit.engine import __main__ as engine

def line(**message):
    return json.dumps(message).encode() + b"\\n"

asked, answered = os.pipe(), os.pipe()
shown = os.dup(1)
os.dup2(asked[0], 0)
os.dup2(answered[1], 1)

def drive():
    read = os.fdopen(answered[0], "rb")
    def reply():
        while True:
            message = json.loads(read.readline())
            if message["kind"] == "reply":
                return message
    for line_ in read:
        if json.loads(line_)["kind"] == "tick":
            break
    for pid in PIDS:
        target = {"pid": pid, "start_ticks": None}
        request = {"targets": [target], "signal": "KILL", "named": True, "job": True}
        os.write(asked[1], line(kind="ask_kill_plan", id=1, request=request))
        plan = reply()["plan"]
        os.write(asked[1], line(kind="run_kill", id=2, plan=plan["id"], typed=None))
        reply()
        os.write(asked[1], line(kind="ask_details", id=3, pid=pid, start_ticks=None))
        reply()
    os.close(asked[1])
    for _ in read:
        pass

driver = threading.Thread(target=drive, daemon=True)
driver.start()
status = engine.main([json.dumps(OPTIONS)])
os.dup2(shown, 1)
assert status == 0
"""


@pytest.mark.skipif(
    importlib.util.find_spec("cockpit.engine.__main__") is None, reason="no engine yet"
)
@pytest.mark.parametrize("source", ["demo", "replay"])
def test_the_engine_of_a_demo_or_a_replay_reaches_no_real_process(
    source: str, tmp_path: Path
) -> None:
    from cockpit.collect.recording import RecordingWriter
    from cockpit.collect.simulated import SimulatedMachine

    path = str(tmp_path / "r.jsonl")
    with RecordingWriter(path) as writer:
        writer.write(SimulatedMachine("stray").snapshot(1.0))
    options = {"demo": "stray"} if source == "demo" else {"replay": path}
    values = f"OPTIONS = {options!r}\nimport os\nPIDS = [5233, 5240, 5602, os.getppid(), 1]\n"
    assert watched(values + ENGINE) == {"seen": [], "modules": []}
