"""The page of one process: family, files, limits, and an environment without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from real_processes import Processes, as_other_user, start_of, wait_until

from cockpit.collect.details import details, masked
from cockpit.errors import TargetGoneError
from cockpit.model.process import ProcessDetails
from cockpit.model.secret import HIDDEN

SECRET = ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYSQL_PWD",
          "GOOGLE_APPLICATION_CREDENTIALS", "SENTRY_DSN", "session_cookie", "NGC_AUTH",
          "AWS_ACCESS_KEY_ID", "DB_PW", "MY_CRED", "MY_JWT"]  # fmt: skip
PLAIN = ["PATH", "PWD", "CUDA_VISIBLE_DEVICES", "XDG_SESSION_ID", "SSH_AUTH_SOCK", "AWS_REGION",
         "TOKENIZERS_PARALLELISM", "MONKEY", "GIT_ASKPASS", "NCCL_DEBUG",
         "CONDA_DEFAULT_ENV"]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_secrets_are_masked(name: str) -> None:
    assert masked(name, "abcdef") == HIDDEN


@pytest.mark.parametrize("name", PLAIN)
def test_what_only_sounds_secret_is_shown(name: str) -> None:
    assert masked(name, "value") == "value"


def test_a_password_in_an_address_is_masked_where_it_stands() -> None:
    assert (
        masked("MLFLOW_URI", "https://bob:pw@ml.example:80/x")
        == f"https://{HIDDEN}@ml.example:80/x"
    )
    assert masked("HTTP_PROXY", "http://proxy:3128") == "http://proxy:3128"


def test_a_known_token_is_masked_under_any_name() -> None:
    assert masked("EXTRA_ARGS", "--t hf_" + "a" * 30) == f"--t {HIDDEN}"
    for token in ("AIzaSyA1234567890abcdefghijklmnop", "npm_abcdefghijklmnopqrstuvwxyz"):
        assert token not in masked("GOOGLE_MAPS", token)
    assert masked("EMPTY_TOKEN", "") == ""


def test_a_real_process(processes: Processes, tmp_path: Path) -> None:
    around = {"PATH": os.environ["PATH"], "HF_TOKEN": "hf_x", "B": "2", "A": "1=1"}
    pid = processes.popen(["sh", "-c", "sleep 60; :"], env=around).pid
    wait_until(lambda: bool(details(pid, None).children))
    read = details(pid, start_of(pid))
    environment = dict(read.environment or ())
    assert environment["HF_TOKEN"] == HIDDEN
    assert environment["A"] == "1=1"
    assert list(environment) == sorted(environment)
    assert [child.name for child in read.children] == ["sleep"]
    assert read.ancestors[0].pid == os.getpid()
    assert read.ancestors[-1].ppid in (0, 1)
    assert read.session_id == read.group_id == pid
    assert read.threads == 1
    assert read.executable
    assert "Max open files" in dict(read.limits)
    assert read.nice == os.getpriority(os.PRIO_PROCESS, pid)
    assert read.cpus == len(os.sched_getaffinity(pid))
    assert read.open_files >= 3
    assert read.disk_read_bytes is not None or "disk_read_bytes" in read.gaps


def test_another_users_process_shows_gaps(processes: Processes) -> None:
    pid = processes.sleeper()
    read = as_other_user(lambda: details(pid, None), ProcessDetails)
    assert read.environment is None
    assert read.executable is None
    assert read.gaps["environment"] == read.gaps["device_files"] == "no_permission"
    assert read.open_files is None
    assert read.gaps["open_files"] == "no_permission"
    assert read.nice is not None


def test_a_process_that_is_gone_or_another_one_is_told_apart(processes: Processes) -> None:
    with pytest.raises(TargetGoneError, match="no process 4194303"):
        details(4194303, None)
    pid = processes.sleeper()
    with pytest.raises(TargetGoneError, match="later process"):
        details(pid, 1)


def test_a_zombie_can_be_looked_at(processes: Processes) -> None:
    zombie, _ = processes.zombie_leader()
    read = details(zombie, None)
    assert read.session_id == zombie
    assert read.environment == () or "environment" in read.gaps
