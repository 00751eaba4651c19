"""Interpreters and folders for the agent's tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.agent.talk import Program, running


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with torch: $COCKPIT_TORCH_PYTHON, else this one."""
    python = os.environ.get("COCKPIT_TORCH_PYTHON") or sys.executable
    try:
        found = subprocess.run([python, "-c", "import numpy, torch"], capture_output=True)
    except OSError as error:
        pytest.skip(f"COCKPIT_TORCH_PYTHON: {error}")
    if found.returncode:
        pytest.skip(
            "needs torch and numpy (pip install torch==2.13.0 numpy, or set COCKPIT_TORCH_PYTHON)"
        )
    return python


@pytest.fixture
def folder() -> Iterator[str]:
    """A short path: a socket's address has 107 bytes."""
    path = tempfile.mkdtemp(prefix="cka", dir="/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def trainer(torch_python: str, folder: str) -> Iterator[Program]:
    """A small model that trains on the CPU, with the agent attached by import."""
    with running(torch_python, "train.py", folder) as program:
        yield program.wait_socket()


@pytest.fixture
def plain(folder: str) -> Iterator[Program]:
    """This interpreter, without torch, with the agent attached."""
    with running(sys.executable, "plain.py", folder) as program:
        yield program.wait_socket()
