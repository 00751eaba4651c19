"""A bundle holds what a ticket needs, no secret and no name, and is played elsewhere."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cockpit.attach.run_record import Meta
from cockpit.collect import bundle
from cockpit.collect.recording import load
from cockpit.collect.recording_lines import Attachment
from cockpit.collect.redact import Redactor
from cockpit.errors import CockpitError
from cockpit.model.gpu import Driver
from cockpit.model.host import Host
from cockpit.model.process import Process
from cockpit.model.snapshot import SamplerStatus, Snapshot, decode

ROOT = Path(__file__).resolve().parents[2]
SECRETS = (
    *(
        "hf_abcdefghijklmnopqrstu",
        "hunter2-hunter2",
        "pa55word",
        "0123456789abcdef0123456789abcdef",
    ),
    *("s3cr3t-of-the-journal", "c2hvcnQga2V5IG1hdGVyaWFs", "AKIAIOSFODNN7EXAMPLE"),
)
NAMES = (
    *("alice", "node-17", "secretproject", "10.11.12.13", "alice@example.org", "teamshare"),
    *("acme", "s3-bucket", "gs-bucket", "wandb.ai"),
)
PLACES = """\
saved to s3://acme-s3-bucket/llama/secretproject.pt, gs://gs-bucket/x and file:///home/alice/x
wandb: https://wandb.ai/acme/secretproject/runs/1; see https://pytorch.org/docs/stable/cuda.html
cloned git@github.com:acme/secretproject.git; tcp://node-17.acme.io:29500 of node-17.acme.io
PYTHONPATH=/opt/x:/home/alice/secretproject -I/home/alice/secretproject cwd:/home/alice/x
"""
LOG = f"""\
{PLACES}2026-11-30 loading /home/alice/secretproject/data from node-17.cluster as alice@example.org
HF_TOKEN=hf_abcdefghijklmnopqrstu
DB password: hunter2-hunter2 at postgres://me:pa55word@10.11.12.13/x
wandb login 0123456789abcdef0123456789abcdef
-----BEGIN OPENSSH PRIVATE KEY-----
c2hvcnQga2V5IG1hdGVyaWFs
-----END OPENSSH PRIVATE KEY-----
Traceback (most recent call last):
  File "/home/alice/secretproject/train.py", line 12, in <module>
  File "/teamshare/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in call
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity \
of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.10 GiB \
memory in use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 17.00 GiB is \
reserved by PyTorch but unallocated.
"""


def cockpit(*words: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    around = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home), **env}
    return subprocess.run(
        [sys.executable, "-m", "cockpit", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=around,
        check=False,
    )


def keep_traces(home: Path) -> None:
    """A journal and the record of a run, with secrets in them."""
    state = home / "cockpit"
    run = state / "runs" / "20261130-160000-aa"
    run.mkdir(parents=True, mode=0o700)
    meta = Meta(
        id="20261130-160000-aa",
        name="secretproject",
        command=(
            *("python", "/home/alice/train.py", "--password", SECRETS[1]),
            *("--alice-mode", "s3://acme/x", "/home/alice/secretproject"),
        ),
        cwd="/home/alice/secretproject",
        environment={"HF_TOKEN": SECRETS[0]},
        set_for_run={},
        started_at="2026-11-30T16:00:00.000Z",
        pid=4194000,
        start_ticks=1,
        python=None,
        host="node-17",
        boot_id=None,
    )
    (run / "meta.json").write_bytes(msgspec.json.encode(meta))
    (run / "output").write_text(f"export AWS={SECRETS[6]}\nstep 1 loss 2.0 on alice\n{PLACES}")
    entry = {
        "at": "2026-11-30T16:00:00.000Z",
        "uid": 1000,
        "user": "alice",
        "action": "abc",
        "phase": "result",
        "pid": 7,
        "command": f"python /home/alice/secretproject/train.py --token {SECRETS[4]}",
        "sentence": "pid 7: freed 14.2 of 14.3 GiB in 0.3 s",
        "outcome": PLACES,
    }
    (state / "journal.jsonl").write_text(json.dumps(entry) + '\n{"torn')


@pytest.fixture
def made(tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    keep_traces(tmp_path)
    log = tmp_path / "train.log"
    log.write_text(LOG)
    path = tmp_path / "incident.jsonl.gz"
    done = cockpit(
        *("--demo", "busy", "bundle", str(path), "--log", str(log), "--seconds", "1.5"),
        home=tmp_path,
        USER="alice",
        HOSTNAME="node-17",
    )
    return done, path


def test_no_secret_and_no_name_is_in_the_file(
    made: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, path = made
    assert done.returncode == 0, done.stderr
    text = gzip.decompress(path.read_bytes()).decode()
    assert [one for one in (*SECRETS, *NAMES) if one in text] == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_ticket_needs_is_in_the_file(
    made: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, path = made
    recording = load(str(path))
    whats = [one.what for one in recording.attachments]
    assert sorted(whats) == ["finding", "journal", "log", "log", "run"]
    assert recording.skipped_lines == 0
    (finding,) = recording.snapshot(0).findings
    assert finding.flow == "oom"
    log = recording.attachments[whats.index("log")].lines
    assert any("Tried to allocate 2.00 GiB" in line for line in log)
    assert any("/train.py" in line and "line 12" in line for line in log)
    assert any(line.startswith("saved to s3://url") for line in log)
    assert any("https://pytorch.org/docs/stable/cuda.html" in line for line in log)
    assert any(line.endswith(":29500 of gpu-box") for line in log)
    assert any("…/lib/python3.11/site-packages/torch/nn/modules/module.py" in line for line in log)
    (entry,) = recording.attachments[whats.index("journal")].data
    assert entry["sentence"] == "pid 7: freed 14.2 of 14.3 GiB in 0.3 s"
    assert entry["command"] == "python train.py --token …"
    run = recording.attachments[whats.index("run")].data
    assert run["command"] == ["python", "train.py", "--password", "…", "--user1-mode", "…", "…"]
    words = [word for one in recording.snapshot(0).processes for word in one.command]
    assert "train.py" in words
    assert "script.py" not in words


def test_the_sentence_says_what_is_in_it_and_what_was_masked(
    made: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, path = made
    line = done.stdout.strip()
    assert line.startswith(f"{path}: ")
    for words in ("snapshot", "1 finding", "2 logs of", "1 journal", "secrets", "addresses"):
        assert words in line
    assert "\n" not in line


def test_it_is_replayed_and_shown(
    made: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path
) -> None:
    _, path = made
    replayed = cockpit("--replay", str(path), "snapshot", "--json", home=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    snapshot = decode(replayed.stdout)
    assert len(snapshot.gpus) == 8
    assert snapshot.findings[0].flow == "oom"
    shown = cockpit("bundle", "--show", str(path), home=tmp_path)
    assert "== log" in shown.stdout
    assert "Tried to allocate" in shown.stdout


@pytest.mark.parametrize("there", [True, False])
def test_what_the_doctor_says_of_the_newest_runs_python_is_in_the_file(
    tmp_path: Path, there: bool
) -> None:
    keep_traces(tmp_path)
    python = str(tmp_path / "secretproject" / "bin" / "python")
    if there:
        os.makedirs(os.path.dirname(python))
        os.symlink(os.path.realpath(sys.executable), python)
    (meta,) = (tmp_path / "cockpit" / "runs").glob("*/meta.json")
    kept = msgspec.json.decode(meta.read_bytes(), type=Meta)
    meta.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, python=python)))
    path = tmp_path / "b.jsonl"
    names = {"USER": "alice", "HOSTNAME": "node-17"}
    done = cockpit("bundle", str(path), "--seconds", "0", home=tmp_path, **names)
    assert done.returncode == 0, done.stderr
    content = path.read_text()
    assert [one for one in (*SECRETS, *NAMES, str(tmp_path)) if one in content] == []
    found = [one.data for one in bundle.attachments(str(path)) if one.what == "doctor"]
    assert len(found) == there
    if there:
        assert {"interpreter", "kernel_module"} <= {one["id"] for one in found[0]["checks"]}
        assert "1 doctor answer" in done.stdout
    else:
        assert "Without the doctor's answer: " in done.stderr
        assert "doctor answer" not in done.stdout


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("precious")
    done = cockpit("--demo", "busy", "bundle", str(path), "--seconds", "0", home=tmp_path)
    assert done.returncode == 2
    assert path.read_text() == "precious"


def test_a_log_whose_name_is_no_utf8_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    log = Path(os.fsdecode(os.fsencode(tmp_path) + b"/tr\xffain.log"))
    log.write_text("a line\n")
    words = ("--demo", "busy", "bundle", str(path), "--seconds", "0", "--log", str(log))
    done = cockpit(*words, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [part.what for part in bundle.attachments(str(path))] == ["log"]


def test_a_log_that_is_not_there_is_said_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    missing = ("--log", str(tmp_path / "no.log"))
    done = cockpit("--demo", "busy", "bundle", str(path), *missing, home=tmp_path)
    assert done.returncode in (2, 5)
    assert not path.exists()


def one_snapshot() -> Snapshot:
    row = Process(pid=7, user="alice", command=("python", "/home/alice/t.py"))
    host = Host(name="node-17.cluster")
    at = "2026-11-30T16:00:00.000Z"
    return Snapshot(
        taken_at=at,
        host=host,
        driver=Driver(),
        processes=(row,),
        sampler=SamplerStatus(interval_s=1.0),
    )


def test_the_doctors_answer_is_redacted_key_by_key(tmp_path: Path) -> None:
    data = {"checks": [{"text": "node-17 ok for alice", "env": {"HF_TOKEN": "plainlooking"}}]}
    contents = bundle.Contents(
        snapshots=[(0.0, one_snapshot())], parts=[Attachment(what="doctor", data=data)]
    )
    path = str(tmp_path / "b.jsonl")
    assert "1 doctor answer" in bundle.write(path, contents)
    (part,) = bundle.attachments(path)
    assert part.data == {
        "checks": [{"text": "gpu-box ok for user1", "env": {"HF_TOKEN": "<hidden>"}}]
    }


def test_a_secret_that_was_named_once_goes_where_it_stands_alone(tmp_path: Path) -> None:
    lines = ("using enabled-1 again", "password=enabled-1", "enabled")
    contents = bundle.Contents(
        snapshots=[(0.0, one_snapshot())], parts=[Attachment(what="log", lines=lines)]
    )
    path = str(tmp_path / "b.jsonl")
    bundle.write(path, contents)
    (part,) = bundle.attachments(path)
    assert part.lines == ("using <hidden> again", "password=<hidden>", "enabled")


def test_a_secret_that_slips_through_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(self: Redactor, lines: object) -> tuple[str, ...]:
        self.removed.add("s3cr3t-value")
        return ("it is s3cr3t-value",)

    monkeypatch.setattr(Redactor, "lines", careless)
    contents = bundle.Contents(
        snapshots=[(0.0, one_snapshot())], parts=[Attachment(what="log", lines=("x",))]
    )
    path = tmp_path / "b.jsonl"
    with pytest.raises(CockpitError, match="still in"):
        bundle.write(str(path), contents)
    assert not path.exists()
