"""Which files are the dumps of a run, and what is not read though it lies in their place."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from cockpit.attach import run_environment, run_flight, run_record
from cockpit.attach.run_record import RunRecord, load_run
from tests.attach.test_run_record import recorded


def ranks(record: RunRecord) -> list[int]:
    return [one.rank for one in run_flight.dump_files(record)]


def run_with(tmp_path: Path, **changes: object) -> RunRecord:
    return load_run(recorded(tmp_path, **changes))


def test_the_dumps_lie_where_cockpit_run_lets_torch_write_them(tmp_path: Path) -> None:
    directory = run_record.create(str(tmp_path))
    changes = run_environment.for_run({}, directory)
    for rank in (10, 0, 2):
        Path(f"{changes['TORCH_FR_DUMP_TEMP_FILE']}{rank}").write_bytes(b"x")
    record = run_with(tmp_path)
    record = RunRecord(directory=directory, meta=record.meta, exit=None)
    assert ranks(record) == [0, 2, 10]


def test_other_names_beside_them_are_no_dumps(tmp_path: Path) -> None:
    record = run_with(tmp_path)
    flight = Path(record.directory, "flight")
    for name in ("rank_1", "rank_", "rank_x", "rank_1.new", "arank_2", "rank_-1", "rank_3\n"):
        (flight / name).write_bytes(b"x")
    assert ranks(record) == [1]


def test_a_run_without_a_dump_or_a_folder_has_none(tmp_path: Path) -> None:
    record = run_with(tmp_path)
    assert run_flight.dump_files(record) == ()
    os.rmdir(os.path.join(record.directory, "flight"))
    assert run_flight.dump_files(record) == ()


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_a_prefix_of_the_runs_own_is_followed(tmp_path: Path, name: str) -> None:
    record = run_with(tmp_path, environment={name: str(tmp_path / "mine_")})
    (tmp_path / "mine_7").write_bytes(b"x")
    assert ranks(record) == [7]
    inside = run_with(tmp_path, environment={name: "sub/r"}, cwd=str(tmp_path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "r4").write_bytes(b"x")
    assert ranks(inside) == [4]


def test_what_an_earlier_run_left_below_its_own_prefix_is_not_of_this_one(tmp_path: Path) -> None:
    environment = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "mine_")}
    record = run_with(tmp_path, environment=environment)
    for rank, age_s in ((0, 60), (1, 0)):
        path = tmp_path / f"mine_{rank}"
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age_s,) * 2)
    assert ranks(record) == [1]


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(b"\x80\x02}.")
    assert run_flight.read_dump(str(tmp_path / "rank_0")) == b"\x80\x02}."


def refused(path: Path, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        run_flight.read_dump(str(path))


def test_a_pipe_in_its_place_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank_0")
    done = threading.Thread(target=refused, args=(tmp_path / "rank_0", "no plain file"))
    done.daemon = True
    done.start()
    done.join(5)
    assert not done.is_alive()


def test_a_link_a_folder_and_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    (tmp_path / "rank_0").symlink_to(tmp_path / "there")
    refused(tmp_path / "rank_0", "symbolic links")
    (tmp_path / "rank_1").mkdir()
    refused(tmp_path / "rank_1", "no plain file")
    refused(tmp_path / "rank_2", "no such file")


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "rank_0"
    with path.open("wb") as file:
        file.truncate(40 << 30)  # has no blocks
    began = time.monotonic()
    refused(path, "larger than 64 MiB")
    assert time.monotonic() - began < 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(b"x")
    os.chown(path, 12345, 12345)
    refused(path, "another user")
