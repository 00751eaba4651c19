"""Asking a training script for its --help: real scripts, real interpreters."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.help_options import AskHelp, help_command, may_ask
from cockpit.act.script_files import ScriptFacts, read_script
from cockpit.act.script_options import declared_in_help
from cockpit.errors import RefusedError
from cockpit.model.run_command import RunCommand

SCRIPT = """
import argparse, os, sys
print("GPUs:", repr(os.environ["CUDA_VISIBLE_DEVICES"]), file=sys.stderr)
p = argparse.ArgumentParser()
p.add_argument(*["-b", "--batch" + "-size"], type=int, default=32, help="(default: 32)")
p.add_argument("--steps", type=int)
p.parse_args()
"""


def run(*argv: str, **more: object) -> RunCommand:
    known = {"argv": argv, "cwd": "/", "uid": os.geteuid(), "source": "process"}
    return RunCommand(**{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ("python t.py --bs 3", "python t.py --help"),
        ("torchrun --nproc-per-node 2 t.py --bs 3", "/v/bin/python3 t.py --help"),
        ("python -m torch.distributed.run t.py --bs 3", "python t.py --help"),
        ("python -m pkg.train --bs 3", "python -m pkg.train --help"),
        ("vllm serve m --dtype auto", "vllm serve --help"),
        ("python -c pass", ""),
        ("bash -c 'a && b'", ""),
    ],
)
def test_the_script_is_asked_alone_without_its_launcher(argv: str, asked: str) -> None:
    assert " ".join(help_command(run(*shlex.split(argv), interpreter="/v/bin/python3"))) == asked


def test_a_parser_that_no_source_shows_is_asked_for_its_help(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SCRIPT)
    ask = AskHelp(
        run(sys.executable, "t.py", cwd=str(tmp_path), environment={"CUDA_VISIBLE_DEVICES": "0"}),
        "batch",
    )
    assert "CUDA_VISIBLE_DEVICES=''" in ask.preview().lines[0]
    outcome = ask.run(Console([].append))
    assert (outcome.ok, outcome.verified) == (True, True)
    assert outcome.sentence == "It has --batch-size (default 32) for the batch size."
    assert "GPUs: ''" in outcome.output
    found = {one.long_name: one.default for one in declared_in_help("\n".join(outcome.output))}
    assert found["--batch-size"] == "32"


def test_an_answer_without_the_wanted_option_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SCRIPT)
    outcome = AskHelp(run(sys.executable, "t.py", cwd=str(tmp_path)), "workers").run(
        Console([].append)
    )
    assert (outcome.ok, outcome.verified) == (True, False)
    assert outcome.sentence == "It has 3 options, none of them for the loader's workers."


def test_a_script_is_asked_in_its_own_environment_with_what_its_command_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os\nprint('  --found-' + os.environ['MARK'] + os.environ['MORE'])\n"
    (tmp_path / "t.py").write_text(program)
    monkeypatch.setenv("MARK", "not this")
    words = ("env", "MORE=there", sys.executable, "t.py")
    command = run(*words, cwd=str(tmp_path), environment={"MARK": "here"})
    assert AskHelp(command, "batch").run(Console([].append)).output == ("  --found-herethere",)


def test_a_script_that_does_not_answer_is_ended_in_time_with_its_children(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('training', child.pid, flush=True); time.sleep(60)\n"
    )
    begin = time.monotonic()
    outcome = AskHelp(run(sys.executable, "t.py", cwd=str(tmp_path)), "batch", limit_s=1.0).run(
        Console([].append)
    )
    assert time.monotonic() - begin < 10
    assert (outcome.ok, outcome.verified) == (False, False)
    assert outcome.sentence == "It did not answer, and was ended."
    child = int(outcome.output[0].split()[1])
    for _ in range(50):
        if not _runs(child):
            break
        time.sleep(0.1)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Alive; a zombie, which a container without an init keeps, is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_only_an_own_script_outside_of_containers_is_asked() -> None:
    for command in (
        run("python", "t.py", uid=os.geteuid() + 1),
        run("python", "t.py", container="docker:1"),
        run("ssh", "host", "python", "t.py"),
    ):
        assert AskHelp(command, "batch").preview().refusal
        with pytest.raises(RefusedError):
            AskHelp(command, "batch").run(Console([].append))


@pytest.mark.parametrize(
    ("argv", "source", "may"),
    [
        ("python t.py", "import argparse", True),
        ("python t.py --steps 3", "import mine", True),
        ("python t.py", "import torch", False),  # it would begin to train
        ("python t.py config.yaml", "import torch", False),
        ("python t.py --batch-size 8", "import argparse", False),  # it is known
        ("python t.py", "import argparse\np.add_argument('--batch-size', default=8)", False),
        ("python -c pass", "", False),
    ],
)
def test_only_a_script_that_would_answer_is_asked_for_what_is_not_known(
    argv: str, source: str, may: bool, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(source)
    command = run(*shlex.split(argv), cwd=str(tmp_path))
    assert may_ask(command, "batch", read_script(command.argv, command.cwd)) == may


def test_a_program_of_a_framework_that_documents_the_option_is_not_asked() -> None:
    trainer = ScriptFacts((), "transformers", ())
    assert not may_ask(run("python", "t.py", "--lr", "1"), "batch", trainer)
