"""An administrator's step is shown and handed to the terminal, never run from here."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.admin import AdminStep
from cockpit.errors import UsageError


def step(*argv: str) -> AdminStep:
    return AdminStep(
        title="load the driver's module",
        argv=argv,
        loses="nothing",
        verify="/dev/nvidia-uvm is there",
    )


def test_it_is_for_the_terminal_and_not_run_here(tmp_path: Path) -> None:
    mark = tmp_path / "a name"
    admin = step("touch", str(mark))
    preview = admin.preview()
    assert (preview.risk, preview.form) == ("admin", "command")
    assert preview.terminal.argv[-2:] == ("touch", str(mark))
    (line,) = preview.lines
    assert shlex.split(line) == list(preview.terminal.argv)
    outcome = admin.run(Console(say=[].append))
    assert not mark.exists()
    assert (outcome.ok, outcome.verified) == (True, None), "nothing is claimed"
    assert "/dev/nvidia-uvm is there" in outcome.sentence


def test_a_name_from_outside_stays_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    preview = step("systemctl", "restart", "x; rm -rf $HOME").preview()
    assert preview.lines == ("sudo -- systemctl restart 'x; rm -rf $HOME'",)
    assert preview.terminal.argv == ("sudo", "--", "systemctl", "restart", "x; rm -rf $HOME")


@pytest.mark.parametrize("shell", ["sh", "/bin/bash", "env"])
def test_a_shell_is_no_step(shell: str) -> None:
    with pytest.raises(UsageError, match="as a program"):
        step(shell, "-c", "anything")


def test_a_step_without_a_command_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a command"):
        step()
