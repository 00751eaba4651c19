"""What the one-shot commands have in common."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cockpit.commands.ask import remove_log


def test_a_log_that_another_cockpit_clears_away_meanwhile_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine-1.log"
    log.write_text("")
    real = os.path.exists

    def look(path: str) -> bool:
        """Whoever looks first is too late afterwards."""
        found = real(path)
        log.unlink(missing_ok=True)
        return found

    monkeypatch.setattr("os.path.exists", look)
    remove_log(SimpleNamespace(log_path=str(log)))
    remove_log(SimpleNamespace(log_path=str(log)))
    assert not real(log)
