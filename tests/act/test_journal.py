"""The journal: what stands in it, who may read it, and that it never stands in the way."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from threading import Thread

import pytest

from cockpit.act.journal import Entry, Journal, bounded, default_path
from cockpit.model.time import iso


def entry(pid: int = 4711, command: str = "python train.py") -> Entry:
    return Entry(
        at=iso(time.time()),
        uid=1000,
        user="ann",
        sudo_user=None,
        action="abc",
        phase="intent",
        signal="TERM",
        pid=pid,
        start_ticks=99,
        command=command,
    )


def test_lines_are_appended_and_read_back(journal: Journal):
    assert journal.write(entry(1))
    assert Journal(journal.path).write(entry(2))
    first, second = map(json.loads, journal.path.read_text().splitlines())
    assert (first["pid"], second["pid"]) == (1, 2)
    assert first["at"].endswith("Z")
    assert len(first["at"]) == len("2026-11-30T16:00:00.000Z")


def test_only_its_owner_may_read_it(journal: Journal):
    journal.write(entry())
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


def test_a_full_journal_is_put_aside_once(tmp_path: Path):
    journal = Journal(tmp_path / "journal.jsonl", max_bytes=1000)
    for pid in range(20):
        journal.write(entry(pid))
    old = tmp_path / "journal.jsonl.1"
    assert journal.path.stat().st_size <= 1000
    assert old.stat().st_size <= 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == [journal.path.name, old.name]
    pids = [json.loads(line)["pid"] for p in (old, journal.path) for line in p.open()]
    assert pids == list(range(pids[0], 20))


def test_lines_of_several_writers_stay_whole(journal: Journal):
    def write() -> None:
        for _ in range(50):
            Journal(journal.path).write(entry(command="x" * 400))

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = journal.path.read_text().splitlines()
    assert len(lines) == 200
    assert {json.loads(line)["pid"] for line in lines} == {4711}


@pytest.mark.parametrize("obstacle", ["file", "directory", "link"])
def test_a_journal_that_cannot_be_written_says_why_and_raises_nothing(
    tmp_path: Path, obstacle: str
):
    path = tmp_path / "state" / "journal.jsonl"
    if obstacle == "file":
        path.parent.write_text("in the way")
    elif obstacle == "directory":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    journal = Journal(path)
    assert not journal.write(entry())
    assert "cannot be written" in journal.trouble
    assert not (tmp_path / "elsewhere").exists()


def test_foreign_text_is_harmless_and_short():
    assert bounded("a\x1b[2Jb\nc") == "a^[[2Jb^Jc"
    assert len(bounded("x" * 10_000)) == 500


def test_a_name_that_is_not_utf8_can_be_written(journal: Journal):
    assert journal.write(entry(command=bounded("train\udcff.py")))
    assert json.loads(journal.path.read_text())["command"] == "train·.py"


def test_the_path_follows_the_state_directory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert default_path() == Path("/s/cockpit/journal.jsonl")


def test_without_any_home_the_journal_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cockpit.act.journal.state_directory", lambda _environ: None)
    journal = Journal()
    assert not journal.write(entry())
    assert "no home directory" in journal.trouble


def test_no_secret_and_no_control_character_is_written_whoever_writes(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SUDO_USER", "a\x1bnn\udcff")
    url = "https://me:hunter2@host/simple"
    sentence = f"pip says: no {url} \x1b[2J \udcff"
    written = Entry(
        action="a", phase="result", pid=1, start_ticks=2, command=url, sentence=sentence
    )
    assert journal.write(written)
    text = journal.path.read_text()
    assert "hunter2" not in text
    line = json.loads(text)
    assert line["sentence"] == "pip says: no https://<hidden>@host/simple ^[[2J ·"
    assert (line["sudo_user"], line["uid"]) == ("a^[nn·", os.geteuid())
    assert line["at"].endswith("Z")
