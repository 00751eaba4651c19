"""``cockpit doctor`` over the real binding, the simulated library and real interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cockpit.commands.doctor import lines
from cockpit.model.checkup import Check, Checkup, Subject
from cockpit.model.finding import Evidence, Fix
from tests.commands.test_one_shot import python_for_others
from tests.real_torch import TORCH, needs_torch

if TYPE_CHECKING:
    from tests.conftest import Simbox

DOCTOR = ["-m", "cockpit", "doctor"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
no_gpu = pytest.mark.skipif(
    os.path.exists("/proc/driver/nvidia"), reason="this machine has a driver of its own"
)


def decoded(done: subprocess.CompletedProcess[str]) -> Checkup:
    assert "Traceback" not in done.stderr, done.stderr
    return msgspec.json.decode(done.stdout, type=Checkup)


def step(found: Checkup, id_: str) -> Check:
    return next(one for one in found.checks if one.id == id_)


@no_gpu
@needs_torch
def test_a_cpu_wheel_fails_at_the_wheel_and_the_fix_names_the_index(simbox: Simbox) -> None:
    done = simbox("h200", [*DOCTOR, "--json", "--python", TORCH], seconds=90)
    found = decoded(done)
    assert done.returncode == 1
    assert found.finding is not None
    assert (found.finding.cause, found.finding.flow) == ("cpu_wheel", "no-cuda")
    assert [one.id for one in found.checks if one.status == "fail"] == ["torch_build"]
    assert "https://download.pytorch.org/whl/cu130" in found.finding.fixes[0].value
    assert step(found, "nvml").status == "pass"
    assert done.stderr == "", "no progress where nobody waits"


@no_gpu
@needs_torch
def test_hidden_gpus_fail_before_the_wheel(simbox: Simbox) -> None:
    argv = [*DOCTOR, "--json", "--python", TORCH]
    done = simbox("h200x8", argv, seconds=90, env={"CUDA_VISIBLE_DEVICES": ""})
    found = decoded(done)
    assert done.returncode == 1
    assert found.finding is not None
    assert found.finding.cause == "cvd_hides_gpus"
    assert step(found, "visible_devices").status == "fail"


@no_gpu
@pytest.mark.parametrize(
    ("scenario", "id_", "cause"),
    [
        ("mismatch", "nvml", "nvml_mismatch"),
        ("nodriver", "pci", "container_without_gpu"),
        ("noperm", "nvml", "dev_permissions"),
        ("nogpu", "nvml", "container_without_gpu"),
    ],
)
def test_a_driver_in_trouble_is_the_first_failed_step(
    simbox: Simbox, scenario: str, id_: str, cause: str
) -> None:
    done = simbox(scenario, [*DOCTOR, "--json"], seconds=60)
    found = decoded(done)
    assert done.returncode == 1, "never 3: the doctor's answer is the ladder"
    assert found.finding is not None
    assert (found.finding.facts["step"], found.finding.cause) == (id_, cause)


LATER = """
import subprocess, sys, time
time.sleep(6)
began = time.monotonic()
run = [sys.executable, "-m", "cockpit", "doctor", *sys.argv[1:]]
done = subprocess.run(run, capture_output=True, text=True)
sys.stderr.write(f"{done.returncode} {time.monotonic() - began < 20}")
print(done.stdout)
"""
"""Six seconds into a scenario: what happens in its fifth second has happened."""


@no_gpu
def test_a_lost_gpu_is_named_with_its_bus_id(simbox: Simbox) -> None:
    done = simbox("lost", ["-c", LATER, "--json"], seconds=60)
    found = decoded(done)
    assert done.stderr == "1 True"
    assert found.finding is not None
    assert (found.finding.cause, found.finding.gpu) == ("gpu_off_bus", 3)
    elsewhere = simbox("lost", ["-c", LATER, "--json"], env={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert step(decoded(elsewhere), "nvml").status == "warn", "the job does not use it"


@no_gpu
def test_a_driver_that_hangs_is_reported_and_holds_nobody_up(simbox: Simbox) -> None:
    done = simbox("hang", ["-c", LATER], seconds=90)
    assert "GPU 1 did not answer NVML in time" in done.stdout
    assert done.stderr.endswith("True"), "within 20 s"


@no_gpu
def test_as_text_each_step_is_a_line_that_needs_no_colour(simbox: Simbox) -> None:
    done = simbox("h200", [*DOCTOR, "--python", sys.executable], seconds=60)
    assert "\x1b" not in done.stdout
    rows = {line[6:24].strip(): line[:5].strip() for line in done.stdout.splitlines() if line[:1] != " "}  # fmt: skip  # noqa: E501
    assert rows["NVML"] == "ok"
    assert rows["PCI bus"] == "-"
    assert rows["Interpreter"] in ("ok", "FAIL")
    last = done.stdout.splitlines()[-1]
    assert " passed, " in last


def test_evidence_and_fixes_stand_beneath_and_once() -> None:
    fix = Fix(
        title="Do it",
        kind="command",
        value="sudo do  it",
        risk="admin",
        why="",
        loses="",
        verify="",
    )
    evidence = (Evidence(text="seen \x1b[2J", line=None, source="nvml"),)
    bad = Check(id="a", title="A", status="fail", sentence="Bad. " * 30, evidence=evidence, fixes=(fix,))  # fmt: skip  # noqa: E501
    again = Check(id="b", title="B", status="warn", sentence="So so.", fixes=(fix,))
    fine = Check(id="c", title="C", status="pass", sentence="Fine.", evidence=evidence)
    shown = list(lines(Checkup(subject=Subject(sentence="s"), checks=(bad, again, fine))))
    text = "\n".join(shown)
    assert text.count("sudo do  it") == 1, "a command is printed as it is"
    assert "[for the administrator]" in text
    assert text.count("> nvml: seen ^[[2J") == 1
    assert max(map(len, shown)) <= 100
    assert shown[-1] == "1 passed, 1 warned, 1 failed."
    assert "\x1b[1;31mFAIL" in "\n".join(
        lines(Checkup(subject=Subject(sentence="s"), checks=(bad,)), colour=True)
    )


@pytest.mark.parametrize("flags", [["--demo", "busy"], ["--replay", "tests/recordings"]])
def test_a_machine_that_is_none_is_not_examined(flags: list[str]) -> None:
    if flags[0] == "--replay":
        recording = next(Path("tests/recordings").glob("*.jsonl*"), None)
        if recording is None:
            pytest.skip("no recording here")
        flags = ["--replay", str(recording)]
    argv = [sys.executable, "-m", "cockpit", *flags, "doctor"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "to examine: leave out" in done.stderr


def test_wrong_targets_have_their_own_exit_codes() -> None:
    def doctor(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "cockpit", "doctor", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert doctor("--pid", str(2**22 - 1)).returncode == 5
    assert doctor("--python", "/no/such/python").returncode == 2
    assert doctor("--python", "python3", "--pid", "1").returncode == 2


@pytest.fixture
def for_all() -> Iterator[Path]:
    """A folder that every user may write into; those of pytest are closed at each of its starts."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@needs_root
def test_another_users_job_is_examined_as_that_user(simbox: Simbox, for_all: Path) -> None:
    told = for_all / "told"
    (for_all / "sitecustomize.py").write_text(
        f"import os\nopen({str(told)!r}, 'a').write(f'{{os.getuid()}} {{os.geteuid()}}\\n')\n"
    )
    code = f"""
import json, subprocess, sys, time
argv = ["setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups", "/usr/bin/python3",
        "-c", "import time; print('ready', flush=True); time.sleep(60)"]
job = subprocess.Popen(argv, env={{"PATH": "/usr/bin:/bin", "PYTHONPATH": {str(for_all)!r}}},
                       stdout=subprocess.PIPE, cwd="/")
job.stdout.readline()
run = [sys.executable, "-m", "cockpit", "doctor", "--json", "--pid", str(job.pid)]
done = subprocess.run(run, capture_output=True, text=True)
job.kill(); job.wait()
print(done.stdout)
"""
    found: dict[str, Any] = json.loads(simbox("h200", ["-c", code], seconds=60).stdout)
    assert found["subject"]["user"] == "1002"
    assert found["subject"]["python"].startswith("/usr/bin/python3")
    interpreter = next(one for one in found["checks"] if one["id"] == "interpreter")
    assert "/usr/bin/python3" in interpreter["sentence"], interpreter
    assert "Python 3" in interpreter["sentence"], interpreter
    ran_as = told.read_text().splitlines()
    assert len(ran_as) >= 2, "the job, and our probe"
    assert set(ran_as) == {"1002 1002"}


@needs_root
def test_a_user_may_not_examine_somebody_elses_job(tmp_path: Path) -> None:
    python, site = python_for_others(tmp_path)
    job = subprocess.Popen(["sleep", "60"])
    try:
        argv = ["setpriv", "--reuid", "1002", "--regid", "1002", "--clear-groups", python]
        done = subprocess.run(
            [*argv, "-m", "cockpit", "doctor", "--pid", str(job.pid)],
            capture_output=True,
            text=True,
            cwd="/",
            env={"PYTHONPATH": site, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            timeout=60,
        )
    finally:
        job.kill()
        job.wait()
    assert done.returncode == 4, done.stderr
    assert "belongs to root" in done.stderr
