"""Hysteresis: what flickers is not shown, what was shown does not flicker, time may go back."""

from __future__ import annotations

import pytest

from cockpit.diagnose.live.claim import Claim, finding_of, said
from cockpit.diagnose.live.latch import Latch
from cockpit.diagnose.live.look import NoLooks
from cockpit.diagnose.live.watch import LiveFindings
from cockpit.model.snapshot import Snapshot
from tests.diagnose.live.scenes import a_gpu, a_process, a_snapshot, play


def claim(**values) -> Claim:
    usual = {"cause": "thermal", "title": "hot", "says": (said("91 °C"),), "confidence": 0.9}
    return Claim(**{**usual, "gpu": 0, "hold_s": 5.0, "clear_s": 10.0, **values})


def shown(latch: Latch, now_s: float, *claims: Claim) -> list[str]:
    return [finding.title for finding in latch.turn(now_s, claims)]


def test_a_claim_is_shown_once_it_has_held_and_not_before() -> None:
    latch = Latch()
    told = [bool(shown(latch, second, claim())) for second in range(8)]
    assert told == [False] * 5 + [True] * 3


def test_a_claim_in_most_snapshots_of_its_time_is_enough_and_in_few_is_not() -> None:
    often, seldom = Latch(), Latch()
    told_often = told_seldom = False
    for second in range(40):
        told_often |= bool(shown(often, second, *([claim()] if second % 4 else [])))
        told_seldom |= bool(shown(seldom, second, *([] if second % 4 else [claim()])))
    assert told_often
    assert not told_seldom


def test_what_is_shown_stays_through_a_gap_and_goes_after_a_long_one() -> None:
    latch = Latch()
    for second in range(6):
        shown(latch, second, claim())
    assert shown(latch, 14) == ["hot"]
    assert shown(latch, 15) == []
    assert shown(latch, 16, claim()) == [], "it has to hold anew"


def test_claims_of_other_gpus_and_pids_are_other_findings_and_groups_are_one() -> None:
    latch = Latch()
    two = (claim(pid=1), claim(gpu=1))
    assert len([t for second in range(6) for t in [shown(latch, second, *two)]][-1]) == 2
    grouped = Latch()
    for second in range(6):
        titles = shown(grouped, second, claim(grouped=True, pid=second))
    assert titles == ["hot"]


def test_the_worst_comes_first_and_of_one_severity_the_surest() -> None:
    latch = Latch()
    some = (
        claim(title="a", gpu=1, severity="info", confidence=1.0),
        claim(title="b", gpu=2, severity="error", confidence=0.5),
        claim(title="c", gpu=3, severity="warning", confidence=0.6),
        claim(title="d", gpu=4, severity="warning", confidence=0.8),
    )
    for second in range(6):
        titles = shown(latch, second, *some)
    assert titles == ["b", "d", "c", "a"]


def test_words_are_renewed_now_and_then_and_at_once_when_it_gets_worse() -> None:
    latch = Latch()
    for second in range(6):
        shown(latch, second, claim(title=f"at {second}"))
    assert shown(latch, 7, claim(title="at 7")) == ["at 5"]
    assert shown(latch, 8, claim(title="at 8", severity="error")) == ["at 8"]
    assert shown(latch, 14, claim(title="at 14", severity="error")) == ["at 14"]


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 7.0, 60.0])
def test_any_interval_shows_and_clears(interval_s: float) -> None:
    latch = Latch()
    counts = [len(shown(latch, n * interval_s, claim())) for n in range(int(80 / interval_s) + 3)]
    assert counts[0] == 0
    assert counts[-1] == 1
    later_s = len(counts) * interval_s
    assert not any(shown(latch, later_s + 10 + n * interval_s) for n in range(3))


def test_a_single_snapshot_tells_what_it_can() -> None:
    latch = Latch(at_once=True)
    titles = shown(latch, 0, claim(title="now", at_once=True), claim(title="later", gpu=1))
    assert titles == ["now"]


def test_names_from_outside_reach_no_terminal_as_they_are() -> None:
    bad = "/tmp/\x1b[2Jevil.py:3"
    one = claim(title=f"at {bad}", says=(said(f"seen at {bad}"),), facts={"place": bad})
    finding = finding_of(one)
    told = [finding.title, finding.evidence[0].text, finding.facts["place"]]
    told += [fix.value + fix.why for fix in finding.fixes]
    assert not any("\x1b" in text for text in told)


# -- over snapshots


def hot(second: float) -> Snapshot:
    gpu = a_gpu(throttle_reasons=("hw_thermal_slowdown",), temperature_c=91)
    return a_snapshot(second, gpu, processes=(a_process(),))


def test_a_replay_that_goes_back_or_far_ahead_begins_anew() -> None:
    live = LiveFindings()
    assert play(hot, 20, live=live).causes == {"thermal"}
    assert live.observe(hot(3), NoLooks()) == ()
    assert play(hot, 20, live=live, begin_s=4).causes == {"thermal"}
    assert live.observe(hot(4000), NoLooks()) == ()


def test_a_paused_replay_keeps_what_it_shows() -> None:
    live = LiveFindings()
    play(hot, 20, live=live)
    assert [one.cause for one in live.observe(hot(20), NoLooks())] == ["thermal"]


def test_one_snapshot_tells_heat_and_leaves_out_what_needs_time() -> None:
    live = LiveFindings(at_once=True)
    one = Snapshot(
        **{name: getattr(hot(0), name) for name in Snapshot.__struct_fields__}
        | {"gpus": (a_gpu(throttle_reasons=("sw_thermal_slowdown",), pcie_width=4),)}
    )
    assert [finding.cause for finding in live.observe(one, NoLooks())] == ["thermal"]


def test_a_normal_power_cap_is_named_among_what_it_is_not() -> None:
    from cockpit.diagnose.live.power import normal_cap

    assert "700 W is the default limit" in (normal_cap(a_gpu()) or "")
    assert normal_cap(a_gpu(power_limit_w=450.0)) is None
    assert normal_cap(a_gpu(throttle_reasons=())) is None
