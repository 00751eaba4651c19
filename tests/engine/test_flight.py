"""The dumps of a kept run, from the files to the flow that shows them and names the rank."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cockpit.attach import run_record
from cockpit.attach.run_record import RunRecord, load_run
from cockpit.engine import flight
from cockpit.engine.flight import flight_of
from cockpit.engine.flow_facts import Facts
from cockpit.engine.relaunches import setting
from cockpit.flows import FLOWS, machine
from cockpit.flows.machine import State
from cockpit.model.flow import FlowRequest
from cockpit.paths import state_directory
from tests.attach.test_run_record import recorded
from tests.diagnose.flights import as_pickle, dump, entry
from tests.flows.known import command, known

PROGRAM = Path(__file__).parent / "programs" / "hang.py"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = state_directory(os.environ)
    assert found is not None
    flight._compared.cache_clear()
    return load_run(recorded(found, environment={}, cwd=str(tmp_path)))


def write(record: RunRecord, rank: int, raw: bytes) -> Path:
    path = Path(record.directory, "flight", f"rank_{rank}")
    path.write_bytes(raw)
    return path


def hang(record: RunRecord, *, world: int = 2) -> None:
    """Rank 1 has not called number 41."""
    for rank in range(world):
        state = "completed" if rank == 1 else "scheduled"
        calls = [entry(40, line=38)] + ([entry(41, state)] if rank != 1 else [])
        write(record, rank, as_pickle(dump(*calls, world=world, first=39)))


def sentences(record: RunRecord) -> list[str]:
    return [one.sentence for one in flight_of(record)]


def test_the_files_of_a_run_name_the_rank(record: RunRecord) -> None:
    hang(record, world=8)
    (row,) = flight_of(record)
    assert (row.kind, row.ranks) == ("behind", (1,))


def test_no_record_and_no_dump_say_nothing(record: RunRecord) -> None:
    assert flight_of(None) == ()
    assert flight_of(record) == ()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/never-by-a-flight-record",)


def test_a_dump_that_cannot_be_read_is_told_and_the_others_are_compared(
    record: RunRecord,
) -> None:
    hang(record, world=4)
    write(record, 3, pickle.dumps({"entries": [Evil()]}))
    rows = flight_of(record)
    assert [(one.kind, one.ranks) for one in rows] == [("behind", (1,)), ("unread", ())]
    assert rows[1].sentence.startswith("The dump of rank 3 is left out: it holds more than plain")
    assert not os.path.exists("/tmp/never-by-a-flight-record")


def test_dumps_that_cannot_be_read_at_all_are_told_in_few_lines(record: RunRecord) -> None:
    for rank in range(8):
        write(record, rank, b"\x80\x02}q")
    os.unlink(write(record, 8, b""))
    os.mkfifo(Path(record.directory, "flight", "rank_8"))
    told = sentences(record)
    assert told[0] == "The dump of rank 0 is left out: it is cut off."
    assert len(told) == 4
    assert told[-1] == "So are those of 6 more ranks."


def test_a_dump_of_an_earlier_start_of_the_ranks_is_left_out(record: RunRecord) -> None:
    hang(record, world=3)
    old = Path(record.directory, "flight", "rank_1")
    os.utime(old, (time.time() - 3600,) * 2)
    rows = flight_of(record)
    assert [one.kind for one in rows] == ["same", "unread"]
    assert "rank 1 is left out: it is older" in rows[1].sentence


def test_more_dumps_than_are_read_are_not_said_to_be_missing(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "MOST_RANKS", 2)
    hang(record, world=4)
    rows = flight_of(record)
    assert [one.kind for one in rows] == ["behind", "unread", "unread"]
    assert "only 2 are compared" in rows[1].sentence


def test_dumps_that_are_written_anew_are_read_anew(record: RunRecord) -> None:
    hang(record)
    assert "not called" in sentences(record)[0]
    for rank in (0, 1):
        write(record, rank, as_pickle(dump(entry(41, "scheduled"), first=40)))
    assert sentences(record)[0].startswith("All 2 ranks have called")


def test_the_flow_of_a_kept_run_shows_what_its_flight_recorders_say(record: RunRecord) -> None:
    hang(record, world=4)
    facts = Facts(SimpleNamespace(source="live", uid=os.geteuid()))  # type: ignore[arg-type]
    flow = FLOWS["multi-gpu"]
    seen = facts.look(
        FlowRequest(flow="multi-gpu", run=record.meta.id),
        known().snapshot,
        flow.needs - {"stacks"},
        answers={},
        done=(),
        say=print,
    )
    rows = {one.what: one for one in machine.looked(flow, State(), seen).found}
    row = rows["What does the flight recorder say?"]
    assert row.mark == "bad"
    assert row.sentence.startswith("Rank 1 has not called all_reduce number 41")
    assert "ranks 0, 2 and 3 wait in it" in row.sentence


def test_real_dumps_of_a_real_hang_name_the_rank(record: RunRecord, torch_python: str) -> None:
    known_to = "import torch._C._distributed_c10d as d; d._dump_fr_trace"
    if subprocess.run([torch_python, "-c", known_to], capture_output=True).returncode:
        pytest.skip("this torch records collectives of NCCL only")
    prefix = os.path.join(record.directory, "flight", "rank_")
    meet = os.path.join(record.directory, "meet")
    subprocess.run([torch_python, str(PROGRAM), prefix, meet], timeout=120, check=False)
    (row,) = flight_of(record)
    assert (row.kind, row.ranks) == ("behind", (1,))
    line = PROGRAM.read_text().splitlines().index("        dist.all_reduce(values)") + 1
    assert row.place == f"{PROGRAM}:{line} main"
    assert row.sentence == (
        "rank 1 has not called all_reduce number 4 (float32 [8, 4]) of group 0; rank 0 waits in "
        f"it, called at hang.py:{line + 3}; its last one was all_reduce number 3 at "
        f"hang.py:{line}."
    )


def test_a_run_that_is_known_to_be_of_the_record_has_its_dumps(record: RunRecord) -> None:
    """By its pid, as a flow starts from the table."""
    hang(record)
    found = run_record.record_of(os.path.dirname(os.path.dirname(record.directory)), os.getpid())
    assert found is not None
    assert flight_of(found)


def test_a_start_with_the_diagnostics_on_lets_the_ranks_record_and_write() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL would wait before each collective, and nothing be recorded."""
    change = setting("hang_diagnostics", command())
    assert change is not None
    changed = change.set_environment
    assert changed["TORCH_FR_BUFFER_SIZE"] == changed["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert changed["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert "TORCH_DISTRIBUTED_DEBUG" not in changed
