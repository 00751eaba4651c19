"""Looks at real processes: a real DataLoader of a real torch, a real ``.item()``, a real scan."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cockpit import procfs
from cockpit.collect.cpu_runs import CpuRunScan
from cockpit.collect.source_lines import LIMIT_BYTES, SourceLines
from cockpit.collect.work import Work
from cockpit.diagnose.live.look import Look
from cockpit.diagnose.live.watch import LiveFindings
from cockpit.diagnose.live.where import doing, most_common_frame
from cockpit.engine.looks import APART_S, Looker, _training_frames
from cockpit.model.finding import Finding
from tests.diagnose.live.scenes import ZERO_S, a_process, a_snapshot, starving

Start = Callable[..., subprocess.Popen[str]]

STARVED = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 10 ** 6
    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.zeros(4)

if __name__ == "__main__":
    print("ready", flush=True)
    model = torch.nn.Linear(4, 4)
    for batch in DataLoader(Slow(), batch_size=8, num_workers=int(sys.argv[1])):
        model(batch).sum().backward()
"""
SYNC = """
import torch
x = torch.rand(300, 300)
print("ready", flush=True)
total = 0.0
while True:
    y = x @ x
    total += sum(y[0, k % 300].item() for k in range(30000))
"""
TRAIN = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.rand(64, 256)
print("ready", flush=True)
while True:
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(python: str, code: str, *arguments: str) -> subprocess.Popen[str]:
        script = tmp_path / f"program_{len(started)}.py"
        script.write_text(code)
        one = subprocess.Popen(
            [python, str(script), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline().strip() == "ready"
        return one

    yield begin
    for one in started:
        children = [pid for pid, stat in procfs.all_stats("/proc") if stat.ppid == one.pid]
        for pid in (one.pid, *children):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        one.wait()


def looks_at(pid: int, count: int, within_s: float = 75.0) -> list[Look]:
    """Wishes, as the rules do each second, until there are so many; one that failed pauses 30 s."""
    looker, end = Looker(), time.monotonic() + within_s
    found = procfs.stat("/proc", pid)
    assert not isinstance(found, procfs.Gap)
    while time.monotonic() < end:
        seen = looker.want(pid, found.start_ticks)
        if len([look for look in seen if look.frames]) >= count:
            return list(seen)
        time.sleep(0.2)
    raise AssertionError(f"{len(seen)} looks: {[look.failure for look in seen]}")


def test_a_real_loader_with_workers_is_recognised_and_so_are_its_workers(
    start: Start, torch_python: str
) -> None:
    program = start(torch_python, STARVED, "2")
    time.sleep(2)
    looks = looks_at(program.pid, 3)
    assert [doing(look.frames) for look in looks].count("loader") >= 2, looks[-1].frames
    assert {len(look.workers) for look in looks} == {2}
    assert looks[-1].workers[0].cpu_pct is not None
    assert looks[-1].cpus
    frame = most_common_frame(looks, "loader")
    assert frame is not None
    assert "DataLoader(" in STARVED.splitlines()[frame.line - 1]


def test_a_loader_without_workers_is_seen_to_load_in_the_training_process(
    start: Start, torch_python: str
) -> None:
    program = start(torch_python, STARVED, "0")
    time.sleep(1)
    looks = looks_at(program.pid, 3)
    assert [doing(look.frames) for look in looks].count("loading") >= 2, looks[-1].frames
    frame = most_common_frame(looks, "loading")
    assert frame is not None
    assert frame.text == "time.sleep(0.05)"
    assert looks[-1].workers == ()


def test_a_real_item_line_is_recognised_by_its_text(start: Start, torch_python: str) -> None:
    program = start(torch_python, SYNC)
    looks = looks_at(program.pid, 3)
    assert "sync" in {doing(look.frames) for look in looks}
    frame = most_common_frame(looks, "sync")
    assert frame is not None
    assert frame.text is not None
    assert ".item()" in frame.text
    assert looks[-1].main_cpu_pct is not None
    assert looks[-1].main_cpu_pct > 5  # of a machine that is busy with other tests


def test_a_process_is_not_looked_at_more_often_than_every_few_seconds(
    start: Start, torch_python: str
) -> None:
    program = start(torch_python, TRAIN)
    looks = looks_at(program.pid, 3)
    apart = [later.at_s - one.at_s for one, later in pairwise(looks)]
    assert min(apart) >= APART_S - 0.1


def test_without_a_wish_nobody_looks(start: Start, torch_python: str) -> None:
    program = start(torch_python, TRAIN)
    looker = Looker()
    assert looker._subjects == {}
    stat = procfs.stat("/proc", program.pid)
    assert not isinstance(stat, procfs.Gap)
    looker.want(program.pid, stat.start_ticks + 1)
    time.sleep(1.5)
    assert looker._subjects[program.pid].seen[-1].failure == "gone", "another process has the pid"


def test_a_training_on_the_cpu_is_found_by_the_scan_and_its_stacks_say_so(
    start: Start, torch_python: str
) -> None:
    program = start(torch_python, TRAIN)
    scan = CpuRunScan(least_cpu_s=0.2)
    time.sleep(1.5)
    assert scan.scan() == ()
    time.sleep(1.5)
    found = {one.pid: one for one in scan.scan()}
    assert program.pid in found
    assert found[program.pid].cpu_pct > 5
    assert os.getpid() not in found, "no torch in here"
    looks = looks_at(program.pid, 3)
    assert [doing(look.frames) for look in looks].count("dispatch") >= 2


def test_states_and_cpu_of_forked_workers_are_read() -> None:
    code = (
        "import multiprocessing as m\n"
        "def spin():\n    while True: pass\n"
        "m.set_start_method('fork')\n"
        "w = m.Process(target=spin, daemon=True); w.start()\n"
        "print('ready', flush=True); input()\n"
    )
    pipe = subprocess.PIPE
    program = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    try:
        assert program.stdout is not None
        program.stdout.readline()
        work = Work(program.pid)
        work.read()
        time.sleep(0.6)
        reading = work.read()
    finally:
        program.communicate("\n", timeout=10)
    assert reading.main_state == "S"
    assert len(reading.workers) == 1
    assert (reading.workers[0].cpu_pct or 0) > 5


@pytest.mark.parametrize(
    ("program", "arguments", "cause", "line"),
    [
        (STARVED, ["2"], "dataloader", "in DataLoader("),
        (STARVED, ["0"], "num_workers_low", "time.sleep(0.05)"),
        (SYNC, [], "sync", ".item()"),
    ],
    ids=["waits for workers", "loads itself", "syncs"],
)
def test_a_real_program_on_a_gpu_with_gaps_is_named_with_its_line_in_thirty_seconds(
    start: Start, torch_python: str, program: str, arguments: list[str], cause: str, line: str
) -> None:
    """The program and the looks are real; what NVML would say of its GPU is made up."""
    one = start(torch_python, program, *arguments)
    found = procfs.stat("/proc", one.pid)
    assert not isinstance(found, procfs.Gap)
    row = a_process(one.pid, start_ticks=found.start_ticks, sm_pct=20.0)
    live, looker, began = LiveFindings(), Looker(), time.time()
    told: list[Finding] = []
    while time.time() - began < 30 and not told:
        second = time.time() - ZERO_S
        told = list(live.observe(a_snapshot(second, starving(), processes=(row,)), looker))
        time.sleep(0.5)
    assert [finding.cause for finding in told] == [cause]
    number = int(told[0].facts["place"].rpartition(":")[2])
    assert line in program.splitlines()[number - 1]
    print(f"{time.time() - began:.0f} s: {told[0].title}; {told[0].evidence[1].text}")


@pytest.mark.parametrize(
    "threads",
    [None, "x", [1], [{}], [{"main": True, "frames": "x"}], [{"main": 1, "frames": [[1, "a", 2]]}]],
)
def test_an_agent_that_answers_nonsense_has_no_frames(threads: object) -> None:
    assert _training_frames(threads) == []


def test_of_an_agents_threads_the_one_that_takes_the_steps_is_meant() -> None:
    threads = [
        {"main": True, "training": False, "frames": [["a.py", 1, "main"]]},
        {"main": False, "training": True, "frames": [["b.py", 2, "train"], ["b.py", 9, "run"]]},
    ]
    assert [frame.file for frame in _training_frames(threads)] == ["b.py", "b.py"]


# -- source lines


def test_a_line_is_read_through_the_process_itself_and_only_where_there_is_one(
    tmp_path: Path,
) -> None:
    source = tmp_path / "train.py"
    source.write_text("one = 1\n    two = loss.item()\n")
    lines, pid = SourceLines(), os.getpid()
    assert lines.line(pid, str(source), 2) == "two = loss.item()"
    assert lines.line(pid, str(source), 99) is None
    assert lines.line(pid, "<frozen importlib>", 1) is None
    assert lines.line(pid, "/no/such/file.py", 1) is None
    source.write_text("changed = True and longer than before\n")
    assert lines.line(pid, str(source), 1) == "changed = True and longer than before"


def test_what_is_no_plain_file_of_reasonable_size_is_not_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.py", tmp_path / "large.py"
    os.mkfifo(pipe)
    large.write_bytes(b"x\n" * LIMIT_BYTES)
    lines, pid = SourceLines(), os.getpid()
    assert lines.line(pid, str(pipe), 1) is None
    assert lines.line(pid, str(large), 1) is None
    assert lines.line(pid, str(tmp_path), 1) is None
