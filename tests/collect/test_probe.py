"""Probes in real interpreters: what they tell, and what happens when one hangs, lies or dies."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cockpit import as_owner
from cockpit.as_owner import Owner
from cockpit.collect import probe
from cockpit.model.checkup_facts import CudaFacts, InterpreterFacts, TorchFacts
from tests.real_torch import TORCH, needs_torch

PROBES = Path(probe.__file__).parent / "probes"
OTHER = Owner(1002, 1002, ())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts programs as another user")


def program(folder: Path, code: str, python: str = sys.executable) -> str:
    """A stand-in for an interpreter: a script, whatever is fed to it."""
    path = folder / "python"
    path.write_text(f"#!{python}\n{code}\n")
    path.chmod(0o755)
    return str(path)


def ask(python: str, name: str = "interpreter", **given: object) -> probe.Answer:
    wanted = {"environment": dict(os.environ), "cwd": "/", "limit_s": 20.0, **given}
    owner = wanted.pop("owner", as_owner.ourselves())
    return probe.ask(name, python, owner, **wanted)  # type: ignore[arg-type]


def test_an_interpreter_tells_of_itself() -> None:
    answer = ask(sys.executable)
    facts = answer.into(InterpreterFacts)
    assert facts is not None
    assert facts.version == ".".join(str(part) for part in sys.version_info[:3])
    assert facts.prefix == sys.prefix
    assert answer.child.failure is None


@pytest.mark.parametrize("name", ["interpreter", "driver", "pytorch"])
def test_nothing_that_lies_in_the_working_directory_is_imported(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "it-ran"
    trap = f"open({str(mark)!r}, 'a').write(__name__); raise SystemExit(0)"
    for module in ("json", "ctypes", "importlib", "traceback", "warnings", "subprocess", "torch"):
        (tmp_path / f"{module}.py").write_text(trap)
    answer = ask(sys.executable, name, cwd=str(tmp_path))
    assert not mark.exists(), mark.read_text()
    assert answer.facts


def test_the_fresh_process_of_the_driver_probe_does_not_look_there_either(tmp_path: Path) -> None:
    (tmp_path / "ctypes.py").write_text("open('it-ran', 'w')")
    code = (
        "import runpy, sys; sys.path[:] = [p for p in sys.path if p]\n"
        f"runpy.run_path({str(PROBES / 'driver.py')!r})['without_mask']()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "it-ran").exists()


def test_what_pythonpath_and_the_environment_name_is_still_found(tmp_path: Path) -> None:
    package = tmp_path / "extra" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    facts = ask(
        sys.executable,
        cwd=str(tmp_path),
        environment={**os.environ, "PYTHONPATH": str(tmp_path / "extra")},
    ).into(InterpreterFacts)
    assert facts is not None
    assert facts.has_torch


@needs_torch
def test_real_torch_tells_its_build_and_computes_nothing_unasked() -> None:
    answer = ask(TORCH, "pytorch", limit_s=90.0)
    facts = answer.into(TorchFacts)
    assert facts is not None
    assert facts.version is not None
    assert (facts.cuda, facts.available, facts.small) == (None, False, ())
    assert "not compiled with CUDA" in (facts.complaint or "")
    assert facts.installed_at is not None


@needs_torch
def test_the_small_success_computes_the_same_on_the_device_as_on_the_cpu() -> None:
    # the CPU plays the device: the numbers must come out equal, to the last one
    code = (
        "import json, runpy, sys, torch\n"
        f"small = runpy.run_path({str(PROBES / 'pytorch.py')!r})['small']\n"
        "real = torch.device\n"
        "torch.device = lambda *words: real('cpu')\n"
        "print(json.dumps(small(torch, 3)))"
    )
    run = subprocess.run([TORCH, "-c", code], capture_output=True, text=True, timeout=90)
    assert run.returncode == 0, run.stderr
    facts = probe.Answer(facts={"small": [probe.msgspec.json.decode(run.stdout)]}).into(TorchFacts)
    assert facts is not None
    one = facts.small[0]
    assert one.ordinal == 3
    assert (one.matmul_difference, one.gradient_difference) == (0.0, 0.0)
    assert one.losses == one.losses_cpu
    assert one.losses[2] < one.losses[0], "it learns"


def test_one_that_hangs_is_cut_off_with_its_children_and_what_it_told_is_kept(
    tmp_path: Path,
) -> None:
    python = program(
        tmp_path,
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        'print(\'cockpit-probe {"version": "3.1", "begun": "waiting"}\', flush=True)\n'
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)",
    )
    began = time.monotonic()
    answer = ask(python, limit_s=2.0)
    assert time.monotonic() - began < 5
    assert answer.child.cut_off_s == 2.0
    assert answer.child.begun == "waiting"
    assert answer.child.failure == "It did not answer within 2 s and was cut off while waiting."
    assert answer.into(InterpreterFacts) == InterpreterFacts(version="3.1")
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 2
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        assert not os.path.exists(f"/proc/{pid}"), "its child goes on"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('Hello! \\x1b[2J')", "It answered something else: Hello! ^[[2J"),
        ("pass", "It ended without a word."),
        ("import sys; sys.exit(3)", "It ended with status 3."),
        ("import os; os.abort()", "It was ended by SIGABRT."),
        ("print('cockpit-probe {\"version\": 7}')", "It answered what cannot be read"),
        ("print('cockpit-probe [1, 2'); print('cockpit-probe 3')", "It answered something else"),
    ],
)
def test_nonsense_is_called_nonsense(tmp_path: Path, code: str, words: str) -> None:
    answer = ask(program(tmp_path, code))
    assert (answer.into(InterpreterFacts) or InterpreterFacts()).version is None
    assert (answer.child.failure or "").startswith(words)


def test_garbage_round_an_answer_does_no_harm(tmp_path: Path) -> None:
    code = (
        "import sys\nprint('loading modules ...', end='')\n"
        "print('cockpit-probe {\"version\": \"3.1\"}')\nsys.stderr.write('a warning\\n')"
    )
    answer = ask(program(tmp_path, code))
    assert answer.into(InterpreterFacts) == InterpreterFacts(version="3.1")
    assert (answer.child.failure, answer.child.words) == (None, "a warning")


def test_one_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = ask(program(tmp_path, "while True: print('x' * 4096)"), limit_s=30.0)
    assert time.monotonic() - began < 20
    assert answer.child.failure is not None


def test_a_grandchild_that_keeps_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    code = (
        "import subprocess\nsubprocess.Popen(['sleep', '20'], start_new_session=True)\n"
        'print(\'cockpit-probe {"version": "3.1"}\', flush=True)'
    )
    began = time.monotonic()
    answer = ask(program(tmp_path, code), limit_s=15.0)
    assert time.monotonic() - began < 5
    assert answer.child.failure is None


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    assert "ended with status 12" in (ask(str(path)).child.failure or "")  # of timeout(1)


@needs_root
def test_another_users_probe_runs_as_that_user_with_his_groups() -> None:
    code = (
        "import json, os\nprint('cockpit-probe ' + json.dumps({'version': ' '.join(map(str, "
        "[*os.getresuid(), *os.getresgid(), *os.getgroups()]))}))"
    )
    # not in a folder of pytest: each of its starts closes them to others
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = program(Path(folder), code, "/usr/bin/python3")
        answer = ask(path, owner=Owner(1002, 1003, (1004,)), environment={})
    facts = answer.into(InterpreterFacts)
    assert facts == InterpreterFacts(version="1002 1002 1002 1003 1003 1003 1004")


def test_whoever_is_not_root_starts_nothing_as_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    answer = ask(program(tmp_path, "print('started')"), owner=OTHER)
    assert answer.child.failure == "It cannot be run: Operation not permitted."


def test_the_driver_probe_opens_what_it_is_told_and_names_the_error(tmp_path: Path) -> None:
    there, gone = tmp_path / "nvidia0", tmp_path / "nvidia1"
    there.touch()
    answer = ask(sys.executable, "driver", arguments=(str(there), str(gone)))
    facts = answer.into(CudaFacts)
    assert facts is not None
    assert facts.opened == {str(there): "ok", str(gone): "ENOENT"}


def test_probes_are_python_3_8_and_import_the_standard_library_only() -> None:
    import ast

    for path in PROBES.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        names = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {(name or "").partition(".")[0] for name in names} <= sys.stdlib_module_names
