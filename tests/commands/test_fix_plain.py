"""What holds for every flow in plain mode: prompts, ends of input, refusals, what is written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cockpit.act.journal import Entry
from cockpit.attach.run_record import RunRecord, list_runs
from tests.commands.conftest import Start
from tests.commands.test_one_shot import python_for_others
from tests.commands.walking import PROMPT, alive, in_background, wait_for

Ran = Callable[..., RunRecord]
CASES = Path(__file__).parents[1] / "cases"
FRAGMENTED = (sys.executable, "fragmented.py")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
OTHER = ("setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups")


def journal(state: Path) -> list[Entry]:
    path = state / "journal.jsonl"
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines()]


# -- without a cause ----------------------------------------------------------------------------


def test_without_a_flow_and_without_trouble_it_says_so_and_asks_what_is_wrong(fix: Start) -> None:
    walk = fix("h200")
    said = walk.prompt()
    assert "ok  Anything seen?  Nothing that the cockpit can see is wrong just now." in said
    assert "What is wrong?" in said
    said = walk.choose("GPU memory still full")
    assert "Every holder has somebody who waits for it" in " ".join(said.split())
    assert walk.end() == 1
    assert "Left; nothing was changed." in walk.said


def test_the_first_question_names_the_failed_runs_and_can_be_left(fix: Start, ran: Ran) -> None:
    ran(sys.executable, "-c", "raise SystemExit(3)")
    walk = fix("h200")
    said = " ".join(walk.prompt().split())
    assert "- Failed lately " in said
    assert "-c raise SystemExit(3) (status 3): It ended with status 3, and its output" in said
    assert "Is it one of these? Say what it was; then the run can be chosen." in said
    assert walk.end(walk.number("leave")) == 1
    assert "Left; nothing was changed." in walk.said


def test_a_log_in_which_nothing_failed_is_said_to_be_well(fix: Start, work: Path) -> None:
    (work / "run.log").write_text("".join(f"step {n} loss 0.{n}\n" for n in range(10, 99)))
    walk = fix("h200", "--log", "run.log")
    assert "Nothing failed in this log." in walk.prompt()
    assert walk.end() == 1


@pytest.mark.parametrize("flow", ["multi-gpu", "oom", "slow", "kernel-fault"])
def test_a_kept_run_that_ended_with_status_0_needs_nothing(fix: Start, ran: Ran, flow: str) -> None:
    record = ran(sys.executable, "-c", "print('step 1 loss 2.0')")
    walk = fix("h200", flow, "--pid", str(record.meta.pid))
    assert walk.end() == 1
    assert "The run ended with status 0, and what it has printed shows no failure." in " ".join(
        walk.said.split()
    )
    assert walk.said.strip().endswith("The run ended with status 0: there is nothing to mend.")
    assert "diagnostics" not in walk.said


@pytest.mark.parametrize("content", ["", "%%&/ ;;\n" * 9], ids=["empty", "no log"])
def test_of_a_log_without_a_failure_it_says_that_another_is_needed(
    fix: Start, work: Path, content: str
) -> None:
    (work / "run.log").write_text(content)
    walk = fix("h200", "oom", "--log", "run.log")
    assert walk.end() == 1
    said = " ".join(walk.said.split())
    assert (
        f"? What does the log say? {'No known cause' if content else 'The file is empty'}" in said
    )
    assert "Give the log of the run that failed (--log FILE), or its command line" in said


@pytest.mark.parametrize(("scenario", "what"), [("stray", "3 strays"), ("noowner", "have none")])
def test_without_a_flow_strays_and_memory_without_an_owner_are_seen(
    fix: Start, scenario: str, what: str
) -> None:
    walk = fix(scenario, "--dry-run", plain=False)
    assert walk.end() == 1
    assert walk.said.strip().startswith("GPU memory still full after the run stopped")
    assert what in " ".join(walk.said.split())


def test_a_log_of_another_family_than_was_asked_for_says_so_and_goes_on(fix: Start) -> None:
    log = str(CASES / "052-fault-embedding-assert.log")
    walk = fix("h200", "oom", "--log", log, "--dry-run", plain=False)
    assert walk.end() == 1
    assert "This is not an out-of-memory: An index" in " ".join(walk.said.split())
    assert walk.said.strip().startswith("Illegal access, assert or device error")


def test_a_log_of_what_the_run_got_over_names_what_ended_it(fix: Start) -> None:
    walk = fix("h200", "--log", str(CASES / "013-oom-caught-and-retried.log"))
    assert walk.end() == 1
    said = " ".join(walk.said.split())
    assert "Nothing to repair on the GPU. What really ended the run: OSError" in said
    assert re.search(r"sed -n '10p' /\S+/013-oom-caught-and-retried.log", said)
    assert "What is wrong?" not in said


@pytest.mark.parametrize(
    ("name", "flow"),
    [
        ("001-oom-modern-basic", "Out of memory"),
        ("029-cuda-cpu-only-wheel", "Training on the CPU"),
        ("057-fault-illegal-access-index-oor", "Illegal access"),
        ("077-slow-dataloader-bound", "Slower than expected"),
        ("089-nccl-watchdog-one-rank-behind", "A job on several GPUs"),
    ],
)
def test_the_log_tells_which_flow_it_is(fix: Start, name: str, flow: str) -> None:
    walk = fix("h200", "--log", str(CASES / f"{name}.log"), "--dry-run", plain=False)
    assert walk.end() == 1
    assert walk.said.strip().startswith(flow)
    assert "What is wrong?" not in walk.said


# -- nothing is done without a word -------------------------------------------------------------


@pytest.mark.parametrize(
    "answers",
    [(), ("fragmented.py",), ("fragmented.py", "let segments grow")],
    ids=["at the question", "at the choice", "at the confirmation"],
)
def test_the_end_of_the_input_changes_nothing(
    fix: Start, ran: Ran, state: Path, answers: tuple[str, ...]
) -> None:
    ran(*FRAGMENTED)
    walk = fix("h200", "oom")
    walk.prompt()
    for answer in answers:
        walk.choose(answer)
    assert walk.end() == 1
    assert "Left; nothing was changed." in walk.said
    assert len(list_runs(str(state))) == 1
    assert journal(state) == []


@pytest.mark.parametrize("word", ["train.py", "", None], ids=["wrong", "empty", "end of input"])
def test_a_patch_is_written_only_when_its_file_is_typed(
    fix: Start, ran: Ran, state: Path, work: Path, torch_python: str, word: str | None
) -> None:
    ran(torch_python, "left_behind.py")
    before = (work / "left_behind.py").read_bytes()
    walk = fix("h200", "no-cuda")
    walk.prompt()
    walk.choose("left_behind.py")
    assert walk.choose("bring model and batch").endswith("type left_behind.py to go on: ")
    if word is not None:
        assert "What can be done:" in walk.answer(word)
    assert walk.end() == 1
    assert (work / "left_behind.py").read_bytes() == before
    assert b"Not confirmed; nothing was done." in walk.errors
    assert journal(state) == []


def test_an_answer_that_is_no_number_of_the_list_is_asked_for_again(fix: Start) -> None:
    walk = fix("h200")
    walk.prompt()
    for wrong in ("", "0", "9", "-1", "x", "1 2", "²", "9" * 5000):
        assert PROMPT.match(walk.answer(wrong))
    assert walk.end() == 1
    assert b"A number from 1 to 8." in walk.errors


def test_no_or_silence_at_a_confirmation_leads_back_to_the_choice(
    fix: Start, ran: Ran, state: Path
) -> None:
    ran(*FRAGMENTED)
    walk = fix("h200", "oom")
    walk.prompt()
    walk.choose("fragmented.py")
    for word in ("", "n", "no", "yeah"):
        walk.choose("let segments grow")
        assert "What can be done:" in walk.answer(word)
    assert walk.end() == 1
    assert len(list_runs(str(state))) == 1


def test_a_dry_run_previews_all_and_runs_nothing(fix: Start, state: Path) -> None:
    log = str(CASES / "007-oom-other-users-process.log")
    walk = fix("stray", "oom", "--log", log, "--dry-run", "--", *FRAGMENTED, plain=False)
    assert walk.end() == 1
    said = " ".join(walk.said.split())
    assert "What would run, each only after a confirmation: 1. end all 3 strays" in said
    assert "--local-rank=1: SIGTERM" in said
    assert "You lose:" in said
    assert not PROMPT.search(walk.said)
    assert journal(state) == []
    assert list_runs(str(state)) == []


def test_a_readonly_cockpit_shows_all_and_runs_nothing(fix: Start, state: Path) -> None:
    walk = fix("stray", "vram-held", before=("--readonly",))
    assert walk.end() == 1
    assert "end all 3 strays" in walk.said
    assert "Read-only: nothing is run." in walk.said
    assert not PROMPT.search(walk.said)
    assert journal(state) == []


# -- what is done is written down, and can be taken back ----------------------------------------


def test_a_patch_is_taken_back_after_its_diff_and_a_yes(
    fix: Start, ran: Ran, state: Path, work: Path, torch_python: str
) -> None:
    ran(torch_python, "left_behind.py")
    before = (work / "left_behind.py").read_bytes()
    walk = fix("h200", "no-cuda")
    walk.prompt()
    walk.choose("left_behind.py")
    walk.choose("bring model and batch")
    walk.answer("left_behind.py")
    assert (work / "left_behind.py").read_bytes() != before
    said = walk.choose("take back:")
    assert "x.to(device" in said, "the diff is shown before the question"
    assert said.endswith("Take it back? [y/N] ")
    walk.answer("n")
    assert (work / "left_behind.py").read_bytes() != before
    walk.choose("take back:")
    said = walk.answer("y")
    assert (work / "left_behind.py").read_bytes() == before
    assert "take back:" not in said
    assert walk.end() == 1
    rows = [(one.operation, one.phase, one.outcome) for one in journal(state)]
    assert rows == [
        ("patch", "intent", None),
        ("patch", "result", "done"),
        ("undo-patch", "intent", None),
        ("undo-patch", "result", "done"),
    ]


def test_a_flow_that_was_left_is_taken_up_again(
    fix: Start, ran: Ran, state: Path, work: Path, torch_python: str
) -> None:
    ran(torch_python, "left_behind.py")
    before = (work / "left_behind.py").read_bytes()
    walk = fix("h200", "no-cuda")
    walk.prompt()
    walk.choose("left_behind.py")
    walk.choose("bring model and batch")
    walk.answer("left_behind.py")
    other = fix("h200", "no-cuda")
    assert "This flow was left" not in other.prompt(), "it is open elsewhere"
    other.end()
    engine = engines_of(walk.cockpit)[0]
    os.kill(walk.cockpit, signal.SIGKILL)  # the connection was lost
    walk.close()
    wait_for(lambda: not alive(engine))
    again = fix("h200", "no-cuda")
    said = again.prompt()
    assert "This flow was left" in said
    assert "bring model and batch to the same device" in " ".join(said.split())
    said = again.choose("go on where it was left")
    assert again.number("run it again with what was changed") == "1"
    again.choose("take back:")
    again.answer("y")
    assert (work / "left_behind.py").read_bytes() == before
    assert again.end() == 1
    third = fix("h200", "no-cuda")
    assert "This flow was left" not in third.prompt(), "nothing of it stands"
    third.end()


def test_what_was_left_on_purpose_with_a_patch_applied_can_be_gone_on_with(
    fix: Start, ran: Ran, work: Path, torch_python: str
) -> None:
    ran(torch_python, "left_behind.py")
    before = (work / "left_behind.py").read_bytes()
    walk = fix("h200", "no-cuda")
    walk.prompt()
    walk.choose("left_behind.py")
    walk.choose("bring model and batch")
    said = walk.answer("left_behind.py")
    walk.type(walk.number("leave"))
    assert walk.end() == 1
    assert "Start this flow again to go on" in " ".join(walk.said.split())
    again = fix("h200", "no-cuda")
    assert "This flow was left" in again.prompt()
    said = again.choose("go on where it was left")
    assert "run it again with what was changed" in said
    again.choose("take back:")
    again.answer("y")
    assert (work / "left_behind.py").read_bytes() == before
    again.end()


def test_the_journal_has_intent_and_result_of_a_kill_and_of_a_start(
    fix: Start, ran: Ran, state: Path
) -> None:
    ran(*FRAGMENTED)
    walk = fix("h200", "oom")
    walk.prompt()
    walk.choose("fragmented.py")
    walk.choose("let segments grow")
    assert walk.end("y") == 0
    kill = fix("stray", "vram-held")
    kill.prompt()
    kill.choose("end all 3 strays")
    kill.answer("y")
    kill.end()
    rows = [(one.operation, one.phase) for one in journal(state)]
    assert rows[:2] == [("relaunch", "intent"), ("relaunch", "result")]
    assert {("kill", "intent"), ("kill", "result")} <= set(rows)
    assert "expandable_segments" in journal(state)[0].command


# -- ctrl+c -------------------------------------------------------------------------------------


def test_ctrl_c_at_a_prompt_leaves_with_130(fix: Start, state: Path) -> None:
    walk = fix("stray", "vram-held")
    walk.prompt()
    walk.choose("end all 3 strays")
    os.kill(walk.cockpit, signal.SIGINT)
    assert walk.end() == 130
    assert walk.said.rstrip().endswith("Left; nothing was changed.")
    assert journal(state) == []


def test_ctrl_c_while_a_run_is_watched_tells_that_it_goes_on(
    fix: Start, state: Path, work: Path
) -> None:
    (work / "long.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
    log = str(CASES / "006-oom-fragmentation.log")
    walk = fix("h200", "oom", "--log", log, "--", sys.executable, "long.py")
    walk.prompt()
    walk.choose("let segments grow")
    walk.type("y")
    record = wait_for(lambda: [one for one in list_runs(str(state)) if one.output()])[0]
    pid = record.meta.pid
    os.kill(walk.cockpit, signal.SIGINT)
    assert walk.end() == 130
    assert alive(pid), "what was started is the user's own run now"
    said = " ".join(walk.said.split())
    assert f"no longer watched; long.py goes on (pid {pid})" in said
    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert ignored is not None
    assert not int(ignored[1], 16) & 1 << (signal.SIGINT - 1), "and it takes ctrl+c as any other"
    assert [one.phase for one in journal(state)] == ["intent", "result"]


def test_a_run_that_a_fix_has_started_outlives_cockpit_and_engine(
    fix: Start, state: Path, work: Path
) -> None:
    (work / "long.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
    log = str(CASES / "006-oom-fragmentation.log")
    walk = fix("h200", "oom", "--log", log, "--", sys.executable, "long.py")
    walk.prompt()
    walk.choose("let segments grow")
    walk.type("y")
    record = wait_for(lambda: [one for one in list_runs(str(state)) if one.output()])[0]
    engine = wait_for(lambda: engines_of(walk.cockpit))[0]
    os.kill(walk.cockpit, signal.SIGKILL)
    walk.close()
    wait_for(lambda: not alive(engine))
    assert alive(record.meta.pid)
    assert [one.phase for one in journal(state)] == ["intent", "result"]


def engines_of(pid: int) -> list[int]:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in words]


def test_ctrl_c_ends_a_rerun_that_was_made_only_to_look(
    fix: Start, state: Path, work: Path, ran: Ran
) -> None:
    (work / "asserts.py").write_text(
        "import time, os\nif 'CUDA_LAUNCH_BLOCKING' in os.environ:\n    time.sleep(300)\n"
        + (work / "asserts.py").read_text()
    )
    ran(sys.executable, "asserts.py")
    walk = fix("h200", "kernel-fault")
    walk.prompt()
    walk.choose("asserts.py")
    walk.choose("run it again in up to")
    walk.type("y")
    record = wait_for(lambda: [one for one in list_runs(str(state)) if one.exit is None])[0]
    time.sleep(1)
    os.kill(walk.cockpit, signal.SIGINT)
    assert walk.end() == 130
    wait_for(lambda: not alive(record.meta.pid))


# -- what is given on the command line ----------------------------------------------------------


def test_a_log_that_is_not_there_is_5_and_one_that_is_no_file_is_2(fix: Start, work: Path) -> None:
    missing = fix("h200", "oom", "--log", "none.log")
    assert missing.end() == 5
    assert b"none.log: No such file" in missing.errors
    os.mkfifo(work / "pipe")
    for name in ("pipe", "."):
        walk = fix("h200", "oom", "--log", name)
        assert walk.end() == 2
        assert b"is no plain file" in walk.errors or b"Is a directory" in walk.errors


def test_a_log_of_random_bytes_is_no_known_cause(fix: Start, work: Path) -> None:
    (work / "noise").write_bytes(os.urandom(1 << 20))
    walk = fix("h200", "--log", "noise")
    assert "What is wrong?" in walk.prompt()
    walk.type(walk.number("Out of memory"))
    assert walk.end() == 1
    assert not set(walk.said) & set(map(chr, (*range(10), *range(11, 32), 127, *range(128, 160))))


def test_a_huge_log_is_read_within_seconds(fix: Start, work: Path) -> None:
    with (work / "huge.log").open("w") as file:
        for _ in range(64):
            file.write("".join(f"step {n} loss 0.{n} tokens/s 18213\n" for n in range(50_000)))
        file.write((CASES / "006-oom-fragmentation.log").read_text())
    assert (work / "huge.log").stat().st_size > 100 << 20
    began = time.monotonic()
    walk = fix("h200", "--log", "huge.log")
    assert walk.end() == 1
    assert time.monotonic() - began < 40
    assert "Fragmentation?  9.3 GiB reserved" in walk.said


def test_a_process_that_is_gone_is_5_unless_something_is_left_of_it(fix: Start, ran: Ran) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    walk = fix("h200", "oom", "--pid", str(gone.pid))
    assert walk.end() == 5
    assert b"There is no process" in walk.errors
    record = ran(*FRAGMENTED)
    walk = fix("h200", "oom", "--pid", str(record.meta.pid))
    assert "let segments grow" in walk.prompt(), "its record is kept"
    walk.end()


def test_a_typed_command_is_what_is_started(fix: Start, state: Path) -> None:
    log = str(CASES / "006-oom-fragmentation.log")
    walk = fix("h200", "oom", "--log", log, "--", *FRAGMENTED, "--log", "own option", "--dry-run")
    walk.prompt()
    said = walk.choose("let segments grow")
    assert "fragmented.py --log 'own option' --dry-run" in said
    assert "the rest of the environment is this cockpit's own" in said
    assert walk.end("y") == 0
    assert list_runs(str(state))[0].meta.command[-3:] == ("--log", "own option", "--dry-run")


def test_of_a_process_that_lives_the_typed_command_waits_for_its_end(
    fix: Start, state: Path, work: Path
) -> None:
    (work / "long.py").write_text("import time\ntime.sleep(300)\n")
    pid = in_background(state, work, sys.executable, "long.py")
    log = str(CASES / "006-oom-fragmentation.log")
    walk = fix("h200", "oom", "--pid", str(pid), "--log", log, "--", *FRAGMENTED)
    assert walk.end() == 1
    assert f"pid {pid} still runs and holds its GPU: end it first" in " ".join(walk.said.split())


# -- other users --------------------------------------------------------------------------------


@needs_root
def test_another_users_process_is_neither_ended_nor_started_again(
    fix: Start, tmp_path: Path, simnvml_build: Path
) -> None:
    python, site = python_for_others(tmp_path)
    simnvml_build.chmod(0o755)  # pytest's are for their owner only
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1002, 1002)
    env = {"PYTHONPATH": site, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    cockpit = (*OTHER, python, "-m", "cockpit")
    walk = fix("stray", "vram-held", env=env, cockpit=cockpit)
    assert walk.end() == 1
    said = " ".join(walk.said.split())
    assert re.search(r"GiB belong to 1001, root: only they, or root, can end those", said), said
    assert "end the stray" not in said
    job = subprocess.Popen(["sleep", "60"])
    try:
        walk = fix("h200", "slow", "--pid", str(job.pid), env=env, cockpit=cockpit)
        assert walk.end() == 1
        assert "SIGTERM" not in walk.said
        assert "start it" not in walk.said
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


# -- hostile text -------------------------------------------------------------------------------

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egpj\r\x08"


def test_hostile_text_in_log_names_and_command_never_reaches_the_terminal_raw(
    fix: Start, work: Path, state: Path
) -> None:
    name = f"e{EVIL}.log".replace("/", "_")
    text = (CASES / "006-oom-fragmentation.log").read_text()
    text = text.replace("training_step", f"step{EVIL}").replace(
        "/workspace/sft.py", f"/w/{EVIL}.py"
    )
    (work / name).write_text(EVIL + text)
    (work / f"t{EVIL}.py").write_text(f"print({EVIL!r})\nraise SystemExit({EVIL!r})\n")
    command = (sys.executable, f"t{EVIL}.py", f"--name={EVIL}")
    walk = fix("hostile", "oom", "--log", name, "--", *command)
    walk.prompt()
    walk.choose("let segments grow")
    assert walk.end("y") == 1
    for what in (walk.said, walk.errors.decode()):
        assert not set(what) & set("\x1b\x07\x9b\u202e\r\x08\x7f"), repr(what)
    assert "^[" in walk.said


def test_every_line_that_is_no_command_fits_into_80_columns(fix: Start) -> None:
    walk = fix("stray", "vram-held")
    walk.prompt()
    said = walk.choose("end all 3 strays")
    walk.end()
    assert max(len(line) for line in walk.said.splitlines()) <= 80, said


def test_the_text_is_as_wide_as_the_terminal(fix: Start) -> None:
    walk = fix("stray", "vram-held", env={"COLUMNS": "60"})
    walk.prompt()
    walk.end()
    assert 50 < max(len(line) for line in walk.said.splitlines()) <= 60


def test_a_report_is_written_at_the_end_and_never_over_a_file(fix: Start, work: Path) -> None:
    walk = fix("stray", "vram-held", "--report", "ticket.md")
    walk.prompt()
    walk.choose("end all 3 strays")
    walk.answer("y")
    walk.end()
    written = work / "ticket.md"
    assert written.stat().st_mode & 0o777 == 0o600
    text = written.read_text()
    assert text.startswith("# ")
    assert "end all 3 strays" in text
    before, _, after = text.partition("## Seen afterwards")
    assert "Strays? 3 strays with" in before, "what was wrong is what a ticket is about"
    assert "(well)" in after.partition("Strays?")[2].splitlines()[0]
    again = fix("stray", "vram-held", "--report", "ticket.md")
    assert again.end() == 2
    assert written.read_text() == text
