"""The finder that waits for torch beside imports of other threads."""

from __future__ import annotations

import sys

import pytest

from cockpit.agent.agent import TorchFinder
from cockpit.agent.bootstrap.sitecustomize import TorchWatch


@pytest.mark.parametrize("finder", [TorchFinder(lambda: None), TorchWatch()])
def test_a_search_that_has_begun_skips_no_finder(
    finder: TorchFinder | TorchWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    others = list(sys.meta_path)
    finder.install()
    search = iter(sys.meta_path)
    assert next(search) is finder
    finder.remove()
    assert list(search) == others
    assert sys.meta_path == others
    finder.remove()
    assert sys.meta_path == others
