"""A real notebook kernel lets go of the exception that holds its memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.attach import attach
from tests.agent.talk import ROOT, Talk, wait_for

pytest.importorskip("ipykernel", reason="needs ipykernel")
manager = pytest.importorskip("jupyter_client.manager", reason="needs jupyter_client")

FAIL = """
class Big:
    def __del__(self): open({witness!r}, "w").close()
def train():
    big = Big()
    raise RuntimeError("CUDA out of memory")
train()
"""


class Kernel:
    """One kernel."""

    def __init__(self, folder: str, client: Any, pid: int) -> None:
        self.client, self.pid, self.folder = client, pid, folder

    def run(self, code: str) -> str:
        """The status of the cell, when it has ended."""
        return self.client.execute_interactive(
            code, timeout=60, output_hook=lambda _: None, allow_stdin=False
        )["content"]["status"]

    def talk(self) -> Talk:
        return Talk(f"{self.folder}/{self.pid}.sock")


@pytest.fixture
def bare(folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kernel]:
    """A kernel as a person starts it."""
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    running = manager.KernelManager()
    running.kernel_spec.argv[0] = sys.executable
    running.start_kernel()
    client = running.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(folder, client, running.provisioner.process.pid)
    finally:
        client.stop_channels()
        running.shutdown_kernel(now=True)


@pytest.fixture
def kernel(bare: Kernel) -> Kernel:
    """One with an agent in it."""
    code = f"from cockpit.agent import attach; at = attach(directory={bare.folder!r})"
    assert bare.run(code) == "ok"
    return bare


def test_the_next_cell_lets_the_agent_into_an_idle_kernel(bare: Kernel) -> None:
    outcome = attach.run(attach.plan(bare.pid), wait_s=1.0)
    if outcome.state == "queued":  # asleep in a C call, as it mostly is
        assert outcome.sentence.endswith("any cell of the notebook is run (1 will do).")
        assert bare.run("1") == "ok"
        outcome = attach.wait(outcome)
    assert outcome.state == "attached", outcome
    assert attach.detach(bare.pid).state == "detached"


def test_an_idle_kernel_lets_go_of_the_last_exception(kernel: Kernel, tmp_path: Path) -> None:
    witness = tmp_path / "freed"
    assert kernel.run(FAIL.format(witness=str(witness))) == "error"
    assert not witness.exists()
    with kernel.talk() as talk:
        data = talk.data("free_frames")
    assert (data["exception"], data["results"]) == (True, 0)
    assert witness.exists()
    assert kernel.run("import sys; assert not hasattr(sys, 'last_traceback')") == "ok"
    assert kernel.run("1/0") == "error"  # and the next exception is shown as ever


def test_kept_results_go_only_when_asked(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run("41 + 1")
    with kernel.talk() as talk:
        assert talk.data("free_frames")["results"] == 0
    assert kernel.run("assert 42 in Out.values()") == "ok"
    with kernel.talk() as talk:
        assert talk.data("free_frames", out=True)["results"] == 1
    assert kernel.run("assert not Out") == "ok"


def test_a_running_cell_is_not_disturbed(kernel: Kernel, tmp_path: Path) -> None:
    started = tmp_path / "started"
    kernel.client.execute(f"import time; open({str(started)!r}, 'w').close(); time.sleep(2.5)")
    wait_for(started.exists)
    with kernel.talk() as talk:
        reply = talk.ask("free_frames", timeout_s=0.3)
        assert reply["code"] == "no_step", reply
        assert reply["error"] == "A cell has been running for 0.3 s; nothing was done."
        assert talk.data("free_frames", timeout_s=30)["exception"] is False


def test_a_program_that_is_no_notebook_refuses(plain: Any) -> None:
    with plain.talk() as talk:
        assert talk.ask("free_frames")["code"] == "unsupported"
