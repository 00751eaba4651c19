"""Quoting, variables inside commands, what a script declares, the table of variables."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.act.command_environment import assigned, place
from cockpit.act.quoting import assignment, shell_line, shell_word
from cockpit.act.run_variables import (
    VARIABLES,
    allocator_setting,
)
from cockpit.act.script_files import read_script
from cockpit.act.script_options import declared_in_help, declared_in_source, framework_of_source

# -- quoting


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("train.py", "train.py"),
        ("/data/my runs/t.py", "'/data/my runs/t.py'"),
        ("$HOME", "'$HOME'"),
        ("it's", "'it'\"'\"'s'"),
        ("a\nb", r"$'a\nb'"),
        ("\x1b[2J'", r"$'\e[2J\''"),
        ("\udcff", r"$'\xff'"),
        ("a\u202eb", r"$'a\u202eb'"),
        ("größe", "größe"),
        ("", "''"),
    ],
)
def test_a_word_is_shown_as_a_shell_would_take_it(word: str, shown: str) -> None:
    assert shell_word(word) == shown or shlex.split(shell_word(word)) == [word]


def test_a_whole_line_has_directory_variables_and_what_is_unset() -> None:
    line = shell_line(
        ("python", "my t.py"), cwd="/a b", environment={"X": "1 2"}, unset=("CUDA_VISIBLE_DEVICES",)
    )
    assert line == "cd '/a b' && env -u CUDA_VISIBLE_DEVICES X='1 2' python 'my t.py'"
    assert assignment("a.b", "c d") == "'a.b=c d'"


@settings(deadline=None, max_examples=40)  # each starts a bash
@given(st.text(alphabet=st.characters(blacklist_characters="\0"), max_size=12))
def test_bash_reads_back_exactly_what_was_quoted_and_no_control_character_is_shown(
    word: str,
) -> None:
    try:
        raw = word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return
    shown = shell_word(word)
    assert all(ord(character) >= 0x20 for character in shown)
    if not shown.isascii() or shutil.which("bash") is None:
        return
    done = subprocess.run(
        ["bash", "-c", f"printf %s {shown}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout == raw


# -- variables inside a command


def test_a_variable_that_the_command_sets_itself_is_changed_where_it_stands() -> None:
    line = ("env", "CUDA_VISIBLE_DEVICES=0", "A=1", "python", "t.py", "B=2")
    placed = place(line, {"CUDA_VISIBLE_DEVICES": "3", "NCCL_DEBUG": "INFO"}, ("A",))
    assert placed.argv == ("env", "CUDA_VISIBLE_DEVICES=3", "python", "t.py", "B=2")
    assert placed.set == {"NCCL_DEBUG": "INFO"}
    assert assigned(line) == {"CUDA_VISIBLE_DEVICES": "0", "A": "1"}


def test_the_same_inside_a_shells_string() -> None:
    placed = place(("sh", "-c", "OMP_NUM_THREADS=8 python 't t.py'"), {"OMP_NUM_THREADS": "1"})
    assert placed.argv == ("sh", "-c", "OMP_NUM_THREADS=1 python 't t.py'")
    assert placed.set == {}


def test_into_a_container_variables_go_by_its_own_option() -> None:
    line = shlex.split("docker run --gpus all -e A=1 --env=B=2 -v /d:/d img python t.py")
    placed = place(line, {"A": "9", "C": "3"}, ("B",))
    assert shlex.join(placed.argv) == (
        "docker run -e A=9 -e C=3 --gpus all -v /d:/d img python t.py"
    )
    assert placed.set == {}


def test_what_is_not_understood_is_only_set_around() -> None:
    line = ("bash", "-c", "cd x && A=1 python t.py")
    assert place(line, {"A": "2"}) == (line, {"A": "2"}, ())


# -- what a script declares


SOURCE = """
import argparse, torch
import click
from dataclasses import dataclass
p = argparse.ArgumentParser()
p.add_argument("-b", "--batch-size", type=int, default=32)
p.add_argument("--precision", choices=["fp32", "bf16"])
p.add_argument("--amp", action="store_true")
@dataclass
class GPTConfig:
    block_size: int = 1024
@click.command()
@click.option("--compile/--no-compile", default=True)
@click.option("--accum-steps", default=1, type=click.Choice(["1", "2"]))
def main(): ...
flags.DEFINE_integer("eval_batch_size", 64, "size")
raise SystemExit("this file is never run")
"""


def test_options_are_read_from_the_source_without_running_it() -> None:
    found = {one.names[0]: one for one in declared_in_source(SOURCE, "t.py")}
    assert found["-b"].names == ("-b", "--batch-size")
    assert (found["-b"].default, found["-b"].takes, found["-b"].source) == ("32", True, "t.py:6")
    assert found["--precision"].choices == ("fp32", "bf16")
    assert not found["--amp"].takes
    assert found["--compile"].names == ("--compile", "--no-compile")
    assert found["--accum-steps"].choices == ("1", "2")
    assert found["--eval_batch_size"].default == "64"
    assert "--block_size" not in found, "a dataclass is no parser by itself"


def test_fields_are_options_where_something_parses_them() -> None:
    text = (
        "from transformers import HfArgumentParser\n@dataclass\nclass ScriptArguments:\n"
        "    max_seq_length: int = field(default=512)\n    use_lora: bool = False\n"
    )
    found = {one.names[0]: one for one in declared_in_source(text)}
    assert (found["--max_seq_length"].default, found["--use_lora"].takes) == ("512", False)
    assert framework_of_source(text) == "transformers"


def test_typer_parameters_with_a_default_are_options() -> None:
    text = "@app.command()\ndef main(data: str, batch_size: int = 8, amp: bool = False): ...\n"
    found = {one.names[0]: one for one in declared_in_source(text)}
    assert set(found) == {"--batch-size", "--amp"}
    assert found["--batch-size"].default == "8"


@settings(deadline=None)  # two cores, shared
@given(st.text(max_size=60))
def test_no_source_and_no_help_makes_it_fail(text: str) -> None:
    declared_in_source(text)
    declared_in_help(text)
    framework_of_source(text)


def test_a_real_help_text_is_read() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("-b", "--batch-size", type=int, default=32, help="of one device")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="numbers")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    found = {one.names[-1]: one for one in declared_in_help(parser.format_help())}
    assert (found["--batch-size"].default, found["--batch-size"].takes) == ("32", True)
    assert found["--precision"].choices == ("fp32", "bf16")
    assert not found["--amp"].takes


def test_a_parser_in_a_module_beside_the_script_is_found(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("from options import parser\nimport torch\n")
    (tmp_path / "options.py").write_text("import argparse\np.add_argument('--bsz', default=4)\n")
    facts = read_script((sys.executable, "t.py"), str(tmp_path))
    assert [one.long_name for one in facts.declared] == ["--bsz"]
    assert facts.framework == "torch"
    module = read_script((sys.executable, "-m", "options"), str(tmp_path))
    assert [one.long_name for one in module.declared] == ["--bsz"]
    assert read_script((sys.executable, "none.py"), str(tmp_path)) == ((), None, (), False)


# -- variables


def test_every_variable_says_what_it_costs_and_where_it_is_documented() -> None:
    assert len({one.id for one in VARIABLES}) == len(VARIABLES)
    for one in VARIABLES:
        assert one.does.endswith(".")
        assert one.costs
        assert one.source


@pytest.mark.parametrize(
    ("environment", "version", "answer"),
    [
        ({}, "2.4.0", ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")),
        ({}, None, ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")),
        ({}, "2.10.0+cu130", ("PYTORCH_ALLOC_CONF", "expandable_segments:True")),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:False"},
            "2.10.0",
            ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True"),
        ),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2]"},
            "2.1",
            (
                "PYTORCH_CUDA_ALLOC_CONF",
                "roundup_power2_divisions:[256:1,512:2],expandable_segments:True",
            ),
        ),
        (
            {"PYTORCH_ALLOC_CONF": "x:1"},
            "2.4",
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ),
    ],
)
def test_the_allocators_setting_is_added_to_what_is_there(
    environment: dict[str, str], version: str | None, answer: tuple[str, str]
) -> None:
    assert allocator_setting(environment, "expandable_segments:True", version) == answer
