"""An administrator's step is shown and typed, not run; afterwards it is looked at."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.admin import AdminStep
from cockpit.errors import UsageError


def console() -> Console:
    return Console(say=[].append)


def step(*commands: tuple[str, ...], **options: object) -> AdminStep:
    return AdminStep(
        title="load the driver's module",
        commands=commands,
        why="CUDA needs nvidia-uvm.",
        loses="nothing",
        verify="/dev/nvidia-uvm is there",
        **options,
    )


def test_it_is_printed_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "a name"
    admin = step(("touch", str(mark)))
    preview = admin.preview()
    assert (preview.risk, preview.form, preview.terminal) == ("admin", "command", None)
    told = console()
    outcome = admin.run(told)
    assert not mark.exists()
    assert (outcome.ok, outcome.verified) == (True, None)
    (line,) = told.say.__self__
    assert shlex.split(line)[-2:] == ["touch", str(mark)]


def test_a_name_from_outside_stays_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    admin = step(("systemctl", "restart", "x; rm -rf $HOME"), in_terminal=True)
    assert admin.to_type() == ("sudo -- systemctl restart 'x; rm -rf $HOME'",)
    assert admin.preview().terminal.argv == (
        *("sudo", "--", "systemctl", "restart"),
        "x; rm -rf $HOME",
    )


@pytest.mark.parametrize("shell", ["sh", "/bin/bash", "env"])
def test_a_shell_is_no_step(shell: str) -> None:
    with pytest.raises(UsageError, match="as a program"):
        step((shell, "-c", "anything"))


def test_one_command_goes_through_the_terminal_and_all_can_be_typed() -> None:
    admin = step(("modprobe", "-r", "nvidia_uvm"), ("modprobe", "nvidia_uvm"), in_terminal=True)
    assert admin.terminal().argv[-3:] == ("modprobe", "-r", "nvidia_uvm")
    assert admin.to_type()[1].endswith("modprobe nvidia_uvm")


def test_nothing_is_claimed() -> None:
    assert step(("true",), in_terminal=True).run(console()).verified is None
