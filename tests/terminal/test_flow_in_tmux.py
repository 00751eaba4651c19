"""A fix that needs the user's own terminal: given to it, and taken back whole."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.terminal.tmux import ROOT, Terminal, cockpit, terminal

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


def start(box: Terminal, command: str) -> None:
    script = ROOT / "tests" / "terminal" / "staged_flow.py"
    box.start(shlex.join([sys.executable, str(script), command]) + "; echo status $?")
    box.wait_for("enter run it in this terminal")


def test_a_command_has_the_terminal_and_the_cockpit_comes_back_with_its_status() -> None:
    with terminal(100, 30) as box:
        start(box, "read word; echo got $word")
        box.type("Enter")
        command = "$ sh -c 'read word; echo got $word'"  # it stood on the page as well
        box.wait_for(lambda s: command in s and "What failed?" not in s)
        box.type("hello", "Enter")
        box.wait_for("got hello")
        box.wait_for("Exit status 0. Enter goes back")
        box.type("Enter")
        box.wait_for("was 0")
        box.type("f")
        box.wait_for(lambda s: "Verified" not in s)
        box.type("Escape")
        box.wait_for("✓ Verified")
        box.type("Escape")
        box.wait_for("status 0")


def test_ctrl_c_ends_the_command_and_not_the_cockpit() -> None:
    with terminal(100, 30) as box:
        start(box, "echo begun; exec sleep 60")
        box.type("Enter")
        box.wait_for("begun\n")
        box.type("C-c")
        box.wait_for("Exit status 130. Enter goes back")
        box.type("C-c", "Enter")
        box.wait_for("was 130")
        box.type("q")
        box.wait_for("status 1")


def test_a_real_stray_is_ended_in_three_keys_and_its_memory_is_seen_to_come_back(
    simnvml_build: Path, tmp_path: Path
) -> None:
    # A state of its own: a flow that was left is offered again.
    with terminal(100, 30, simnvml_build, XDG_STATE_HOME=str(tmp_path)) as box:
        box.start(cockpit(scenario="stray"))
        box.wait_for("launcher gone")
        box.wait_for("! fix")
        box.type("!")
        box.wait_for("▸ What to do")
        box.type("Enter")
        box.wait_for("▸ Run exactly this?")
        box.type("Enter")
        screen = box.wait_for(lambda s: ("freed" in s and "▸ What to do" in s) or "Verified" in s)
        assert "before" in screen


def test_esc_out_of_the_page_that_fix_opened_leaves_a_clean_terminal(
    simnvml_build: Path, tmp_path: Path
) -> None:
    with terminal(100, 30, simnvml_build, XDG_STATE_HOME=str(tmp_path)) as box:
        box.start(cockpit("fix", scenario="stray") + "; echo status $?")
        box.wait_for("▸ What", 20.0)
        box.type("Escape")
        screen = box.wait_for("status 1")
        assert "Warning" not in screen
        assert "never awaited" not in screen
