"""Guided flows from end to end without a GPU: real runs, real kills, simulated NVML, CPU torch."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from cockpit.attach.run_record import RunRecord, list_runs
from tests.commands.conftest import Start
from tests.commands.walking import alive, children_of, in_background, wait_for

Ran = Callable[..., RunRecord]
TESTS = Path(__file__).parents[1]
ENGINE_PROGRAMS = TESTS / "engine" / "programs"


def test_a_card_held_by_strays_is_freed_and_the_run_starts_as_it_was(
    fix: Start, work: Path, state: Path
) -> None:
    log = work / "run.log"
    log.write_text((TESTS / "cases" / "007-oom-other-users-process.log").read_text())
    command = (sys.executable, "crowded.py", "100000")
    walk = fix("stray", "oom", "--log", str(log), "--", *command)
    said = walk.prompt()
    said = " ".join(said.split())
    assert "filled the card. Now they are 6 processes with 69.1 GiB on GPU 0:" in said
    said = walk.choose("end all 3 strays")
    assert "local-rank=1: SIGTERM" in " ".join(said.split())
    assert said.endswith("Go on? [y/N] ")
    said = walk.answer("y")
    assert "[helped] end all 3 strays" in said
    assert "memory of pid" in said
    said = walk.choose("start the run again as it was")
    assert "cockpit run --name crowded.py --background --" in said
    assert walk.end("y") == 0, walk.said
    assert "crowded.py ended with status 0" in walk.said
    assert list_runs(str(state))[0].exit.status == 0  # type: ignore[union-attr]


def test_a_batch_that_is_too_large_is_halved_and_the_run_ends_well(
    fix: Start, ran: Ran, work: Path, torch_python: str
) -> None:
    (work / "train.py").write_text((ENGINE_PROGRAMS / "torch_train.py").read_text())
    ran(torch_python, "train.py", "--batch-size", "32", "--steps", "12")
    walk = fix("h200", "oom")
    said = walk.prompt()
    assert "Which run?" in said
    said = walk.choose("train.py --batch-size 32")
    assert "halve the batch, double the accumulation" in said
    said = walk.choose("halve the batch")
    assert "train.py --batch-size 16 --steps 12 --accum-steps 2" in said
    assert walk.end("y") == 0, walk.said
    said = " ".join(walk.said.split())
    assert "end: status 1 -> status 0" in said
    assert "ended with status 0" in said


def test_a_batch_option_that_the_source_does_not_show_is_asked_for_by_help(
    fix: Start, ran: Ran, work: Path, torch_python: str
) -> None:
    source = (ENGINE_PROGRAMS / "torch_train.py").read_text()
    hidden = source.replace('"--batch-size", type=int', 'BATCH, type=int, help="(default: 32)"')
    hidden = hidden.replace("import torch\n", 'import torch\n\nBATCH = "--batch" + "-size"\n', 1)
    (work / "train.py").write_text(hidden)
    ran(torch_python, "train.py", "--steps", "12")
    walk = fix("h200", "oom")
    walk.prompt()
    said = walk.choose("train.py --steps 12")
    assert "halve the batch" not in said
    said = walk.choose("ask the script for its options")
    assert "CUDA_VISIBLE_DEVICES='' " in said
    assert "train.py --help" in said
    said = walk.answer("y")
    assert "It has --batch-size (default 32) for the batch size." in " ".join(said.split())
    assert "ask the script" not in said.rpartition("What")[2]
    said = walk.choose("halve the batch")
    assert "train.py --steps 12 --batch-size 16" in said
    assert walk.end("y") == 0, walk.said
    assert "ended with status 0" in " ".join(walk.said.split())


def test_fragmentation_is_met_by_segments_that_grow(fix: Start, ran: Ran) -> None:
    ran(sys.executable, "fragmented.py")
    walk = fix("h200", "oom")
    walk.prompt()
    said = walk.choose("fragmented.py")
    assert "9.3 GiB reserved but unused, 14.8 GiB asked for: yes" in said
    assert walk.number("let segments grow") == "1"
    said = walk.answer("1")
    assert "+ PYTORCH" in said
    assert "expandable_segments:True" in said
    assert walk.end("y") == 0, walk.said


def test_a_typed_command_is_changed_from_the_environment_that_it_was_typed_in(
    fix: Start, work: Path
) -> None:
    log = work / "run.log"
    log.write_text((TESTS / "cases" / "006-oom-fragmentation.log").read_text())
    kept = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
    command = (sys.executable, "fragmented.py")
    walk = fix("h200", "oom", "--log", str(log), "--", *command, env=kept)
    walk.prompt()
    said = walk.choose("let segments grow")
    assert "- PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128" in said
    assert "max_split_size_mb:128,expandable_segments:True" in said
    assert walk.end("n") == 1
    wrong = {"CUDA_VISIBLE_DEVICES": "0,GPU-0000dead"}
    log.write_text((TESTS / "cases" / "036-cuda-visible-devices-uuid-typo.log").read_text())
    walk = fix("h200", "no-cuda", "--log", str(log), "--", *command, env=wrong)
    walk.prompt()
    said = walk.choose("CUDA_VISIBLE_DEVICES")
    assert "- CUDA_VISIBLE_DEVICES=0,GPU-0000dead" in said
    assert walk.end("n") == 1


def test_a_device_argument_that_says_cpu_is_changed(fix: Start, work: Path) -> None:
    log = work / "run.log"
    log.write_text("GPU available: True (cuda), used: False\nstep 1\n")
    command = (sys.executable, "device.py", "--device", "cpu")
    walk = fix("h200", "--log", str(log), "--", *command)
    said = walk.prompt()
    assert "Training on the CPU" in said, "the log tells which flow it is"
    said = walk.choose("ask for the GPU")
    assert "device.py --device cuda" in said
    assert walk.end("y") == 0, walk.said


def test_a_batch_left_on_the_cpu_is_moved_by_a_patch_and_the_rerun_ends_well(
    fix: Start, ran: Ran, work: Path, torch_python: str
) -> None:
    ran(torch_python, "left_behind.py")
    walk = fix("h200", "no-cuda")
    walk.prompt()
    said = walk.choose("left_behind.py")
    assert "left_behind.py:20" in said
    said = walk.choose("bring model and batch to the same device")
    assert "+    x, y = x.to(device" in said, said
    assert said.endswith("type left_behind.py to go on: ")
    said = walk.answer("left_behind.py")
    walk.choose("run it again")
    assert walk.end("y") == 0, walk.said


def test_a_cpu_wheel_is_replaced_as_far_as_an_index_answers(
    fix: Start, ran: Ran, work: Path, torch_python: str
) -> None:
    (work / "wheel.py").write_text("import torch\ntorch.zeros(1).to('cuda')\n")
    ran(torch_python, "wheel.py")
    walk = fix("h200", "no-cuda")
    walk.prompt()
    said = walk.choose("wheel.py")
    assert "CPU-only build" in " ".join(said.split())
    said = walk.choose("install torch for cu")
    assert "--index-url https://download.pytorch.org/whl/cu13" in said
    name = said.rpartition("type ")[2].partition(" to go on")[0]
    walk.type(name)
    assert walk.end() == 1
    said = walk.said
    assert "[failed] install torch" in said
    assert "No package index answers" in " ".join(said.split())
    assert "nothing was changed" in said
    assert said.count("Fail instead of falling back") == 2, "once before, once after"


@pytest.mark.parametrize(
    ("program", "change", "line"),
    [
        ("asserts.py", "s/7, 16/7, 15/", "rows = lookup(table, tokens)"),
        ("illegal.py", "s/1 << 40/15/", "scatter(weights, places)"),
    ],
)
def test_a_fault_is_located_by_reruns_mended_in_the_editor_and_gone(
    fix: Start, ran: Ran, work: Path, program: str, change: str, line: str
) -> None:
    ran(sys.executable, program)
    lines = (work / program).read_text().splitlines()
    number = lines.index(line) + 1
    env = {"EDITOR": str(work / "fake_editor.sh"), "FAKE_EDIT": change}
    walk = fix("h200", "kernel-fault", env=env)
    walk.prompt()
    said = walk.choose(program)
    assert f"{program}:{number}" not in said, "CUDA reports late"
    assert walk.number("run it again in up to") == "1"
    said = walk.answer("1")
    assert "# every kernel waited for (CUDA_LAUNCH_BLOCKING=1)" in said
    said = walk.answer("y")
    assert f"{program}:{number}" in said, "the line of the kernel, not that of the synchronize"
    assert walk.number("change it in the editor") == "1"
    said = walk.answer("1")
    assert f"> {number:>2}  {line}" in said
    said = walk.answer("y")
    assert f"{program} was changed in" in " ".join(said.split())
    assert walk.number("run it again with what was changed") == "1"
    said = walk.answer("1")
    assert "CUDA_LAUNCH_BLOCKING" not in said, "the run as it is, not as it was looked at"
    assert walk.end("y") == 0, walk.said


def test_a_trainer_that_waits_for_data_gets_workers_and_is_measured_faster(
    fix: Start, state: Path, work: Path, torch_python: str
) -> None:
    pid = in_background(state, work, torch_python, "starved.py", "--num-workers", "0")
    time.sleep(4)
    walk = fix("h200", "slow", "--pid", str(pid))
    said = walk.prompt()
    assert "Data is loaded in the training process" in said
    assert "still runs and holds its GPU: end it first" in " ".join(said.split())
    walk.choose("end the whole job")
    said = walk.answer("y")
    assert not Path(f"/proc/{pid}").exists()
    said = walk.choose("load data in")
    assert re.search(r"starved.py --num-workers [1-9]", said)
    assert walk.end("y") == 0, walk.said
    said = " ".join(walk.said.split())
    assert re.search(r"time a step: \d+ ms \(.* to .*\) -> .* ms \(.* to .*\): \d+ % faster", said)


def test_a_profile_of_an_attached_run_is_read_in_figures(
    fix: Start, state: Path, work: Path, torch_python: str
) -> None:
    pid = in_background(state, work, torch_python, "starved.py", "--num-workers", "0")
    time.sleep(4)
    walk = fix("h200", "slow", "--pid", str(pid))
    walk.prompt()
    said = walk.choose("profile 10 steps")
    assert "where the time of a step goes is shown" in " ".join(said.split())
    said = walk.answer("y")
    assert f"[done] profile 10 steps of pid {pid}" in said
    assert re.search(r"\| step: [\d.]+ ms", said)
    assert walk.end() == 1


def test_the_tensors_of_an_attached_run_are_named(
    fix: Start, state: Path, work: Path, torch_python: str
) -> None:
    pid = in_background(state, work, torch_python, "starved.py", "--num-workers", "0")
    time.sleep(4)
    walk = fix("h200", "oom", "--pid", str(pid))
    walk.prompt()
    said = walk.choose("show the largest tensors")
    assert "in slices of 1 ms" in said
    said = walk.answer("y")
    assert f"[done] show the largest tensors of pid {pid}" in said
    assert re.search(r"\| \d+ (B|KiB)  cpu  float32 \[8, 64\]", said)
    assert walk.end() == 1


def test_memory_that_is_full_after_a_kill_is_freed_also_from_what_ignores_sigterm(
    fix: Start,
) -> None:
    walk = fix("stray", "vram-held")
    said = walk.prompt()
    pids = re.findall(r"end the stray (\d+)", said)
    assert len(pids) == 3
    walk.choose("end all 3 strays")
    said = walk.answer("y")
    assert "[helped] end all 3 strays" in said
    assert not any(alive(int(pid)) for pid in pids)
    walk.choose("finetune.py --resume), which computes nothing")
    said = walk.answer("y")
    assert "did not help" in said
    said = walk.choose("by SIGKILL")
    pid = re.findall(r"end (\d+) .*by SIGKILL", said)[-1]
    assert said.endswith(f"type {pid} to go on: ")
    said = walk.answer("yes")
    assert alive(int(pid)), "a wrong word is no confirmation"
    walk.choose("by SIGKILL")
    assert walk.end(pid) == 0
    assert not alive(int(pid))
    assert "11.7 GiB -> 0 B" in walk.said


def test_a_hang_names_the_line_ends_the_whole_job_and_starts_it_again(
    fix: Start, state: Path, work: Path, torch_python: str
) -> None:
    torchrun = str(Path(torch_python).parent / "torchrun")
    launcher = in_background(state, work, torchrun, "--nproc-per-node", "2", "hangs.py")
    ranks = wait_for(lambda: children_of(launcher, b"hangs.py", 2), 60)
    time.sleep(8)
    env = {"EDITOR": str(work / "fake_editor.sh"), "FAKE_EDIT": "s/time.sleep(3600)/pass/"}
    walk = fix("h200x8", "multi-gpu", "--pid", str(ranks[1]), env=env)
    said = " ".join(walk.prompt().split())
    assert re.search(rf"rank 1 \(pid {ranks[1]}\) is at \S*hangs.py:20", said), said
    walk.choose("change it in the editor")
    walk.answer("y")
    walk.choose("end the whole job")
    said = walk.answer("y")
    assert not any(alive(pid) for pid in (launcher, *ranks))
    said = walk.choose("run it again with what was changed")
    assert "torchrun --nproc-per-node 2 hangs.py" in said
    assert walk.end("y") == 0, walk.said
    said = " ".join(walk.said.split())
    assert re.search("hangs.py (passed step 5, the last one of before|ended with status 0)", said)


def test_a_first_run_without_torch_is_offered_the_build_that_fits(fix: Start, work: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "bare"], cwd=work, check=True)
    walk = fix("h200", "first-run", "--", "bare/bin/python", env={"PIP_NO_INDEX": "1"})
    said = walk.prompt()
    assert "has no torch" in said
    said = walk.choose("install torch for cu130 into bare")
    assert said.endswith("type bare to go on: ")
    assert walk.end("bare") == 1
    said = " ".join(walk.said.split())
    assert "[failed] install torch" in said
    assert "nothing was changed" in said
    assert "python -m pip install torch --index-url" in said, "by hand, once it could not be done"


@pytest.mark.skipif(find_spec("torch") is not None, reason="the cockpit's own Python has torch")
def test_without_any_torch_the_user_is_asked_to_name_a_python(fix: Start, work: Path) -> None:
    walk = fix("h200", "first-run", env={"PATH": str(work)})
    assert walk.end() == 1
    assert "cockpit fix first-run -- ~/venv/bin/python" in walk.said
    assert "train a small model" not in walk.said


def test_who_names_no_process_is_asked_which_one_is_slow(fix: Start) -> None:
    walk = fix("h200", "slow")
    said = walk.prompt()
    assert "Which process is it about?" in said
    pid = re.findall(r"(\d+) \(14.1 GiB, python train.py", said)[0]
    walk.type(walk.number("python train.py"))
    walk.end()
    assert f"Slower than expected · pid {pid}" in walk.said
