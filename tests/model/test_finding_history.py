"""Since when a finding stands, and what is remembered of one that has cleared."""

from __future__ import annotations

from cockpit.model.finding import Finding
from cockpit.model.finding_history import CLEARED_KEPT, FindingHistory
from cockpit.model.gpu import Driver
from cockpit.model.host import Host
from cockpit.model.snapshot import SamplerStatus, Snapshot


def finding(cause="thermal", **changes):
    values = {
        "flow": "slow",
        "cause": cause,
        "severity": "warning",
        "confidence": 0.9,
        "title": "It is hot",
        "explanation": "",
        "gpu": 1,
    }
    return Finding(**(values | changes))


def at(second: int, *findings: Finding) -> Snapshot:
    return Snapshot(
        taken_at=f"2026-11-30T12:{second // 60:02d}:{second % 60:02d}.000Z",
        host=Host(name="box"),
        driver=Driver(),
        findings=findings,
        sampler=SamplerStatus(interval_s=1.0),
    )


def told(*snapshots: Snapshot):
    history = FindingHistory()
    for one in snapshots:
        history.append(one)
    return history.known()


def test_a_finding_keeps_the_time_at_which_it_came_while_its_numbers_move():
    (known,) = told(at(1), at(70, finding()), at(71, finding(title="It is hotter")))
    assert known.since.endswith("12:01:10.000Z")
    assert known.finding.title == "It is hotter"
    assert not known.from_start
    assert known.cleared_at is None


def test_one_that_is_found_soon_after_the_first_look_may_be_older():
    known, late = told(at(1), at(9, finding()), at(70, finding(), finding("dataloader")))
    assert known.from_start
    assert known.since.endswith(":09.000Z")
    assert not late.from_start


def test_one_that_is_gone_stays_known_with_the_time_at_which_it_cleared():
    (known,) = told(at(1, finding()), at(2), at(3))
    assert known.cleared_at is not None
    assert known.cleared_at.endswith(":02.000Z")


def test_one_that_comes_back_is_the_same_row_with_a_new_beginning():
    history = FindingHistory()
    history.append(at(1, finding()))
    (before,) = history.known()
    history.append(at(2))
    history.append(at(3, finding()))
    (after,) = history.known()
    assert after.number == before.number
    assert after.cleared_at is None
    assert after.since.endswith(":03.000Z")
    assert not after.from_start


def test_a_group_stays_the_same_finding_when_another_process_stands_for_it():
    (known,) = told(
        at(1, finding("orphans", pid=7, facts={"pids": [7, 8, 9]})),
        at(2, finding("orphans", pid=8, facts={"pids": [8, 9]})),
    )
    assert known.finding.pid == 8
    assert known.since.endswith(":01.000Z")


def test_another_process_with_the_same_trouble_is_another_finding():
    first, second = told(at(1, finding(pid=7)), at(2, finding(pid=8)))
    assert (first.finding.pid, first.cleared_at) == (8, None)
    assert second.finding.pid == 7
    assert second.cleared_at is not None
    assert first.number != second.number


def test_two_findings_that_agree_in_everything_are_two():
    numbers = [known.number for known in told(at(1, finding(), finding()))]
    assert len(set(numbers)) == 2


def test_of_the_cleared_ones_only_the_last_are_kept():
    causes = [finding(f"cause_{n}") for n in range(CLEARED_KEPT + 5)]
    known = told(at(1, *causes), at(2))
    assert len(known) == CLEARED_KEPT
    assert known[0].finding.cause == causes[-1].cause


def test_a_replay_that_is_moved_back_starts_anew():
    assert told(at(5, finding()), at(6), at(2)) == ()


def test_the_same_snapshot_twice_counts_once():
    snapshot = at(1, finding())
    assert len(told(snapshot, snapshot)) == 1
