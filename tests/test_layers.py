"""Imports point one way: the rooms of ARCHITECTURE.md, checked in fresh interpreters."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cockpit"

# room → rooms of ours that it may import
ALLOWED = {
    "model": set(),
    "errors": set(),
    "agent": set(),
    "procfs": set(),
    "as_owner": {"procfs"},
    "paths": {"errors"},
    "settings": {"errors"},
    "collect": {"model", "errors", "procfs", "as_owner"},
    "act": {"model", "errors", "procfs", "paths"},
    "attach": {"model", "errors", "agent", "procfs", "as_owner"},
    "diagnose": {"model"},
    "flows": {"model"},
    "engine": {
        "model",
        "errors",
        "paths",
        "procfs",
        "as_owner",
        "collect",
        "act",
        "attach",
        "diagnose",
        "flows",
        "__init__",
    },
    "commands": {
        "model",
        "errors",
        "paths",
        "settings",
        "engine.link",
        "engine.protocol",
        "attach.launch",
        "attach.run_record",
        "diagnose",
        "collect.bundle",  # writes a file, reads no machine
        "collect.recording_lines",
        "__init__",
    },
    "tui": {
        "model",
        "errors",
        "paths",
        "settings",
        "flows",
        "engine.link",
        "engine.protocol",
        "commands",
    },
    "cli": {"errors", "model", "settings", "commands", "tui", "__init__"},
    "__main__": {"cli"},
    "__init__": set(),
}


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports_of(path: Path) -> set[str]:
    """Names below ``cockpit`` that the file imports, at the top or late."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cockpit"):
            names |= {_module(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.partition(".")[2] for a in node.names if a.name.startswith("cockpit.")}
    return names


def _module(source: str, name: str) -> str:
    """``engine.link`` of ``from cockpit.engine import link`` and of ``… .link import Link``."""
    inner = source.partition(".")[2]
    below = PACKAGE.joinpath(*inner.split("."), name) if inner else PACKAGE / name
    if below.with_suffix(".py").exists() or below.is_dir():
        return f"{inner}.{name}" if inner else name
    return inner or "__init__"


def is_allowed(room: str, imported: str) -> bool:
    parts = imported.split(".")
    return parts[0] == room or parts[0] in ALLOWED[room] or ".".join(parts[:2]) in ALLOWED[room]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    wrong = {name for name in imports_of(path) if not is_allowed(room, name)}
    assert not wrong, f"{path.relative_to(ROOT)} reaches into {sorted(wrong)}"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_only_the_face_imports_textual_and_only_one_room_pynvml(path: Path) -> None:
    text = path.read_text()
    outside = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
    }
    assert "torch" not in outside
    if room_of(path) != "tui":
        assert "textual" not in outside
    if path.parent.name != "collect":
        assert "pynvml" not in outside


def modules_after(code: str) -> set[str]:
    """sys.modules of a fresh interpreter after ``code``."""
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import cockpit.engine.__main__, cockpit.engine.live",
        "import cockpit.commands.snapshot, cockpit.commands.ps, cockpit.commands.kill, cockpit.cli",
    ],
)
def test_engine_and_commands_load_neither_textual_nor_torch_nor_asyncio(code: str) -> None:
    assert not modules_after(code) & {"textual", "torch", "asyncio"}


def test_the_face_loads_neither_pynvml_nor_torch_nor_any_action() -> None:
    loaded = modules_after("import cockpit.tui.app")
    assert not loaded & {"pynvml", "torch", "cockpit.act.signal", "cockpit.collect.nvml"}


def test_model_and_agent_import_nothing_of_ours() -> None:
    loaded = modules_after("import cockpit.model.snapshot, cockpit.agent")
    ours = {name for name in loaded if name.startswith("cockpit")}
    assert {name.split(".")[1] for name in ours if "." in name} == {"model", "agent"}
