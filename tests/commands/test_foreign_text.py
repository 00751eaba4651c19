"""Names and words of a recording that somebody else has made reach the terminal as data only."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cockpit.model.gpu import Driver, DriverError, Gpu
from cockpit.model.host import Host
from cockpit.model.process import Process
from cockpit.model.snapshot import SamplerStatus, Snapshot
from tests.conftest import ROOT

BAD = "\x1b[2J\x9b31m\u202e"
HARMLESS = "^[[2J·31m·"


def cockpit(recording: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cockpit", "--replay", str(recording), *words]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert not set("\x1b\x9b\u202e") & set(done.stdout + done.stderr), done
    return done


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Every word in it that is free text is hostile."""
    snapshot = Snapshot(
        taken_at=f"2026-11-30T16:00:00.000Z{BAD}",
        host=Host(name=BAD),
        driver=Driver(
            version=f"570{BAD}",
            cuda_version=f"13{BAD}",
            error=DriverError(code="unknown", message=f"broken{BAD}", advice=(f"mend{BAD}",)),
        ),
        gpus=(Gpu(index=0, name=BAD, uuid=BAD, throttle_reasons=(f"hot{BAD}",)),),
        processes=(Process(pid=7, visible=False, vram_bytes=1, gaps={"pid": f"why{BAD}"}),),
        sampler=SamplerStatus(interval_s=1.0),
    )
    path = tmp_path / "incident.jsonl"
    rows = (
        {"kind": "recording", "schema": 1},
        {"kind": "full", "t": 0.0, "n": 1, "snapshot": msgspec.to_builtins(snapshot)},
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_hostile_recording_as_text(recording: Path) -> None:
    done = cockpit(recording, "snapshot")
    for word in ("570", "13", "hot", "why"):
        assert f"{word}{HARMLESS}" in done.stdout
    assert f"broken{HARMLESS}\n  mend{HARMLESS}\n" in done.stderr
    assert done.returncode == 3


def test_a_hostile_recording_as_csv(recording: Path) -> None:
    (row,) = csv.DictReader(io.StringIO(cockpit(recording, "snapshot", "--csv").stdout))
    assert (row["name"], row["throttle_reasons"]) == (HARMLESS, f"hot{HARMLESS}")


def test_a_hostile_recordings_processes(recording: Path) -> None:
    assert f"cannot be looked up: why{HARMLESS}" in cockpit(recording, "ps").stdout


def test_a_hostile_file_name_in_an_error(tmp_path: Path) -> None:
    done = cockpit(tmp_path / f"gone{BAD}", "snapshot")
    assert (done.returncode, HARMLESS in done.stderr) == (2, True)
