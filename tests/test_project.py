"""The project's own promises: one test command, a clean top level, docs that are true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cockpit import __version__
from cockpit.cli import _FLOWS, _parser
from cockpit.model.flow import FLOW_IDS
from cockpit.settings import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, re.M)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_top_level_holds_what_was_agreed_and_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    allowed = {"pyproject.toml", "README.md", "CHANGELOG.md", "cockpit", "tests", "screenshots"}
    assert {name for name in top if not name.startswith(".")} == allowed


def test_every_picture_of_the_readme_exists() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert not [name for name in pictures if not (ROOT / name).exists()]


def test_the_readme_names_every_command_and_flag() -> None:
    text = _parser().format_help()
    flags = set(re.findall(r"--[a-z-]+", text)) - {"--help", "--once", "--interval", "--only"}
    commands = set(re.findall(r"^    (\w+) ", text, re.M))
    assert not [word for word in flags | commands if word not in README]


def test_the_readme_names_every_variable() -> None:
    assert not [name for name in ENVIRONMENT if name not in README]


def test_fix_takes_every_flow_there_is() -> None:
    # Written twice: the structs of the flows would cost each start of the command line 2 ms.
    assert _FLOWS == FLOW_IDS


def test_the_version_is_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
