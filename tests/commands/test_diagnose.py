"""`cockpit diagnose`: a file, a pipe, a kept run; text and JSON; exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"


def cockpit(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "cockpit", "diagnose", *arguments]
    return subprocess.run(command, input=given, capture_output=True, cwd=ROOT, timeout=60)


def test_a_file_gives_cause_evidence_and_fixes() -> None:
    run = cockpit(str(CASES / "006-oom-fragmentation.log"))
    text = run.stdout.decode()
    assert run.returncode == 0
    assert text.startswith("GPU memory is fragmented")
    assert "expandable_segments:True" in text
    assert "line 7: " in text


def test_a_pipe_gives_one_finding_as_json() -> None:
    run = cockpit("-", "--json", given=(CASES / "001-oom-modern-basic.log").read_bytes())
    finding = json.loads(run.stdout)
    assert run.returncode == 0
    assert finding["cause"] == "oom_peak"
    assert finding["not"]


def test_an_unknown_failure_exits_1_and_a_healthy_log_0() -> None:
    assert (
        cockpit("-", given=b"Traceback (most recent call last):\nValueError: no\n").returncode == 1
    )
    healthy = cockpit("-", given=b"step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert healthy.returncode == 0
    assert healthy.stdout.startswith(b"Nothing failed in this log\n\n")


def test_control_characters_of_a_log_never_reach_the_terminal() -> None:
    run = cockpit("-", given=b"\x1b[2JValueError: \x1b]0;evil\x07 \x9b31m\xe2\x80\xae x\n")
    assert b"\x1b" not in run.stdout
    assert "\u202e" not in run.stdout.decode()


def test_a_missing_file_and_a_pid_without_a_record_exit_5_with_a_sentence() -> None:
    for arguments in (("/nonexistent.log",), ("--pid", "1")):
        run = cockpit(*arguments)
        assert (run.returncode, run.stdout) == (5, b"")
        assert run.stderr.startswith(b"cockpit: ")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\n")
    run = cockpit(str(tmp_path / "log"))
    assert (run.returncode, run.stdout.splitlines()[0]) == (1, b"The file is empty")


def test_a_kept_run_that_was_killed_did_not_end_well(tmp_path: Path) -> None:
    loop = "import os; print('step 1 loss 2.0', flush=True); os.kill(os.getpid(), 9)"
    command = [sys.executable, "-m", "cockpit"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    subprocess.run(
        [*command, "run", "--", sys.executable, "-c", loop],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=60,
    )
    (meta,) = tmp_path.glob("cockpit/runs/*/meta.json")
    pid = str(json.loads(meta.read_bytes())["pid"])
    run = subprocess.run(
        [*command, "diagnose", "--pid", pid, "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=60,
    )
    finding = json.loads(run.stdout)
    assert (finding["cause"], finding["confidence"]) == ("host_oom", 0.5)
    assert finding["evidence"][-1]["text"] == "[the run was ended by SIGKILL]"
    assert finding["fixes"][0]["value"].startswith("journalctl")


def test_a_file_and_a_pid_together_are_wrong_usage() -> None:
    assert cockpit("x", "--pid", "1").returncode == 2
