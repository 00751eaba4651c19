"""A notebook kernel that failed on a real GPU gives the memory of its last exception back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.attach import attach
from cockpit.attach.client import Client
from tests.gpu import smi

pytest.importorskip("ipykernel", reason="needs ipykernel")
manager = pytest.importorskip("jupyter_client.manager", reason="needs jupyter_client")

GIB = 1 << 30
FAIL = """
import torch
def train():
    kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(3)]
    kept.append(torch.empty(1 << 50, dtype=torch.uint8, device="cuda"))
train()
"""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Any, int]]:
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    running = manager.KernelManager()
    running.kernel_spec.argv[0] = sys.executable
    running.start_kernel()
    client = running.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield client, running.provisioner.process.pid
    finally:
        client.stop_channels()
        running.shutdown_kernel(now=True)


def run(client: Any, code: str) -> str:
    shown = client.execute_interactive(
        code, timeout=120, output_hook=lambda _: None, allow_stdin=False
    )
    return str(shown["content"]["status"])


def test_the_memory_of_the_last_exception_comes_back(kernel: tuple[Any, int]) -> None:
    client, pid = kernel
    assert run(client, "import torch; torch.cuda.init()") == "ok"
    assert run(client, FAIL) == "error"
    held = smi.apps()[pid]
    outcome = attach.run(attach.plan(pid))
    if outcome.state == "queued":  # an idle kernel sleeps in C: the next cell lets the agent in
        assert "any cell of the notebook" in outcome.sentence
        assert run(client, "1") == "ok"
        outcome = attach.wait(outcome)
    assert outcome.state == "attached", outcome
    assert outcome.agent is not None
    with Client.connect(pid, outcome.agent.path, 10.0) as agent:
        data = agent.call("free_frames", 30.0)
    left = smi.apps()[pid]
    freed = (held - left) / GIB
    print(f"\nnotebook: {freed:.2f} GiB came back by nvidia-smi; {data}")
    assert data["exception"] is True
    assert freed >= 3.0
    assert run(client, "1 + 1") == "ok"
