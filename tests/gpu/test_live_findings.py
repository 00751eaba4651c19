"""Live findings on a real GPU: sick trainings raise the right one, a healthy one raises none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.attach.stacks import find_py_spy
from cockpit.engine.link import Link
from cockpit.engine.protocol import EngineOptions, Tick
from cockpit.model.finding import Finding
from cockpit.model.snapshot import Snapshot
from tests.gpu import smi

PROGRAMS = Path(__file__).parent / "programs"
WITHIN_S = 30.0
HEALTHY_S = float(os.environ.get("COCKPIT_HEALTHY_S", "300"))
OTHERS = {"orphans", "shm_too_small", "host_oom", "illegal_access"}
"""What this machine may have of its own; Xids of programs that ran here before are in its log."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start("sync.py", …)`` runs a program; ``attached=True`` through ``cockpit run``."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        name: str, *arguments: str, attached: bool = False, **environment: str
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAMS / name), *arguments]
        if attached:
            command = [sys.executable, "-m", "cockpit", "run", "--name", name, "--", *command]
        fresh = {"XDG_STATE_HOME": str(tmp_path / "state"), **environment}
        started.append(
            subprocess.Popen(command, env={**os.environ, **fresh}, start_new_session=True)
        )
        return started[-1]

    yield begin
    for process in started:
        for pid in [*children(process.pid), process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        process.wait()


def children(pid: int) -> list[int]:
    run = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True)
    direct = [int(word) for word in run.stdout.split()]
    return [one for child in direct for one in (*children(child), child)]


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Link]:
    log = tmp_path / "engine.log"
    link = Link(EngineOptions(interval_s=1.0), log_path=str(log))
    yield link
    link.close()
    assert "the findings of this tick failed" not in log.read_text()
    assert "a look failed" not in log.read_text()


def snapshots(link: Link, seconds: float) -> Iterator[Snapshot]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        message = link.receive(left)
        if isinstance(message, Tick):
            yield message.snapshot


def wait_until_on_gpu(link: Link, within_s: float = 60.0) -> None:
    """The thirty seconds begin when the training does, not while torch is being imported."""
    for snapshot in snapshots(link, within_s):
        if any((gpu.memory_used_bytes or 0) > 300 * smi.MIB for gpu in snapshot.gpus):
            return
    raise AssertionError("nothing came onto a GPU")


def describe(snapshot: Snapshot) -> str:
    return "; ".join(
        f"GPU {g.index}: {g.utilization_pct} %, {g.power_w} W, mem {g.memory_utilization_pct} %, "
        f"SM {g.sm_active_pct}, dram {g.dram_active_pct}, {g.sm_clock_mhz} MHz, "
        f"{g.throttle_reasons}"
        for g in snapshot.gpus
    )


def found(link: Link, causes: set[str], within_s: float = WITHIN_S) -> Finding:
    """The first finding of one of these causes; any other slow or memory finding is wrong."""
    wait_until_on_gpu(link)
    began = time.monotonic()
    last = None
    for snapshot in snapshots(link, within_s):
        last = snapshot
        for finding in snapshot.findings:
            if finding.cause in causes:
                took = time.monotonic() - began
                print(f"\n{finding.cause} after {took:.1f} s: {finding.title}")
                for one in finding.evidence:
                    print(f"   {one.text}")
                print(f"   {describe(snapshot)}")
                return finding
            assert finding.cause in OTHERS, finding
    raise AssertionError(f"none of {causes} within {within_s:g} s; {last and describe(last)}")


@pytest.mark.parametrize("attached", [False, True], ids=["unattached", "attached"])
@pytest.mark.parametrize(
    ("program", "arguments", "causes", "line"),
    [
        ("starved.py", ["2"], {"dataloader"}, None),
        ("starved.py", ["0"], {"num_workers_low"}, "time.sleep(0.02)"),
        ("sync.py", [], {"sync"}, ".item()"),
        ("launch.py", [], {"launch_bound"}, None),
        ("leaks.py", ["64"], {"oom_growth"}, None),
    ],
)
def test_a_sick_training_is_named_within_thirty_seconds(
    start: Start,
    link: Link,
    program: str,
    arguments: list[str],
    causes: set[str],
    line: str | None,
    attached: bool,
) -> None:
    if find_py_spy() is None and not attached and "oom_growth" not in causes:
        pytest.skip("needs py-spy: there is no agent to ask")
    start(program, *arguments, attached=attached)
    finding = found(link, causes)
    assert finding.evidence
    assert finding.fixes
    if line is not None:
        file, _, number = finding.facts["place"].rpartition(":")
        assert file.endswith(program)
        assert line in Path(file).read_text().splitlines()[int(number) - 1]


@pytest.mark.timeout(HEALTHY_S + 120)
@pytest.mark.parametrize("attached", [False, True], ids=["unattached", "attached"])
def test_a_healthy_bf16_training_raises_nothing(start: Start, link: Link, attached: bool) -> None:
    """``COCKPIT_HEALTHY_S``: how long the attached one is watched, 300 s unless it says otherwise.

    A fifth of it has to do for the other.
    """
    seconds = HEALTHY_S if attached else HEALTHY_S / 5
    start("train.py", str(seconds + 60), "5", attached=attached)
    wait_until_on_gpu(link)
    seen = set()
    last = None
    for last in snapshots(link, seconds):
        seen |= {finding.title for finding in last.findings if finding.cause not in OTHERS}
    assert last is not None
    print(f"\nhealthy for {seconds:.0f} s: {describe(last)}")
    assert not seen


def test_the_rank_that_stays_away_is_named_with_its_line(start: Start, link: Link) -> None:
    if len(smi.query("gpu", ["index"])) < 2:
        pytest.skip("needs two GPUs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for rank in ("0", "1"):
        start("ranks.py", "200", RANK=rank, LOCAL_RANK=rank, **meet)
    finding = found(link, {"rank_behind"}, 45.0)
    assert finding.facts["culprit_rank"] == 1
    file, _, number = finding.facts["place"].rpartition(":")
    assert file.endswith("ranks.py")
    assert "this rank stays away" in Path(file).read_text().splitlines()[int(number) - 1]
