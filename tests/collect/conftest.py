"""Fixtures of the tests of ``collect``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts real processes and ends every one of them."""
    started = Processes(tmp_path)
    yield started
    started.close()
