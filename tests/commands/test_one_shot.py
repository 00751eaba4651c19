"""The shell commands over the real binding and the simulated library; real processes are killed."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pynvml
import pytest
import rich

import cockpit
from cockpit import __version__
from cockpit.model.snapshot import decode, json_schema
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.conftest import Simbox

COCKPIT = ["-m", "cockpit"]
PYTHON = """
import json, os, subprocess, sys
def cockpit(*args, **kw):
    run = [sys.executable, "-m", "cockpit", *args]
    return subprocess.run(run, capture_output=True, text=True, **kw)
def holders():
    return json.loads(cockpit("ps", "--json").stdout)
def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
"""


def python_for_others(folder: Path) -> tuple[str, str]:
    """An interpreter and a path that another user may read: this one, or the system's of the same
    version with copies of what we import. Skips where there is neither."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        code = "import os, sys; sys.exit(not os.access(sys.executable, os.X_OK))"
        probe = ["setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups", python]
        if subprocess.run([*probe, "-c", code], capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("no interpreter here that another user may run")
    site = folder / "site"
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and str(parent).startswith(tempfile.gettempdir() + "/"):
            parent.chmod(0o755)  # pytest's are for their owner only
    for module in (cockpit, msgspec, pynvml, rich):
        source = Path(str(module.__file__))
        if source.name == "__init__.py":
            shutil.copytree(source.parent, site / source.parent.name)
        else:
            shutil.copy(source, site)
    return python, str(site)


def inside(simbox: Simbox, scenario: str, code: str) -> dict[str, object]:
    """Runs code in the scenario; it prints one JSON object."""
    done = simbox(scenario, ["-c", PYTHON + code], seconds=60)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_snapshot_json_is_one_typed_snapshot(simbox: Simbox) -> None:
    done = simbox("h200x8", [*COCKPIT, "snapshot", "--json"])
    assert done.returncode == 0, done.stderr
    snapshot = decode(done.stdout)
    assert [gpu.index for gpu in snapshot.gpus] == list(range(8))
    assert len(snapshot.processes) == 40
    assert all(gpu.utilization_pct is not None and gpu.power_w for gpu in snapshot.gpus)
    assert any(one.cpu_pct is not None for one in snapshot.processes)
    assert snapshot.topology
    assert set(json.loads(done.stdout)["gpus"][0]) == set(
        json_schema()["$defs"]["Gpu"]["properties"]
    )
    for one in snapshot.ledger:
        parts = one.free_bytes + one.driver_reserved_bytes + one.unaccounted_bytes
        assert parts + sum(share.bytes for share in one.processes) == one.total_bytes


def test_snapshot_csv_has_a_line_a_gpu_and_empty_cells_for_unknown(simbox: Simbox) -> None:
    done = simbox("consumer", [*COCKPIT, "snapshot", "--csv"])
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 1
    assert rows[0]["name"] == "NVIDIA GeForce RTX 4090"
    assert rows[0]["ecc_uncorrected"] == ""


def test_the_published_schema_describes_the_snapshot(simbox: Simbox) -> None:
    done = simbox("nogpu", [*COCKPIT, "snapshot", "--schema"])
    assert json.loads(done.stdout) == json.loads(json.dumps(json_schema()))


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ("mismatch", "lib_rm_version_mismatch"),
        ("nodriver", "driver_not_loaded"),
        ("noperm", "no_permission"),
        ("unknown", "unknown"),
        ("nogpu", "no_devices"),
    ],
)
def test_without_a_driver_the_snapshot_is_whole_and_the_exit_status_3(
    simbox: Simbox, scenario: str, code: str
) -> None:
    done = simbox(scenario, [*COCKPIT, "snapshot", "--json"])
    snapshot = decode(done.stdout)
    assert done.returncode == 3
    assert snapshot.driver.error is not None
    assert snapshot.driver.error.code == code
    assert snapshot.driver.error.advice
    assert snapshot.host.memory_total_bytes
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("cockpit: ")


def test_without_the_library_at_all_the_exit_status_is_3(simbox: Simbox) -> None:
    # simbox puts its library in front, so it is taken away again inside
    done = simbox("h200", ["-c", "import os, sys; os.environ['LD_LIBRARY_PATH'] = ''; os.execv(sys.executable, [sys.executable, '-m', 'cockpit', 'snapshot', '--json'])"])  # fmt: skip  # noqa: E501
    if os.path.exists("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"):
        pytest.skip("this machine has a real NVIDIA library")
    assert done.returncode == 3
    error = decode(done.stdout).driver.error
    assert error is not None
    assert error.code == "library_not_found"


def test_ps_shows_strays_and_their_reason(simbox: Simbox) -> None:
    done = simbox("stray", [*COCKPIT, "ps", "--stray"])
    assert done.returncode == 0
    assert done.stdout.count("is stray:") == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ps", "--gpu", "9"], 2, "There is no GPU 9: this machine has 1 GPU (0)."),
        (["-o", "0,3", "ps", "--gpu", "3"], 2, "There is no GPU 3: --only leaves 1 GPU (0)."),
        (["-o", "9", "snapshot"], 3, "There is no GPU 9: this machine has 1 GPU (0)."),
    ],
)
def test_a_gpu_that_does_not_exist_is_told_which_do(
    simbox: Simbox, words: list[str], code: int, said: str
) -> None:
    done = simbox("h200", [*COCKPIT, *words])
    assert (done.returncode, done.stderr.split("\n")[0]) == (code, f"cockpit: {said}")
    assert "given no GPU" not in done.stdout


def test_why_a_pid_cannot_be_looked_up_is_told_in_words(simbox: Simbox) -> None:
    for scenario, words in (("container", []), ("nogpu", ["--demo", "busy"])):
        done = simbox(scenario, [*COCKPIT, *words, "ps"])
        assert "cannot be looked up: other namespace" in done.stdout


def test_hostile_names_reach_stdout_harmless(simbox: Simbox) -> None:
    for command in (["ps"], ["snapshot"]):
        done = simbox("hostile", [*COCKPIT, *command])
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
        assert done.returncode == 0


def test_the_holder_that_ignores_sigterm_is_killed_and_its_memory_comes_back(
    simbox: Simbox,
) -> None:
    result = inside(
        simbox,
        "stray",
        """
pid = next(p["pid"] for p in holders() if "finetune.py" in p["command"])
done = cockpit("kill", str(pid), "--yes", "--grace", "0.5")
left = [p["pid"] for p in holders()]
print(json.dumps({"rc": done.returncode, "out": done.stdout, "there": pid in left}))
""",
    )
    assert result["rc"] == 0, result
    assert "freed" in str(result["out"])
    assert result["there"] is False


def test_killing_a_zombie_leader_kills_the_one_that_holds_its_memory(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
zombie = next(p["pid"] for p in holders() if p["state"] == "Z")
stat = lambda pid: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
child = next(int(d) for d in os.listdir("/proc") if d.isdigit() and int(d) != zombie
             and stat(int(d))[3] == str(zombie))
done = cockpit("kill", str(zombie), "--yes", "--grace", "3")
print(json.dumps({"rc": done.returncode, "there": alive(child), "out": done.stdout,
                  "left": zombie in [p["pid"] for p in holders()]}))
""",
    )
    assert (result["rc"], result["there"], result["left"]) == (0, False, False), result


def test_ctrl_c_stops_the_wait_and_says_what_was_sent_and_what_still_lives(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
import signal
pid = next(p["pid"] for p in holders() if "finetune.py" in p["command"])
kill = subprocess.Popen([sys.executable, "-m", "cockpit", "kill", str(pid), "--yes"],
                        stderr=subprocess.PIPE, text=True)
while "waiting" not in kill.stderr.readline():
    pass
kill.send_signal(signal.SIGINT)
said = kill.communicate()[1].split()
print(json.dumps({"rc": kill.returncode, "said": " ".join(said).replace(str(pid), "PID")}))
""",
    )
    said = "Not waited for: sent SIGTERM to 1 process; still there: PID."
    assert result == {"rc": 130, "said": said}


def test_an_explicit_signal_never_escalates(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
pid = next(p["pid"] for p in holders() if "finetune.py" in p["command"])
done = cockpit("kill", str(pid), "--yes", "--grace", "0.3", "--signal", "TERM")
print(json.dumps({"rc": done.returncode, "out": done.stdout, "there": alive(pid)}))
""",
    )
    assert result["rc"] == 1
    assert result["there"] is True


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, setpriv")
def test_another_users_process_is_refused_with_4(simbox: Simbox, tmp_path: Path) -> None:
    result = inside(
        simbox,
        "stray",
        f"PYTHON_FOR_OTHERS, PATH_FOR_OTHERS = {python_for_others(tmp_path)!r}"
        + """
import tempfile
python = PYTHON_FOR_OTHERS
pid = next(p["pid"] for p in holders() if p["uid"] == 0 and "train.py" in p["command"])
home = tempfile.mkdtemp(); os.chmod(home, 0o777)
done = subprocess.run(["setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups",
    python, "-m", "cockpit", "kill", str(pid), "--yes"], capture_output=True, text=True,
    env={**os.environ, "HOME": home, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": PATH_FOR_OTHERS})
print(json.dumps({"rc": done.returncode, "err": done.stderr, "there": alive(pid)}))
""",
    )
    assert result["rc"] == 4, result
    assert result["there"] is True


def test_start_ticks_that_do_not_match_signal_nothing_and_exit_5(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
one = next(p for p in holders() if p["stray"] and "train.py" in p["command"])
done = cockpit("kill", f"{one['pid']}:{one['start_ticks'] + 1}", "--yes")
print(json.dumps({"rc": done.returncode, "there": alive(one["pid"])}))
""",
    )
    assert result == {"rc": 5, "there": True}


def test_of_several_pids_the_worst_exit_code_counts(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
one = next(p for p in holders() if p["stray"] and "train.py" in p["command"])
done = cockpit("kill", str(one["pid"]), "1", "4194302", "--yes")
print(json.dumps({"rc": done.returncode, "out": done.stdout, "there": alive(one["pid"])}))
""",
    )
    assert result["rc"] == 4, result
    assert result["there"] is False


def test_without_a_terminal_and_without_yes_nothing_is_asked_and_2_is_returned(
    simbox: Simbox,
) -> None:
    done = simbox("stray", [*COCKPIT, "kill", "1"], stdin="y\n")
    assert done.returncode == 2
    assert "--yes" in done.stderr


@pytest.mark.parametrize("pid", ["0", "-1", "python", "12:x", "1²", "99999999999"])
def test_what_is_no_pid_is_wrong_usage(simbox: Simbox, pid: str) -> None:
    done = simbox("nogpu", [*COCKPIT, "kill", "--yes", "--", pid])
    assert done.returncode == 2


def test_readonly_refuses_with_4(simbox: Simbox) -> None:
    result = inside(
        simbox,
        "stray",
        """
one = next(p for p in holders() if p["stray"])
done = cockpit("--readonly", "kill", str(one["pid"]), "--yes")
print(json.dumps({"rc": done.returncode, "there": alive(one["pid"]), "err": done.stderr}))
""",
    )
    assert (result["rc"], result["there"]) == (4, True)
    assert "--readonly: nothing is signalled; without it: cockpit kill PID" in str(result["err"])


def test_version_names_the_distribution(simbox: Simbox) -> None:
    assert simbox("nogpu", [*COCKPIT, "--version"]).stdout.strip() == f"gpu-cockpit {__version__}"


def test_without_a_terminal_the_cockpit_names_the_command_that_needs_none(simbox: Simbox) -> None:
    done = simbox("h200", COCKPIT)
    assert done.returncode == 2
    assert "cockpit snapshot" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("kill 4194300", 2),
        ("kill 4194300 --yes", 5),
        ("attach 4194300", 2),
        ("diagnose", 1),
        ("", 2),
        ("run -- true", 0),
    ],
)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one(
    tmp_path: Path, words: str, code: int, closed: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m cockpit {words} {closed}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["fix", "--plain", "oom", "--", b"tr\xffain.py"],
        ["fix", "--plain", "oom", "--log", b"tr\xffain.log"],
        ["--replay", b"tr\xffain.jsonl", "snapshot"],
        ["doctor", "--python", b"/tr\xffain/python"],
        ["fix", "--plain", "oom"],
    ],
)
def test_words_and_directories_that_are_no_utf8_are_wrong_usage(
    tmp_path: Path, words: list[str | bytes]
) -> None:
    folder = os.fsencode(tmp_path) + (b"/tr\xffain" if words[-1] == "oom" else b"/there")
    os.mkdir(folder)
    done = subprocess.run(
        [sys.executable, "-m", "cockpit", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "tr·ain" in line
    assert "is not UTF-8" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diagnose", "."], ". is a directory: name the log itself."),
        (["bundle", "none/b.gz"], "none/b.gz cannot be written: No such file or directory."),
        (["--demo", "bogus"], "There is no demo scenario 'bogus'; there are: "),
        (["--replay", "none"], "Cannot read none: No such file or directory."),
    ],
)
def test_what_was_typed_wrong_is_told_before_anything_else(
    simbox: Simbox, tmp_path: Path, words: list[str], said: str
) -> None:
    done = simbox("h200", [*COCKPIT, *words], env={"XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr.startswith(f"cockpit: {said}")


def test_a_directory_that_was_deleted_is_told_where_one_is_needed(
    simbox: Simbox, tmp_path: Path
) -> None:
    script = "mkdir gone && cd gone && rmdir ../gone && " + " ".join([sys.executable, *COCKPIT])
    env = {"XDG_STATE_HOME": str(tmp_path)}
    fix = simbox("h200", ["sh", "-c", f"cd {tmp_path}; {script} fix --plain oom"], env=env)
    assert fix.returncode == 2
    assert fix.stderr == "cockpit: This directory was deleted: go to another one (cd) first.\n"
    doctor = simbox("h200", ["sh", "-c", f"cd {tmp_path}; {script} doctor"], seconds=60, env=env)
    assert doctor.stdout.startswith("Examined: ")


def test_a_reader_that_leaves_early_gets_no_traceback(simbox: Simbox) -> None:
    code = "import subprocess,sys; p=subprocess.Popen([sys.executable,'-m','cockpit','snapshot','--json'],stdout=subprocess.PIPE,stderr=subprocess.PIPE); p.stdout.close(); e=p.stderr.read().decode(); p.wait(); print(e)"  # noqa: E501
    assert "Traceback" not in simbox("h200", ["-c", code]).stdout


@pytest.mark.parametrize("scenario", ["hang", "slow", "lost", "restart"])
def test_an_answer_comes_within_three_seconds_whatever_the_driver_does(
    simbox: Simbox, scenario: str
) -> None:
    result = inside(
        simbox,
        scenario,
        """
import time
time.sleep(5.5)
def timed(*words):
    began = time.monotonic(); done = cockpit(*words)
    return time.monotonic() - began, done
# On a machine that is busy with other tests two interpreters take their time to start, and one
# answer may be late by chance: then it is asked again, and has to come in time once.
for _ in range(3):
    start = timed("--version")[0]
    took, done = timed("snapshot", "--json")
    over = took - 3.0 - 4 * max(start, timed("--version")[0])
    if over < 0:
        break
print(json.dumps({"over": over, "rc": done.returncode, "out": done.stdout}))
""",
    )
    snapshot = decode(str(result["out"]))
    assert float(str(result["over"])) < 0
    assert result["rc"] == (3 if scenario == "restart" else 0)
    if scenario == "lost":
        assert [gpu.state for gpu in snapshot.gpus] == ["ok", "ok", "ok", "lost"]
        assert snapshot.gpus[3].utilization_pct is None
        assert snapshot.gpus[3].gaps["utilization_pct"] == "gpu_lost"
