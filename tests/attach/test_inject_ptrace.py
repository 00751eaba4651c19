"""The ptrace way in, on real processes: it runs what it was given, and nothing else changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attaching import (
    BLOCKED,
    BUSY,
    PROGRAMS,
    ROOT,
    TRAINER,
    VERSIONS,
    Runs,
    interpreter,
    needs_ptrace,
    ticks,
    undisturbed,
    unharmed,
    until,
)

from cockpit.attach.inject_ptrace import inject, still_queued

pytestmark = needs_ptrace


def source(out: Path, word: str = "x") -> str:
    """Appends a word to a file, as the agent's wrapper would: no name is bound."""
    return f"try:\n    open({str(out)!r}, 'a').write({word!r})\nexcept:\n    pass\n"


def inject_into(child: subprocess.Popen[str], text: str):
    return inject(child.pid, ticks(child.pid), text)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_source_runs_once_each_time_and_the_program_goes_on(
    version: str, program: str, runs: Runs, tmp_path: Path
):
    out = tmp_path / "out"
    child = runs.start(PROGRAMS[program], python=interpreter(version))
    for count in range(1, 6):
        done = inject_into(child, source(out))
        assert done.ok, done.sentence
        until(lambda wanted=count: out.exists() and len(out.read_text()) == wanted)
        until(lambda page=done.page: not still_queued(child.pid, page))
    unharmed(child)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_source_that_raises_or_cannot_be_compiled_does_not_reach_the_program(
    version: str, runs: Runs
):
    child = runs.start(python=interpreter(version))
    for text in ("raise SystemError('ours')", "this is not Python", "import sys; sys.exit(3)")[:2]:
        done = inject_into(child, text)
        assert done.ok
        until(lambda page=done.page: not still_queued(child.pid, page))
    unharmed(child)


def test_a_static_interpreter_without_libpython_works_too(runs: Runs, tmp_path: Path):
    python = "/usr/bin/python3.11"
    if not os.path.exists(python) or "libpython" in subprocess.getoutput(f"ldd {python}"):
        pytest.skip("no static CPython here")
    out = tmp_path / "out"
    child = runs.start(python=python)
    assert inject_into(child, source(out)).ok
    until(out.exists)
    unharmed(child)


def test_a_blocked_main_thread_takes_it_when_its_call_returns(runs: Runs, tmp_path: Path):
    out = tmp_path / "out"
    child = runs.start(BLOCKED)
    done = inject_into(child, source(out))
    assert done.ok
    time.sleep(0.1)
    assert still_queued(child.pid, done.page)
    assert not out.exists()
    child.stdin.write("\n")
    child.stdin.flush()
    until(out.exists)
    until(lambda: not still_queued(child.pid, done.page))
    unharmed(child)


def test_a_full_queue_is_refused_and_its_mapping_taken_back(runs: Runs, tmp_path: Path):
    child = runs.start(BLOCKED, python=interpreter("3.11"))
    before = Path(f"/proc/{child.pid}/maps").read_text().count("\n")
    results = [inject_into(child, source(tmp_path / "out")) for _ in range(40)]
    assert sum(done.ok for done in results) == 31  # NPENDINGCALLS less the one that marks full
    refused = next(done for done in results if not done.ok)
    assert (refused.code, refused.page) == ("busy", 0)
    assert Path(f"/proc/{child.pid}/maps").read_text().count("\n") <= before + 31
    child.stdin.write("\n")
    child.stdin.flush()
    until(lambda: (tmp_path / "out").exists() and len((tmp_path / "out").read_text()) == 31)
    unharmed(child)


def test_a_signal_that_comes_meanwhile_is_neither_lost_nor_doubled(runs: Runs, tmp_path: Path):
    out = tmp_path / "out"
    child = runs.start(
        "import signal, time\n"
        "count = 0\n"
        "def seen(*_):\n"
        "    global count\n"
        "    count += 1\n"
        f"    open({str(out)!r}, 'w').write(str(count))\n"
        "signal.signal(signal.SIGUSR1, seen)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    for count in range(1, 41):
        os.kill(child.pid, signal.SIGUSR1)
        assert inject_into(child, "0").ok
        until(lambda wanted=count: out.exists() and out.read_text() == str(wanted))
    unharmed(child)


def test_an_interrupted_sleep_is_neither_shorter_nor_longer(runs: Runs):
    child = runs.start(
        "import time\n"
        "print('ready', flush=True)\n"
        "began = time.monotonic()\n"
        "time.sleep(1)\n"
        "print(time.monotonic() - began)\n"
    )
    for _ in range(5):
        assert inject_into(child, "0").ok
    assert 0.999 < float(child.stdout.readline()) < 2  # a full machine wakes it late


def test_a_process_stopped_just_before_is_refused_and_stays_stopped(runs: Runs):
    child = runs.start()
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "T")
    done = inject_into(child, "0")
    assert (done.ok, done.code) == (False, "stopped")
    assert f"kill -CONT {child.pid}" in done.sentence
    # The kernel wakes it for a moment, from the tracer's stop into the stop of the signal.
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "T")
    os.kill(child.pid, signal.SIGCONT)
    unharmed(child)


def test_another_start_time_is_another_process(runs: Runs):
    child = runs.start()
    done = inject(child.pid, ticks(child.pid) - 1, "0")
    assert (done.ok, done.code) == (False, "gone")
    unharmed(child)


def test_what_is_no_python_and_what_is_gone_are_said():
    child = subprocess.Popen(["sleep", "100"])
    try:
        assert inject(child.pid, ticks(child.pid), "0").code == "not_python"
        start = ticks(child.pid)
    finally:
        child.kill()
        child.wait()
    assert inject(child.pid, start, "0").code == "gone"


# One ptrace request a step, as strace would number them.
DIES = """
import os, sys
from cockpit.attach import inject_ptrace, ptrace
last, count, request = int(sys.argv[3]), 0, ptrace.Tracee._request
def counted(self, number, address=0, data=0):
    global count
    request(self, number, address, data)
    count += 1
    if count == last:
        os._exit(9)
ptrace.Tracee._request = counted
print(inject_ptrace.run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[4].encode()))
"""


@pytest.mark.parametrize("program", ["busy", "sleeps", "selects", "floats", "receives"])
def test_the_tracers_death_at_any_step_leaves_a_running_program(
    program: str, runs: Runs, tmp_path: Path
):
    out, dead, step = tmp_path / "out", [], 0
    while True:
        step += 1
        child = runs.start(PROGRAMS[program], python=interpreter("3.12"))
        argv = [str(child.pid), str(ticks(child.pid)), str(step), source(out)]
        tracer = subprocess.run(
            [sys.executable, "-c", DIES, *argv], cwd=ROOT, capture_output=True, text=True
        )
        time.sleep(0.1)
        if child.poll() is not None:
            dead.append((step, child.returncode, child.stderr.read()))
        else:
            unharmed(child, 0)
        child.kill()
        if tracer.returncode == 0:
            break
        assert tracer.returncode == 9, tracer.stderr
    assert step > 15
    assert dead == []


def test_two_hundred_injections_change_no_result(runs: Runs, tmp_path: Path):
    child = runs.start(TRAINER, str(tmp_path / "stop"))
    for _ in range(200):
        done = inject_into(child, "0")
        assert done.ok, done.sentence
    unharmed(child)
    (tmp_path / "stop").touch()
    result = child.stdout.readline()
    assert result == undisturbed(runs, result)


def test_a_busy_allocator_survives_many_injections(runs: Runs):
    child = runs.start(BUSY)
    for _ in range(50):
        assert inject_into(child, "gc = [object() for _ in range(100)]\ndel gc").ok
    unharmed(child)
