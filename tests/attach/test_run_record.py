"""The record on disk: its bounds, what is shown of it, what is kept of old ones, what it trusts."""

from __future__ import annotations

import json
import os
import pickle
import socket
import time
from pathlib import Path

import pytest

from cockpit.attach import run_oom, run_output, run_record
from cockpit.attach.run_output import MAX_LINES, OutputWriter, read_lines, read_raw
from cockpit.attach.run_record import Exit, Meta, Recorder, create, find_run, list_runs, load_run
from cockpit.errors import TargetGoneError


def meta(directory: str, **changes: object) -> Meta:
    values: dict[str, object] = {
        "id": os.path.basename(directory),
        "name": "train.py",
        "command": ("python", "train.py"),
        "cwd": "/w",
        "environment": {},
        "set_for_run": {},
        "started_at": run_record.now(),
        "pid": os.getpid(),
        "start_ticks": run_record.start_ticks(os.getpid()),
        "python": None,
        "host": socket.gethostname(),
        "boot_id": run_record.boot_id(),
        **changes,
    }
    return Meta(**values)  # type: ignore[arg-type]


def recorded(state: Path, *, ended: bool = True, **changes: object) -> str:
    directory = create(str(state))
    recorder = Recorder(directory)
    recorder.begin(meta(directory, **changes))
    if ended:
        recorder.end(0, None)
    return directory


@pytest.mark.parametrize(
    ("status", "signal", "last"),
    [
        (0, None, b"[exit status 0]"),
        (3, None, b"[exit status 3]"),
        (137, "SIGKILL", b"[the run was ended by SIGKILL]"),
    ],
)
def test_the_log_of_a_run_ends_with_how_it_ended(
    tmp_path: Path, status: int, signal: str | None, last: bytes
) -> None:
    directory = create(str(tmp_path))
    recorder = Recorder(directory)
    recorder.begin(meta(directory))
    recorder.write(b"step 1\n")
    assert load_run(directory).log() == b"step 1"
    recorder.end(status, signal)
    assert load_run(directory).log() == b"step 1\n" + last


# -- output ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, MAX_LINES - 1, MAX_LINES, MAX_LINES + 1, 25_003])
@pytest.mark.parametrize("closed", [True, False])
def test_the_last_ten_thousand_lines_are_kept(tmp_path: Path, count: int, closed: bool) -> None:
    writer = OutputWriter(str(tmp_path))
    numbers = [b"%d\n" % n for n in range(count)]
    for start in range(0, count, 700):
        writer.write(b"".join(numbers[start : start + 700]))
    if closed:
        writer.close()
        assert os.listdir(tmp_path) == ["output"]
    assert read_raw(str(tmp_path)) == b"".join(numbers[-MAX_LINES:])


def test_the_files_never_grow_beyond_their_bound(tmp_path: Path) -> None:
    writer = OutputWriter(str(tmp_path), max_bytes=10_000)
    for n in range(200):
        writer.write(b"%04d " % n + b"x" * 990)  # one line without an end
        total = sum(os.stat(tmp_path / name).st_size for name in os.listdir(tmp_path))
        assert total <= 2 * 10_000 + 1000
    writer.close()
    assert read_raw(str(tmp_path)).endswith(b"x" * 990)


def test_a_progress_bar_does_not_push_the_lines_out(tmp_path: Path) -> None:
    writer = OutputWriter(str(tmp_path), max_bytes=20_000)
    for epoch in range(50):
        writer.write(b"epoch %d\n" % epoch)
        writer.write(b"".join(b"\r%3d%% of it" % n for n in range(100)) + b"\n")
    writer.close()
    lines = read_lines(str(tmp_path))
    assert len(lines) == 100
    assert lines[0] == "epoch 0"
    assert set(lines[1::2]) == {" 99% of it"}


@pytest.mark.parametrize(
    "line", [b"x" * (6 << 20), b"\x1bP" * 200_000, b"\x1b]" * 200_000, b"\r" * (1 << 20)]
)
def test_a_line_of_megabytes_holds_nobody_up(tmp_path: Path, line: bytes) -> None:
    """The program that prints waits for the writer."""
    writer = OutputWriter(str(tmp_path), max_bytes=1 << 20)
    began = time.perf_counter()
    writer.write(b"50%\r100%\n" + line + b"\n")
    writer.write(b"last\n")
    writer.close()
    assert read_lines(str(tmp_path))[-1] == "last"
    assert time.perf_counter() - began < 5


def test_output_is_harmless_when_shown_and_raw_on_disk(tmp_path: Path) -> None:
    raw = b"\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07x\x00y\n\xff\xfe\n50%\r100%\nlast"
    writer = OutputWriter(str(tmp_path))
    writer.write(raw)
    writer.close()
    assert read_raw(str(tmp_path)) == raw
    lines = read_lines(str(tmp_path))
    assert lines == ["red", "x^@y", "\ufffd\ufffd", "100%", "last"]
    assert not any("\x1b" in line for line in lines)


def test_writing_a_million_lines_is_cheap(tmp_path: Path) -> None:
    writer = OutputWriter(str(tmp_path))
    block = b"".join(b"step %d loss 0.1234\n" % n for n in range(1000))
    began = time.perf_counter()
    for _ in range(1000):
        writer.write(block)
    assert time.perf_counter() - began < 10
    writer.close()


def test_a_full_disk_ends_the_recording_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = create(str(tmp_path))
    recorder = Recorder(directory)
    recorder.begin(meta(directory))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_output.OutputWriter, "write", full)
    recorder.write(b"x")
    recorder.write(b"y")
    assert recorder.trouble is not None
    assert recorder.trouble.startswith("No space left on device")
    recorder.end(3, None)
    assert load_run(directory).exit is not None


# -- list and load ---------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_found_by_name_id_and_pid(tmp_path: Path) -> None:
    first = recorded(tmp_path, name="one")
    os.rename(first, os.path.join(os.path.dirname(first), "20200101-000000-aaaa"))
    second = recorded(tmp_path, name="two")
    assert [run.meta.name for run in list_runs(str(tmp_path))] == ["two", "one"]
    assert find_run(str(tmp_path), "two").directory == second
    assert find_run(str(tmp_path), os.path.basename(second)).directory == second
    assert find_run(str(tmp_path), str(os.getpid())).meta.name == "two"
    with pytest.raises(TargetGoneError):
        find_run(str(tmp_path), "three")


def test_what_is_no_record_is_left_out(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    (tmp_path / "runs" / "junk").write_text("x")
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "meta.json").write_text('{"id": 1')
    assert [run.directory for run in list_runs(str(tmp_path))] == [directory]
    assert list_runs(str(tmp_path / "nowhere")) == []


def test_a_record_tells_running_ended_lost_and_elsewhere_apart(tmp_path: Path) -> None:
    states = {
        load_run(recorded(tmp_path, ended=ended, **changes)).state
        for ended, changes in (
            (True, {}),
            (False, {}),
            (False, {"start_ticks": 1}),
            (False, {"host": "another"}),
        )
    }
    assert states == {"ended", "running", "lost", "elsewhere"}
    rebooted = recorded(tmp_path, ended=False, boot_id="another")
    assert load_run(rebooted).state == "lost"


def test_old_records_go_and_running_ones_stay(tmp_path: Path) -> None:
    running = recorded(tmp_path, ended=False)
    oldest = os.path.join(os.path.dirname(running), "20000101-000000-aaaa")
    os.rename(running, oldest)
    for _ in range(run_record.KEPT_RUNS + 5):
        newest = recorded(tmp_path)
    names = os.listdir(tmp_path / "runs")
    assert len(names) <= run_record.KEPT_RUNS + 1
    assert os.path.basename(oldest) in names
    assert os.path.basename(newest) in names


def test_pruning_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    os.symlink(tmp_path / "precious", tmp_path / "runs" / "00000000-000000-aaaa")
    run_record.prune(str(tmp_path / "runs"), keep=1)
    assert (tmp_path / "precious" / "file").exists()


def test_a_record_of_a_newer_cockpit_can_be_read(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    path = Path(directory, "exit.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "new_field": 1}))
    assert isinstance(load_run(directory).exit, Exit)


# -- OOM records -----------------------------------------------------------------------------


def left_by_agent(folder: Path, pid: int, number: int, at: float) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    record = {"at": at, "pid": pid, "start_ticks": 5, "asked_bytes": number, "history": True}
    (folder / f"oom-{pid}-{number}.json").write_text(json.dumps(record))


def test_oom_records_come_in_their_order_with_their_snapshots(tmp_path: Path) -> None:
    directory = recorded(tmp_path / "state")
    folder = Path(directory, "oom")
    left_by_agent(folder, 11, 2, 2000.0)
    left_by_agent(folder, 11, 1, 1000.5)
    left_by_agent(folder, 9, 3, 1500.0)
    (folder / "oom-11-1000-4.pickle").write_bytes(pickle.dumps({"segments": []}))
    (folder / "oom-11-9.json").write_text("no record")
    found = load_run(directory).ooms()
    assert [record["asked_bytes"] for record in found] == [1, 3, 2]
    assert [record["snapshot_path"] for record in found] == [
        os.path.join(folder, "oom-11-1000-4.pickle"),
        None,
        None,
    ]


def test_allocations_are_summed_by_their_stack(tmp_path: Path) -> None:
    frames = [{"filename": "m.py", "line": 3, "name": "forward"}]
    blocks = [
        {"size": 100, "state": "active_allocated", "frames": frames},
        {"size": 50, "state": "active_allocated", "frames": frames},
        {"size": 120, "state": "active_allocated", "frames": []},
        {"size": 9000, "state": "inactive", "frames": frames},
    ]
    path = tmp_path / "oom-1-2-3.pickle"
    path.write_bytes(pickle.dumps({"segments": [{"device": 1, "blocks": blocks}]}))
    assert run_oom.allocations_by_stack(str(path)) == [
        {"device": 1, "bytes": 150, "count": 2, "frames": [["m.py", 3, "forward"]]},
        {"device": 1, "bytes": 120, "count": 1, "frames": []},
    ]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/never-by-a-pickle",)


@pytest.mark.parametrize(
    "raw", [pickle.dumps(Evil()), b"", b"no pickle", pickle.dumps([1]), pickle.dumps(3)[:-1]]
)
def test_a_pickle_that_is_no_snapshot_runs_nothing(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(raw)
    with pytest.raises(ValueError):
        run_oom.allocations_by_stack(str(path))
    assert not os.path.exists("/tmp/never-by-a-pickle")
