"""Inside real CUDA runs: attach, numbers that agree, empty_cache by keys, the record of an OOM."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.engine.link import Link
from cockpit.engine.protocol import AskAttach, EngineOptions, Reply, RunAttach, Tick
from cockpit.model.run import Run
from tests.gpu import smi
from tests.terminal.tmux import cockpit, terminal

PROGRAMS = Path(__file__).parent / "programs"
GIB = 1 << 30


class Trainer:
    """cached.py and what it says of itself."""

    def __init__(self, folder: Path) -> None:
        self.truth_file = folder / "truth.json"
        run = [sys.executable, str(PROGRAMS / "cached.py"), self.truth_file.name, "8"]
        self.process = subprocess.Popen(run, cwd=folder)
        self.pid = self.process.pid
        end = time.monotonic() + 60
        while not self.truth_file.exists():
            assert time.monotonic() < end
            assert self.process.poll() is None
            time.sleep(0.2)

    def truth(self) -> dict[str, int]:
        return json.loads(self.truth_file.read_text())


@pytest.fixture
def cached(tmp_path: Path) -> Iterator[Trainer]:
    trainer = Trainer(tmp_path)
    yield trainer
    trainer.process.kill()
    trainer.process.wait()


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link(EngineOptions(interval_s=0.5))
    yield link
    link.close()


def wait(link: Link, kind: type, within_s: float = 10.0) -> object:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        message = link.receive(end - time.monotonic())
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__}")


def attached(link: Link, pid: int) -> tuple[float, str]:
    """Seconds from the question to the agent's first answer, and the sentence."""
    wait(link, Tick)
    began = time.monotonic()
    link.send(AskAttach(id=1, pid=pid, start_ticks=None))
    plan = wait(link, Reply).attach
    assert plan.way == "ptrace", plan.sentence
    link.send(RunAttach(id=2, pid=pid, start_ticks=plan.start_ticks))
    outcome = wait(link, Reply).outcome
    assert outcome.ok, outcome.sentence
    return time.monotonic() - began, outcome.sentence


def run_of(link: Link, pid: int) -> Run:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        tick = wait(link, Tick)
        for run in tick.snapshot.runs:
            if run.pid == pid and run.devices:
                return run
    raise AssertionError("the run is not in the snapshots")


def test_an_unprepared_trainer_is_attached_in_a_second_and_its_numbers_agree(
    cached: Trainer, link: Link
) -> None:
    took, sentence = attached(link, cached.pid)
    print(f"{sentence} in {took * 1e3:.0f} ms")
    assert took < 1.0
    wait(link, Tick)
    truth = cached.truth()
    # Within a step the activations come and go; nearly all of the time the trainer rests.
    run, device = next(
        (run, run.devices[0])
        for run in (run_of(link, cached.pid) for _ in range(20))
        if run.steps_per_s is not None
        and abs(run.devices[0].allocated_bytes - truth["allocated_bytes"]) <= 2 * smi.MIB
    )
    print(f"agent: allocated {device.allocated_bytes}, reserved {device.reserved_bytes}; {truth}")
    assert abs(device.reserved_bytes - truth["reserved_bytes"]) <= 2 * smi.MIB
    assert abs(device.reserved_peak_bytes - truth["reserved_peak_bytes"]) <= 2 * smi.MIB
    assert abs(device.driver_seen_bytes - smi.apps()[cached.pid]) <= 2 * smi.MIB
    assert run.cuda_initialized


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_empty_cache_by_keys_returns_what_nvidia_smi_confirms(cached: Trainer) -> None:
    with terminal(120, 40, COLORTERM="truecolor") as box:
        box.start(cockpit())
        box.wait_for(str(cached.pid), 15)
        box.type("a")
        box.wait_for("main thread is paused")
        box.type("Enter")
        box.wait_for("Attached to pid", 10)
        box.type("Enter")
        time.sleep(2.5)
        box.type("m")
        box.wait_for("live tensors", 10)
        if os.environ.get("GPU_TEST_OUT"):
            Path(os.environ["GPU_TEST_OUT"], "memory.ansi").write_text(box.screen(styled=True))
        before = smi.apps()[cached.pid]
        box.type("f")
        box.wait_for("give cache back")
        box.type("Down", "Enter")
        time.sleep(0.5)
        box.type("Enter")
        screen = box.wait_for(re.compile(r"reserved ([\d.]+) → ([\d.]+) GiB").search, 15)
        told = re.search(r"\(([\d.]+) GiB\s+returned\)", screen)
        assert told, screen
        freed = (before - smi.apps()[cached.pid]) / GIB
        print(f"told {told[1]} GiB returned, nvidia-smi confirms {freed:.2f} GiB")
        assert abs(freed - float(told[1])) < 0.1
        assert freed > 4
        assert cached.process.poll() is None


def test_an_oom_in_a_run_that_the_cockpit_started_leaves_its_record(tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "cockpit", "run", "--name", "grows", "--"]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAMS / "grows.py")],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "OutOfMemoryError" in done.stderr
    kept = sorted(path.name for path in state.rglob("*") if path.is_file())
    print("kept:", kept)
    records = list(state.rglob("oom*.json"))
    assert records
    record = json.loads(records[0].read_text())
    print({name: record.get(name) for name in ("asked_bytes", "device_free_bytes", "step")})
    assert record["asked_bytes"] == 2 << 30
