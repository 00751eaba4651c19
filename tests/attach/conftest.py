"""Fixtures of the tests of attaching."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attaching import Runs


@pytest.fixture
def runs() -> Iterator[Runs]:
    started = Runs()
    try:
        yield started
    finally:
        started.end()
