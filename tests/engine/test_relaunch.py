"""Runs that fail and are started again: real programs, records, agents, tmux windows, users."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cockpit.act.action import Console
from cockpit.act.boot import cockpit_command
from cockpit.act.command_change import halve_batch
from cockpit.act.identity import read_stat
from cockpit.act.relaunch import Relaunch
from cockpit.act.relaunch_check import Terms
from cockpit.act.relaunch_plan import MARK
from cockpit.act.script_files import read_script
from cockpit.attach.run_record import RunRecord, list_runs
from cockpit.engine.run_commands import from_process, from_record, typed
from cockpit.engine.run_looks import RunLooks, measure
from cockpit.errors import CockpitError, RefusedError, TargetGoneError
from cockpit.model.run_command import RunCommand, RunMeasure

PROGRAMS = Path(__file__).parent / "programs"
TERMS = Terms(settle_s=30.0, patience_s=40.0, poll_s=0.1)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


@pytest.fixture(scope="module")
def torch_python() -> str:
    python = os.environ.get("COCKPIT_TORCH_PYTHON") or sys.executable
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        pytest.skip("needs torch (pip install torch==2.13.0, or set COCKPIT_TORCH_PYTHON)")
    return python


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    return tmp_path / "state" / "cockpit"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The run's directory: its name has to be quoted, and a module in it must not be ours."""
    folder = tmp_path / "my $run"
    folder.mkdir()
    (folder / "msgspec.py").write_text("raise SystemExit('the wrong module was imported')\n")
    (folder / "train.py").write_text((PROGRAMS / "plain_train.py").read_text())
    return folder


@pytest.fixture
def failed(state: Path, work: Path) -> Callable[..., RunRecord]:
    """Runs the plain training under the cockpit, to its end."""

    def run(*words: str, python: str = sys.executable, **env: str) -> RunRecord:
        subprocess.run(
            cockpit_command("run", "--", python, "train.py", *words),
            cwd=work,
            env={**os.environ, **env},
            capture_output=True,
            timeout=60,
        )
        return list_runs(str(state))[0]

    return run


def console() -> tuple[Console, list[str]]:
    said: list[str] = []
    return Console(said.append), said


def relaunch(command: RunCommand, **more: Any) -> Relaunch:
    return Relaunch(**{"command": command, "records": RunLooks(), "terms": TERMS, **more})


def wait_for(check: Callable[[], Any], limit_s: float = 20.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := check()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def halved(command: RunCommand) -> dict[str, Any]:
    facts = read_script(command.argv, command.cwd)
    change = halve_batch(command.argv, facts.declared)
    assert change is not None
    return {"argv": change.argv, "notes": change.notes}


# -- it fails with 32, and finishes with 16 ----------------------------------------------------


def test_a_failed_run_is_started_again_with_half_the_batch_and_ends_well(
    failed: Callable[..., RunRecord], work: Path
) -> None:
    old = failed("--batch-size", "32")
    assert old.exit is not None
    assert old.exit.status == 1
    command = from_record(old.directory)
    action = relaunch(command, **halved(command), before=measure(old.directory))
    seen = action.preview()
    assert seen.refusal is None
    assert seen.lines[0] == (
        f"cd '{work}' && cockpit run --name train.py --background -- {sys.executable} train.py "
        "--batch-size 16 --accum-steps 2"
    )
    assert seen.lines[1:3] == (
        f"- {sys.executable} train.py --batch-size 32",
        f"+ {sys.executable} train.py --batch-size 16 --accum-steps 2",
    )
    speaker, said = console()
    outcome = action.run(speaker)
    assert (outcome.ok, outcome.verified) == (True, True), outcome
    assert "ended with status 0" in outcome.sentence
    assert f"in {work} with 16 x 2" in outcome.output
    assert outcome.path is not None
    assert outcome.path != old.directory
    assert ("end", "status 1", "status 0") in [
        (r.what, r.before, r.after) for r in outcome.compared
    ]
    assert "pid" in said[0]


def test_a_run_that_fails_again_is_said_to_and_its_output_is_there(
    failed: Callable[..., RunRecord],
) -> None:
    old = failed("-b", "32")
    again = relaunch(from_record(old.directory), before=measure(old.directory))
    outcome = again.run(console()[0])
    assert outcome.verified is False
    assert "ran out of GPU memory and failed again with status 1" in outcome.sentence
    assert "CUDA out of memory" in outcome.output[-1]
    assert outcome.path is not None
    assert (Path(outcome.path) / "exit.json").exists()


def test_the_environment_is_the_old_ones_with_the_changes(
    failed: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("KEPT", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "MY_API_KEY", "OTHER_TOKEN")
    shown = [word for name in (*names, "TORCH_FR_DUMP_TEMP_FILE") for word in ("--print", name)]
    old = failed(
        *("-b", "8"), *shown, KEPT="a b", CUDA_VISIBLE_DEVICES="", MY_API_KEY="s3", OTHER_TOKEN="t"
    )
    monkeypatch.setenv("MY_API_KEY", "from the cockpit")
    monkeypatch.delenv("OTHER_TOKEN", raising=False)
    command = from_record(old.directory)
    assert set(command.unknown) >= {"MY_API_KEY", "OTHER_TOKEN"}
    action = relaunch(
        command, set_environment={"NCCL_DEBUG": "INFO"}, unset=("CUDA_VISIBLE_DEVICES",)
    )
    lines = action.preview().lines
    assert lines[0].startswith("cd ")
    assert "env -u CUDA_VISIBLE_DEVICES NCCL_DEBUG=INFO cockpit run" in lines[0]
    assert "- CUDA_VISIBLE_DEVICES=''" in lines
    assert "+ NCCL_DEBUG=INFO" in lines
    assert any("taken from this cockpit's" in one and "MY_API_KEY" in one for one in lines)
    assert any("missing" in one and "OTHER_TOKEN" in one for one in lines)
    outcome = action.run(console()[0])
    assert outcome.path is not None
    assert set(outcome.output) >= {
        "KEPT=a b",
        "NCCL_DEBUG=INFO",
        "CUDA_VISIBLE_DEVICES=None",
        "MY_API_KEY=from the cockpit",
        "OTHER_TOKEN=None",
        f"TORCH_FR_DUMP_TEMP_FILE={outcome.path}/flight/rank_",
    }


def test_a_torch_run_passes_the_step_at_which_it_had_failed(
    failed: Callable[..., RunRecord], work: Path, torch_python: str
) -> None:
    (work / "train.py").write_text((PROGRAMS / "torch_train.py").read_text())
    old = failed("--batch-size", "32", python=torch_python)
    command = from_record(old.directory)
    action = relaunch(command, **halved(command), before=RunMeasure(step=5, exit_status=1))
    assert action.preview().verify == "it ends with status 0, or passes step 5"
    outcome = action.run(console()[0])
    assert outcome.verified is True, outcome
    assert "passed step 5" in outcome.sentence
    rows = {row.what: (row.before, row.after) for row in outcome.compared}
    assert int(rows["last step seen"][1]) > 5
    assert rows["time a step"][1].startswith("1")  # 0.1 s and a little
    pid = int(outcome.sentence.rpartition("pid ")[2].rstrip(")"))
    os.kill(pid, signal.SIGTERM)


def test_the_step_of_a_torch_run_that_fails_again_is_seen(
    failed: Callable[..., RunRecord], work: Path, torch_python: str
) -> None:
    (work / "train.py").write_text((PROGRAMS / "torch_train.py").read_text())
    old = failed("--batch-size", "32", python=torch_python)
    outcome = relaunch(from_record(old.directory)).run(console()[0])
    assert outcome.verified is False
    assert ("last step seen", "–", "5") in [(r.what, r.before, r.after) for r in outcome.compared]


# -- a living run ------------------------------------------------------------------------------


@pytest.fixture
def living(work: Path) -> Iterator[Callable[..., int]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **options: Any) -> int:
        process = subprocess.Popen(argv, cwd=work, stdout=subprocess.DEVNULL, **options)
        started.append(process)
        wait_for(lambda: Path(f"/proc/{process.pid}/exe").resolve().name.startswith("python"))
        time.sleep(0.2)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait(10)


def test_a_living_run_is_known_by_its_process_and_has_to_be_ended_first(
    state: Path, work: Path, living: Callable[..., int]
) -> None:
    argv = (sys.executable, "train.py", "--wait", "60", "-b", "8", "--steps=2")
    pid = living(*argv, env={**os.environ, "KEPT": "yes", "SOME_TOKEN": "secret"})
    command = from_process(pid)
    assert (command.argv, command.cwd, command.pid) == (argv, str(work), pid)
    assert command.environment["SOME_TOKEN"] == "secret"
    assert "secret" not in repr(command)
    action = relaunch(command)
    assert f"pid {pid} still runs" in (action.preview().refusal or "")
    with pytest.raises(RefusedError, match="end it first"):
        action.run(console()[0])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: read_stat(pid) is None or read_stat(pid).dead)  # type: ignore[union-attr]
    assert action.preview().refusal is None


def test_of_a_living_run_of_ours_nothing_that_we_had_set_is_handed_on(
    state: Path, work: Path
) -> None:
    words = ("run", "--background", "--name", "mine", "--")
    argv = (sys.executable, "train.py", "--wait", "60")
    env = {**os.environ, "PYTHONPATH": "/own", "SOME_TOKEN": "secret", "COCKPIT_RELAUNCH": "old"}
    subprocess.run(cockpit_command(*words, *argv), cwd=work, env=env, check=True)
    record = wait_for(lambda: list_runs(str(state)))[0]
    pid = record.meta.pid
    try:
        command = from_process(pid)
        assert (command.argv, command.name, command.directory) == (argv, "mine", record.directory)
        assert command.environment["PYTHONPATH"] == "/own"
        assert command.environment["SOME_TOKEN"] == "secret"
        left = set(command.environment) - set(env)
        assert not {name for name in left if name.startswith(("COCKPIT_", "TORCH_"))}
        assert "COCKPIT_RELAUNCH" not in command.environment
        assert command.unknown == ()
        assert from_record(record.directory).pid == pid
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: list_runs(str(state))[0].exit)
    ended = from_record(record.directory)
    assert (ended.pid, ended.unknown) == (None, ("SOME_TOKEN",))


def test_a_command_longer_than_the_process_table_shows_is_whole(
    state: Path, living: Callable[..., int]
) -> None:
    long = "x" * 9000
    pid = living(sys.executable, "train.py", "--wait", "60", "--print", long, b"--print=\xff")  # type: ignore[arg-type]
    argv = from_process(pid).argv
    assert argv[-2] == long
    assert os.fsencode(argv[-1]) == b"--print=\xff"


def test_of_a_rank_the_launcher_is_started_again(
    state: Path, work: Path, living: Callable[..., int], torch_python: str
) -> None:
    (work / "rank.py").write_text("import time; print('up', flush=True); time.sleep(60)\n")
    run = (torch_python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "rank.py")
    launcher = living(*run)

    def ranks() -> list[int]:
        path = f"/proc/{launcher}/task/{launcher}/children"
        pids = [int(word) for word in Path(path).read_text().split()]
        return [p for p in pids if b"rank.py" in Path(f"/proc/{p}/cmdline").read_bytes()]

    one = wait_for(lambda: ranks()[1:], 60.0)[0]
    command = from_process(one)
    assert command.pid == launcher
    assert command.argv == run
    assert command.refusal is None
    for pid in ranks():
        os.kill(pid, signal.SIGKILL)  # the launcher ends by itself then


def test_a_rank_without_its_launcher_is_refused(state: Path, living: Callable[..., int]) -> None:
    env = {**os.environ, "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    pid = living(sys.executable, "train.py", "--wait", "60", env=env)
    assert "one rank of a distributed run" in (relaunch(from_process(pid)).preview().refusal or "")


@needs_root
def test_another_users_run_is_refused_also_for_root(
    state: Path, work: Path, living: Callable[..., int], tmp_path: Path
) -> None:
    other = ("setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups")
    pid = living(*other, "/usr/bin/env", "python3", "-c", "import time; time.sleep(60)")
    command = from_process(pid)
    action = relaunch(command)
    assert "only they can start it again" in (action.preview().refusal or "")
    with pytest.raises(RefusedError):
        action.run(console()[0])
    assert list_runs(str(state)) == []


def test_a_process_that_is_not_there_any_more_is_said_to_be_gone() -> None:
    with pytest.raises(TargetGoneError):
        from_process(1 << 22)
    mine = read_stat(os.getpid())
    assert mine is not None
    with pytest.raises(TargetGoneError):
        from_process(os.getpid(), mine.start_ticks + 1)


# -- what is refused ---------------------------------------------------------------------------


def test_a_directory_or_program_that_is_gone_is_refused_before_anything_starts(
    state: Path, tmp_path: Path
) -> None:
    gone = relaunch(typed((sys.executable, "-c", "0"), str(tmp_path / "none")))
    assert "directory is not there" in (gone.preview().refusal or "")
    program = relaunch(typed(("/no/such/python", "t.py"), str(tmp_path)))
    assert "program is not there" in (program.preview().refusal or "")
    empty = relaunch(typed((sys.executable,), str(tmp_path)), argv=())
    assert empty.preview().refusal == "The command of this run is not known."
    with pytest.raises(RefusedError):
        empty.run(console()[0])


def test_a_slurm_job_of_others_is_explained(state: Path, tmp_path: Path) -> None:
    job = RunCommand(
        argv=("python", "t.py"), cwd="/", uid=os.geteuid(), source="record", slurm_job="42"
    )
    assert "sbatch" in (relaunch(job).preview().refusal or "")


def test_a_program_that_cannot_be_executed_is_an_error_with_its_reason(
    state: Path, tmp_path: Path
) -> None:
    script = tmp_path / "t.py"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    with pytest.raises(CockpitError, match="interpreter"):
        relaunch(typed((str(script),), str(tmp_path))).run(console()[0])
    assert list_runs(str(state)) == []


# -- tmux, the user's terminal, cancelling -------------------------------------------------------


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    base = ["tmux", "-S", str(tmp_path / "t.sock"), "-f", "/dev/null"]
    clean = {**os.environ, "SHELL": "/bin/sh", "PS1": "done$ "}
    subprocess.run(
        [*base, "new-session", "-d", "-x", "120", "-y", "30", "sh"], check=True, env=clean
    )
    yield base
    subprocess.run([*base, "kill-server"], check=False, capture_output=True)


@needs_tmux
def test_in_tmux_the_run_has_a_window_that_stays_after_its_end(
    failed: Callable[..., RunRecord], tmux: list[str], work: Path
) -> None:
    command = from_record(failed("-b", "32").directory)
    action = relaunch(
        command,
        **halved(command),
        where="tmux",
        name="again",
        tmux_socket=tmux[2],
        set_environment={"A": "1\n2"},
    )
    assert action.preview().lines[0].startswith(f"tmux new-window: cd '{work}' && A=$'1\\n2'")
    speaker, said = console()
    outcome = action.run(speaker)
    assert outcome.verified is True, outcome
    assert "tmux attach -t" in said[0]
    screen = wait_for(
        lambda: (
            text
            if "exit closes"
            in (
                text := subprocess.run(
                    [*tmux, "capture-pane", "-p", "-t", ":again"], capture_output=True, text=True
                ).stdout
            )
            else None
        )
    )
    assert "with 16 x 2" in screen
    assert "the run ended with status 0" in screen
    assert not list(Path("/tmp").glob("cockpit-pane-*"))


@needs_tmux
def test_where_no_tmux_server_runs_one_is_started(state: Path, tmp_path: Path) -> None:
    socket = str(tmp_path / "new.sock")
    action = relaunch(
        typed((sys.executable, "-c", "print('hello')"), str(tmp_path)),
        where="tmux",
        tmux_socket=socket,
    )
    try:
        assert action.run(console()[0]).verified is True
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], check=False)


def test_in_the_users_terminal_the_face_runs_it_and_the_engine_looks(
    failed: Callable[..., RunRecord],
) -> None:
    old = failed("-b", "8", "--print", "KEPT", KEPT="yes", CUDA_VISIBLE_DEVICES="1")
    action = relaunch(
        from_record(old.directory), where="terminal", set_environment={"CUDA_VISIBLE_DEVICES": "0"}
    )
    terminal = action.preview().terminal
    assert terminal is not None
    done = subprocess.run(
        terminal.argv,
        cwd=terminal.cwd,
        env={**os.environ, **terminal.environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "KEPT=yes" in done.stdout
    outcome = action.run(console()[0])
    assert (outcome.verified, outcome.sentence) == (True, "train.py ended with status 0")


def test_bytes_that_cannot_go_over_the_wire_are_started_by_the_engine_itself(
    state: Path, tmp_path: Path
) -> None:
    odd = typed(
        (sys.executable, "-c", "import sys, os; print(os.fsencode(sys.argv[1]))", "\udcff"),
        str(tmp_path),
    )
    assert "UTF-8" in (relaunch(odd, where="terminal").preview().refusal or "")
    seen = relaunch(odd).preview()
    assert seen.refusal is None
    assert r"$'\xff'" in seen.lines[0]
    outcome = relaunch(odd).run(console()[0])
    assert outcome.output == (r"b'\xff'",)


@pytest.mark.parametrize("ends", [False, True])
def test_cancelling_leaves_the_run_or_ends_it_by_its_own_pid(
    state: Path, tmp_path: Path, ends: bool
) -> None:
    action = relaunch(
        typed((sys.executable, "-c", "import time; time.sleep(60)"), str(tmp_path)),
        is_probe=ends,
    )
    speaker, _ = console()
    threading.Timer(2.0, speaker.cancelled.set).start()
    outcome = action.run(speaker)
    assert outcome.verified is None
    run = list_runs(str(state))[0]
    if ends:
        assert "was ended" in outcome.sentence
        assert wait_for(lambda: list_runs(str(state))[0].exit).signal == "SIGTERM"
    else:
        assert f"goes on (pid {run.meta.pid})" in outcome.sentence
        assert run.state == "running"
        os.kill(run.meta.pid, signal.SIGKILL)


def test_a_probe_leaves_nothing_behind_whatever_its_answer_and_whoever_its_parent(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text("setsid sleep 61 & sleep 61 & wait\n")
    action = relaunch(
        typed(("bash", "run.sh"), str(tmp_path)),
        is_probe=True,
        terms=Terms(settle_s=1.0, poll_s=0.1),
    )
    outcome = action.run(console()[0])
    assert outcome.verified is True
    assert outcome.ok
    mark = f"{MARK}={action.mark}".encode()
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                mark in (folder / "environ").read_bytes()
                and b"sleep" in (folder / "comm").read_bytes()
            ):
                left.append(folder.name)
    assert not left


FORGETFUL = """
import time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc_pid_stat(5)
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(begin)
    memory.write(bytes(end - begin))
time.sleep(61)
"""


def test_a_probe_that_has_written_over_its_environment_is_ended_all_the_same(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    action = relaunch(
        typed((sys.executable, "forgetful.py"), str(tmp_path)),
        is_probe=True,
        terms=Terms(settle_s=2.0, poll_s=0.1),
    )
    outcome = action.run(console()[0])
    assert outcome.ok
    assert not commands_with(b"forgetful.py")
    wait_for(lambda: list_runs(str(state))[0].exit is not None)  # its keeper writes it last


def test_a_probe_of_which_no_record_can_be_kept_does_not_go_on_unseen(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.mkdir(parents=True)
    (state / "runs").write_text("in the way of the records")
    monkeypatch.setattr("cockpit.act.relaunch.APPEARS_S", 3.0)
    (tmp_path / "unseen.py").write_text("import time; time.sleep(61)")
    action = relaunch(typed((sys.executable, "unseen.py"), str(tmp_path)), is_probe=True)
    with pytest.raises(CockpitError):
        action.run(console()[0])
    assert not commands_with(b"unseen.py")


def test_a_probe_that_did_not_say_in_time_that_it_began_does_not_go_on_unseen(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cockpit run` is ended when it says nothing; what it has begun by then is not."""
    slow = tmp_path / "slow.sh"
    slow.write_text("#!/bin/sh\nsetsid sleep 6151 </dev/null >/dev/null 2>&1 &\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("cockpit.act.run_starts.cockpit_command", lambda *_: (str(slow),))
    monkeypatch.setattr("cockpit.act.run_starts.START_LIMIT_S", 1.0)
    action = relaunch(typed((sys.executable, "x.py"), str(tmp_path)), is_probe=True)
    with pytest.raises(CockpitError, match="Nothing was heard"):
        action.run(console()[0])
    assert not commands_with(b"6151")


def commands_with(word: bytes) -> list[str]:
    """Living processes with this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if word in words.split(b"\0"):
                found.append(folder.name)
    return found


def test_patience_ends_with_an_answer_that_claims_nothing(state: Path, tmp_path: Path) -> None:
    action = relaunch(
        typed((sys.executable, "-c", "import time; time.sleep(60)"), str(tmp_path)),
        terms=Terms(settle_s=50.0, patience_s=0.5, poll_s=0.1),
    )
    outcome = action.run(console()[0])
    assert outcome.verified is None
    assert "it was watched for" in outcome.sentence
    os.kill(list_runs(str(state))[0].meta.pid, signal.SIGKILL)


def test_a_run_without_steps_that_lives_long_enough_counts(state: Path, tmp_path: Path) -> None:
    action = relaunch(
        typed((sys.executable, "-c", "import time; time.sleep(60)"), str(tmp_path)),
        terms=Terms(settle_s=0.5, poll_s=0.1),
    )
    outcome = action.run(console()[0])
    assert outcome.verified is True
    assert "without failing" in outcome.sentence
    os.kill(list_runs(str(state))[0].meta.pid, signal.SIGKILL)


# -- containers --------------------------------------------------------------------------------

STAND_IN = """#!/bin/sh
# Answers as docker does: inspect says that it runs; exec runs the command here.
echo "$@" >> "$0.log"
[ "$1" = inspect ] && { echo true; exit 0; }
shift
while [ "$#" -gt 0 ]; do
  case "$1" in
    -w) cd "$2"; shift 2;;
    -u) shift 2;;
    -e) export "$2"; shift 2;;
    *) shift; exec "$@";;
  esac
done
"""


def inside(work: Path, **more: Any) -> RunCommand:
    known = {
        "argv": (sys.executable, "train.py", "-b", "16", "--print", "NCCL_DEBUG"),
        "cwd": str(work),
        "uid": os.geteuid(),
        "source": "process",
        "container": "docker:0123456789ab",
        "name": "train.py",
    }
    return RunCommand(**{**known, **more})


def test_a_run_in_a_container_is_started_through_it(
    state: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(STAND_IN)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    action = relaunch(inside(work), set_environment={"NCCL_DEBUG": "INFO"})
    line = action.preview().lines[0]
    assert f"-- docker exec -w '{work}' -e NCCL_DEBUG=INFO -u {os.geteuid()} 0123456789ab" in line
    outcome = action.run(console()[0])
    assert outcome.verified is True, outcome
    assert "NCCL_DEBUG=INFO" in outcome.output
    bare = relaunch(inside(work), unset=("NCCL_DEBUG",)).preview().lines[0]
    assert f"0123456789ab env -u NCCL_DEBUG {sys.executable} train.py" in bare
    first = relaunch(inside(work, inner_pid=1)).preview()
    assert "The container ends with this run" in (first.refusal or "")
    assert first.lines[0].startswith("docker run --rm --gpus all --ipc=host")


APART = STAND_IN.replace('exec "$@"', 'setsid env -i "$marks" "$@" & wait $!; exit $?').replace(
    'export "$2"', 'marks="$2"'
)
"""The program is no child of the client and has only what ``-e`` gives it, as in a container."""


def test_a_probe_in_a_container_is_ended_inside_of_it(
    state: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(APART)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    (work / "apart.py").write_text("import time; time.sleep(61)")
    run = inside(work, argv=(sys.executable, "apart.py"))
    terms = Terms(settle_s=2.0, poll_s=0.1)
    outcome = relaunch(run, is_probe=True, terms=terms).run(console()[0])
    assert outcome.verified is True, outcome
    assert not commands_with(b"apart.py")


def test_without_a_docker_that_answers_it_is_explained_what_to_type(
    state: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    seen = relaunch(inside(work), set_environment={"A": "b c"}).preview()
    assert seen.refusal is not None
    assert "container" in seen.refusal
    assert "--gpus all" in seen.lines[0]
    assert "-e 'A=b c'" in seen.lines[0]
    with pytest.raises(RefusedError):
        relaunch(inside(work)).run(console()[0])
    pod = relaunch(inside(work, container="containerd:0123456789ab")).preview()
    assert "the tool that started it" in (pod.refusal or "")
    box = relaunch(inside(work, container="apptainer:img.sif")).preview()
    assert box.lines[0].startswith("apptainer exec --nv IMAGE")
