"""Dumps of several ranks, from their bytes to a sentence about who keeps whom waiting."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.diagnose import flight_recorder
from cockpit.diagnose.flight_compare import compare
from cockpit.model.flight import FlightRow
from tests.diagnose.flights import as_json, as_pickle, dump, entry, old_dump


def told(dumps: dict[int, dict[str, Any]]) -> tuple[FlightRow, ...]:
    return compare([flight_recorder.read(as_pickle(one), rank) for rank, one in dumps.items()])


def waits(number: int = 41, world: int = 2, **changes: Any) -> dict[str, Any]:
    """It has called this one, and it is not done."""
    return dump(entry(number - 1), entry(number, "scheduled", **changes), world=world, first=39)


def away(number: int = 40, world: int = 2) -> dict[str, Any]:
    """All that it called is done."""
    calls = (entry(number - 1), entry(number, line=38))
    return dump(*calls, world=world, first=38)


# -- behind


def test_the_rank_that_has_not_called_it_is_named_with_what_the_others_wait_in() -> None:
    rows = told({0: waits(world=4), 1: away(world=4), 2: waits(world=4), 3: waits(world=4)})
    assert [(one.kind, one.ranks, one.place) for one in rows] == [
        ("behind", (1,), "/home/ml1/train.py:38 step")
    ]
    assert rows[0].sentence == (
        "rank 1 has not called all_reduce number 41 (float32 [2048, 2048]) of group 0; "
        "ranks 0, 2 and 3 wait in it, called at train.py:40; "
        "its last one was all_reduce number 40 at train.py:38."
    )


def test_of_two_ranks_the_other_one_is_named() -> None:
    rows = told({0: away(), 1: waits()})
    assert [(one.kind, one.ranks) for one in rows] == [("behind", (0,))]
    assert "; rank 1 waits in it, called at train.py:40;" in rows[0].sentence


def test_of_eight_ranks_two_may_be_behind() -> None:
    dumps = {rank: away(world=8) if rank in (2, 5) else waits(world=8) for rank in range(8)}
    rows = told(dumps)
    assert [(one.kind, one.ranks) for one in rows] == [("behind", (2, 5))]
    assert rows[0].sentence.startswith("ranks 2 and 5 have not called all_reduce number 41")


def test_ranks_that_run_ahead_are_waiting_in_the_first_that_is_not_done() -> None:
    ahead = dump(*(entry(at, "scheduled", line=at) for at in (41, 42, 43)), first=40)
    (row,) = told({0: ahead, 1: away()})
    assert "not called all_reduce number 41" in row.sentence
    assert "called at train.py:41" in row.sentence


def test_a_root_that_is_done_already_waits_in_the_next_one() -> None:
    """A broadcast is done for who sends before it is for who has not even called it."""
    root = dump(entry(40, name="broadcast"), entry(41, "scheduled"), first=39)
    (row,) = told({0: root, 1: dump(entry(39), first=38)})
    assert row.ranks == (1,)
    assert "not called all_reduce number 41" in row.sentence


def test_a_rank_that_called_nothing_is_behind_at_the_first_one() -> None:
    (row,) = told(
        {0: dump(entry(1, "scheduled", sizes=((1,),), name="all_reduce_barrier")), 1: dump()}
    )
    assert row.ranks == (1,)
    assert row.sentence == (
        "rank 1 has not called barrier number 1 of group 0; rank 0 waits in it, called at "
        "train.py:40; it has called none at all."
    )


def test_a_rank_whose_calls_of_a_group_have_left_the_buffer_is_not_accused() -> None:
    groups = {"0": [0, 1], "1": [0, 1]}
    in_one = entry(2, "scheduled", group=("1", "mesh_tp"))
    full = dump(entry(900), groups=groups, first=5000)
    rows = told({0: dump(entry(900), in_one, groups=groups, first=5000), 1: full})
    assert [(one.kind, one.ranks) for one in rows] == [("alone", ())]


def test_who_is_kept_waiting_elsewhere_is_not_the_guilty_one() -> None:
    """Rank 1 is missed in group 1, for it waits in group 2 for rank 2."""
    groups = {"1": [0, 1], "2": [1, 2]}
    one, two = ("1", "mesh_dp"), ("2", "mesh_tp")
    rows = told(
        {
            0: dump(entry(1, group=one), entry(2, "scheduled", group=one), groups=groups),
            1: dump(entry(1, group=one), entry(1, "scheduled", group=two), groups=groups),
            2: dump(groups=groups),
        }
    )
    assert [(row.kind, row.ranks) for row in rows] == [("behind", (2,))]
    assert "of group 2 (mesh_tp)" in rows[0].sentence


def test_a_rank_that_alone_is_not_done_with_the_call_before_is_behind_all_the_same() -> None:
    late = dump(entry(40, "scheduled", line=38), first=39)
    (row,) = told({0: waits(), 1: late})
    assert (row.kind, row.ranks) == ("behind", (1,))


def test_a_ring_of_waiting_ranks_accuses_nobody_alone() -> None:
    groups = {"1": [0, 1], "2": [0, 1]}
    rows = told(
        {
            0: dump(entry(1, "scheduled", group=("1", "")), groups=groups),
            1: dump(entry(1, "scheduled", group=("2", "")), groups=groups),
        }
    )
    assert [(row.kind, row.ranks) for row in rows] == [("behind", ()), ("behind", ())]
    assert "rank 1 waits itself in another collective" in rows[0].sentence


# -- another call


def test_a_rank_that_called_another_collective_is_named_with_its_line() -> None:
    other = waits(world=4, name="_all_gather_base", line=77, sizes=((64,),), dtype="BFloat16")
    rows = told({0: waits(world=4), 1: waits(world=4), 2: other, 3: waits(world=4)})
    assert [(one.kind, one.ranks, one.place) for one in rows] == [
        ("mismatch", (2,), "/home/ml1/train.py:77 step")
    ]
    assert rows[0].sentence == (
        "Under number 41 of group 0 ranks 0, 1 and 3 called all_reduce (float32 [2048, 2048]) at "
        "train.py:40, rank 2 called all_gather_into_tensor (bfloat16 [64]) at train.py:77."
    )


@pytest.mark.parametrize("changes", [{"sizes": ((2048, 1024),)}, {"dtype": "Half"}])
def test_other_sizes_or_types_of_the_same_call_are_told(changes: dict[str, Any]) -> None:
    (row,) = told({0: waits(), 1: waits(**changes)})
    assert (row.kind, row.ranks) == ("mismatch", ())  # of two nobody knows who is right


def test_shapes_with_as_many_elements_fit_together() -> None:
    (row,) = told({0: waits(), 1: waits(sizes=((4096, 1024),))})
    assert row.kind == "same"


def test_a_scatter_or_an_uneven_gather_may_have_other_sizes() -> None:
    (row,) = told({0: waits(name="all_gather"), 1: waits(name="all_gather", sizes=((7,),))})
    assert row.kind == "same"


def test_a_coalesced_call_has_the_state_of_its_end() -> None:
    parts = [entry(41, "scheduled", name="all_reduce"), entry(41, "scheduled", name="all_reduce")]
    end = entry(41, name="coalesced", sizes=())
    done = dump(*parts, end, first=40)
    (row,) = told({0: done, 1: done})
    assert "waited in no collective" in row.sentence


# -- all are there


@pytest.mark.parametrize("world", [2, 8])
def test_ranks_that_are_all_in_one_collective_accuse_nobody(world: int) -> None:
    (row,) = told({rank: waits(world=world) for rank in range(world)})
    assert (row.kind, row.ranks) == ("same", ())
    assert row.sentence == (
        f"All {world} ranks have called all_reduce number 41 (float32 [2048, 2048]) of group 0, "
        "called at train.py:40, and it does not end: none of them is missing."
    )


def test_a_gpu_that_has_not_begun_what_the_others_are_in_is_named() -> None:
    begun = dump(entry(41, "started"), world=3, first=40)
    (row,) = told({0: begun, 1: begun, 2: waits(world=3)})
    assert (row.kind, row.ranks) == ("not_begun", (2,))
    assert "its GPU has not begun it" in row.sentence


def test_ranks_that_wait_in_nothing_are_not_said_to_hang() -> None:
    (row,) = told({0: away(), 1: away()})
    assert row.kind == "same"
    assert row.sentence == "ranks 0 and 1 waited in no collective when this was written."


def test_a_rank_without_a_dump_is_told_and_not_accused() -> None:
    rows = told({0: waits(world=3), 2: waits(world=3)})
    assert [(one.kind, one.ranks) for one in rows] == [("same", ()), ("missing", ())]
    assert rows[1].sentence.startswith("rank 1 left no dump here")
    rows = told({0: waits(world=8)})
    assert [one.kind for one in rows] == ["alone", "missing"]
    assert "ranks 1, 2, 3, 4, 5, 6 and 7 left no dump" in rows[1].sentence


def test_no_dumps_say_nothing() -> None:
    assert compare([]) == ()


# -- forms


def test_sends_are_counted_apart_and_neither_wait_nor_count() -> None:
    send = entry(40, "scheduled", name="send 0->1", is_p2p=True, p2p_seq_id=90)
    counters = {"0": {"last_enqueued_collective": 90, "last_completed_collective": 89}}
    (row,) = told({0: dump(entry(40), send, first=39, status=counters), 1: away()})
    assert "waited in no collective" in row.sentence


def test_the_counters_tell_of_calls_without_a_state() -> None:
    """gloo records no state."""

    def rank(enqueued: int) -> dict[str, Any]:
        calls = [
            entry(n, "scheduled", profiling_name="gloo:all_reduce") for n in range(1, enqueued + 1)
        ]
        counters = {"0": {"last_enqueued_collective": enqueued, "last_completed_collective": 3}}
        return dump(*calls, status=counters)

    (row,) = told({0: rank(4), 1: rank(3)})
    assert (row.kind, row.ranks) == ("behind", (1,))
    assert "not called all_reduce number 4 " in row.sentence


def test_json_says_the_same_without_lines() -> None:
    counters = {"0": {"last_enqueued_collective": 41, "last_completed_collective": 40}}
    dumps = {0: {**waits(), "pg_status": counters}, 1: away()}
    (row,) = compare([flight_recorder.read(as_json(one), rank) for rank, one in dumps.items()])
    assert (row.kind, row.ranks, row.place) == ("behind", (1,), None)
    assert "; rank 0 waits in it; its last one was all_reduce number 40." in row.sentence


def test_an_old_version_says_the_same() -> None:
    send = entry(42, "scheduled", name="recv 0<-1")
    (row,) = told(
        {0: old_dump(entry(40), entry(41, "scheduled"), send), 1: old_dump(entry(40, line=38))}
    )
    assert (row.kind, row.ranks) == ("behind", (1,))
    assert "not called all_reduce number 41 ([2048, 2048]) of group 0; rank 0" in row.sentence


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no pickle",
        b"{",
        b"[" * 100_000,
        as_pickle({"a": 1}),
        as_pickle(3),
        as_pickle(waits())[:-40],
    ],
)
def test_what_is_no_dump_is_refused_in_a_sentence(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        flight_recorder.read(raw, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"collective_seq_id": None},
        {"collective_seq_id": True},
        {"collective_seq_id": 1 << 200},
        {"process_group": None, "pg_id": "x"},
        {"process_group": ("0",)},
        {"frames": None},
        {"frames": [None, {}, {"filename": 3, "line": "x"}]},
        {"input_sizes": "x", "input_dtypes": 5},
        {"input_sizes": [[None, "x"]], "input_dtypes": [None]},
        {"profiling_name": None},
        {"profiling_name": "a:b:c"},
        {"state": 5},
    ],
)
def test_an_entry_with_odd_values_stops_nothing(changes: dict[str, Any]) -> None:
    assert told({0: dump(entry(40), entry(41, "scheduled") | changes), 1: away()})


def test_what_a_dump_says_cannot_move_the_cursor() -> None:
    evil = {"profiling_name": "nccl:\x1b[2J", "process_group": ("0\x1b", "\u202e\n")}
    frame = {"filename": "/a/\x1b]0;x\x07.py", "line": 1, "name": "f"}
    calls = dump(entry(41, "scheduled", dtype="\x1b[1m", frames=[frame]) | evil, world=2)
    rows = told({0: calls, 1: dump(entry(40) | {"process_group": evil["process_group"]})})
    assert rows
    assert all(row.sentence.isprintable() for row in rows)
