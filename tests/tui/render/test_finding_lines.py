"""Findings as lines: said once, worst first, facts in units, and never a control character."""

from __future__ import annotations

import unicodedata

import pytest
from hand_made import a_gpu, a_history, a_ledger, a_process, a_snapshot, an_idle_gpu, ten_processes
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.model.event import Event
from cockpit.model.finding import Also, Evidence, Finding, Fix
from cockpit.model.finding_history import FindingHistory, Known
from cockpit.model.text import GIB
from cockpit.tui.line import plain
from cockpit.tui.render.alerts import alert_line, alerts, readings_alone
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.fact_words import fact_words
from cockpit.tui.render.finding_page import (
    cleared_lines,
    finding_page,
    finding_preview,
    finding_title,
)
from cockpit.tui.render.finding_rows import finding_rows, listed
from cockpit.tui.render.finding_words import troubled
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_rows import gpu_lines
from cockpit.tui.render.process_rows import process_rows, process_table
from cockpit.tui.render.remarks import all_remarks, snapshot_remarks
from tests.tui.some_findings import HOSTILE, a_finding, a_fix, heat, rank_behind, three

UTF8 = Glyphs.unicode()


def quiet(**changes):
    calm = {"gpus": (a_gpu(0), an_idle_gpu(1)), "processes": (), "ledger": (), "events": ()}
    return a_snapshot(**(calm | changes))


def sentences(snapshot):
    return [alert.sentence for alert in alerts(snapshot)]


# -- said once


def test_findings_come_worst_first_before_readings_of_the_same_severity():
    full = a_gpu(0, memory_used_bytes=int(139.0 * GIB))
    found = sentences(
        quiet(gpus=(full,), findings=(heat(1), rank_behind(), heat(5, severity="info")))
    )
    assert [one.split(" ")[0:2] for one in found] == [
        ["pid", "4711:"],
        ["GPU", "1:"],
        ["GPU", "5:"],
        ["GPU", "0"],
    ]


def test_a_finding_says_its_gpu_once_and_gpus_with_the_same_words_share_a_sentence():
    assert sentences(quiet(findings=(heat(1),))) == ["GPU 1: slowed by heat"]
    assert sentences(quiet(findings=(heat(1), heat(2), heat(3)))) == ["GPUs 1-3: slowed by heat"]
    generic = heat(1, title="The GPU is too hot.")
    assert sentences(quiet(findings=(generic,))) == ["GPU 1: The GPU is too hot"]


def hot(n):
    return a_gpu(n, throttle_reasons=("sw_thermal_slowdown",))


def test_a_hot_gpu_that_a_finding_speaks_about_is_not_told_again():
    snapshot = quiet(gpus=(hot(1), hot(2)), findings=(heat(1),))
    assert sentences(snapshot) == ["GPU 2 slowed by heat", "GPU 1: slowed by heat"]


def test_a_finding_of_another_cause_takes_no_alert_away():
    snapshot = quiet(gpus=(hot(1),), findings=(heat(1, cause="pcie_width"),))
    assert "GPU 1 slowed by heat" in sentences(snapshot)


def test_strays_that_a_finding_names_among_its_facts_are_not_told_again():
    strays = [one for one in ten_processes() if one.stray]
    pids = [one.pid for one in strays]
    named = a_finding(gpu=6, pid=pids[0], facts={"pids": pids})
    assert readings_alone(quiet(processes=tuple(strays))) != []
    assert readings_alone(quiet(processes=tuple(strays), findings=(named,))) == []


def test_a_driver_finding_without_a_gpu_hides_no_stray():
    stray = next(one for one in ten_processes() if one.stray)
    other = a_finding(cause="nvml_mismatch", gpu=None, pid=None, facts={})
    assert len(readings_alone(quiet(processes=(stray,), findings=(other,)))) == 1


def test_unaccounted_memory_that_a_finding_explains_is_not_told_again():
    ledger = a_ledger()
    named = a_finding(cause="unkillable", gpu=6, pid=6001, facts={})
    assert readings_alone(quiet(ledger=(ledger,))) != []
    assert readings_alone(quiet(ledger=(ledger,), findings=(named,))) == []


def an_xid(xid):
    sentence = f"Xid {xid} on GPU 0: something."
    at = "2026-11-30T14:01:30.000Z"
    return Event(at=at, gpu=0, kind="xid", sentence=sentence, severity="error", xid=xid)


@pytest.mark.parametrize(("xid", "alone"), [(31, 0), (94, 1)])
def test_an_xid_is_told_again_only_when_the_finding_rests_on_another_one(xid, alone):
    fault = heat(0, flow="kernel-fault", cause="illegal_access", facts={"xid": 31})
    snapshot = quiet(events=(an_xid(xid),), findings=(fault,))
    assert len(readings_alone(snapshot)) == alone


def test_what_does_not_fit_is_counted():
    snapshot = quiet(findings=tuple(heat(n, title=f"GPU {n}: slow, number {n}") for n in range(40)))
    line = plain(alert_line(alerts(snapshot), 80, UTF8, "i: what to do"))
    assert line.endswith("  i: what to do  +38 more")
    assert len(line) <= 80


# -- at the rows


def test_the_short_word_of_a_finding_stands_at_its_gpu_once():
    snapshot = quiet(gpus=(hot(1), a_gpu(2)), findings=(heat(1), heat(2)))
    others = snapshot_remarks(snapshot)
    texts = [[one.text for one in all_remarks(g, False, others[g.index])] for g in snapshot.gpus]
    assert texts == [["! heat"], ["! heat", "cap"]]


def test_a_finding_adds_its_sign_to_the_number_of_the_reading():
    limited = a_gpu(0, power_limit_w=500.0, throttle_reasons=())
    snapshot = quiet(gpus=(limited,), findings=(heat(0, cause="power_limit_lowered"),))
    remarks = all_remarks(limited, False, snapshot_remarks(snapshot)[0])
    assert [one.text for one in remarks] == ["! limit 500 W"]
    assert remarks[0].role == "warn"


def test_a_finding_about_a_process_stands_at_the_gpus_that_it_uses():
    snapshot = quiet(processes=(a_process(4711),), findings=(rank_behind(),))
    assert [one.text for one in snapshot_remarks(snapshot)[0]] == ["! rank behind"]


def test_a_finding_of_a_gpu_that_is_not_there_breaks_no_row():
    snapshot = quiet(findings=(heat(9),))
    history = a_history(snapshot, 2)
    rows = gpu_lines(snapshot.gpus, history, 80, 9, UTF8, snapshot_remarks(snapshot))
    assert len(rows) == 3
    assert not any("heat" in plain(row.line) for row in rows)


def test_processes_that_a_warning_names_are_marked_with_the_reason():
    processes = (a_process(4711), a_process(4712), a_process(4713))
    findings = (rank_behind(), heat(0, pid=4713, severity="info"))
    words = troubled(findings)
    assert words == {4711: "rank behind"}
    table = process_table(80, UTF8, processes=processes, attached=[4711, 4712], troubled=words)
    marks = [plain(row.line)[:3].strip() for row in process_rows(table, processes)]
    assert marks == ["!", "a", ""]
    assert "rank behind: python train" in plain(process_rows(table, processes)[0].line)


# -- the list and the page


def known(*findings, cleared=()):
    history = FindingHistory()
    history.append(a_snapshot(findings=(*findings, *cleared), taken_at="2026-11-30T14:02:00.000Z"))
    history.append(a_snapshot(findings=findings, taken_at="2026-11-30T14:02:11.000Z"))
    return history.known()


def test_the_list_has_what_stands_then_what_has_cleared():
    rows = listed(known(heat(1), rank_behind(), cleared=(heat(2),)), [], ())
    header, lines = finding_rows(rows, 100, UTF8, None)
    texts = [plain(line.line) for line in lines]
    assert "WHAT" in plain(header)
    assert [text.split()[0] for text in texts] == ["!!", "!", "✓"]
    assert "cleared 14:02:11: slowed by heat" in texts[2]


def test_forty_findings_are_forty_rows_of_one_line():
    rows = listed(known(*(heat(n) for n in range(40))), [], ())
    _, lines = finding_rows(rows, 80, UTF8, None)
    assert len(lines) == 40
    assert len({line.key for line in lines}) == 40
    assert all(line_width(line.line) <= 80 for line in lines)


def test_facts_are_told_in_units_that_people_read():
    facts = {
        "tried_bytes": 2 * GIB,
        "read_bytes_per_s": 1.9e9,
        "data_share": 0.976,
        "temperature_c": 91,
        "timeout_s": 600.0,
        "other_procs_bytes": {"7": GIB, "8": 512 << 20},
        "ranks": [1, 2],
        "hidden": True,
        "nothing": None,
        "gpu": 3,
    }
    assert fact_words(facts, ("gpu",)) == [
        ("tried", "2.0 GiB"),
        ("read", "1.9 GB/s"),
        ("data", "97.6 %"),
        ("temperature", "91 °C"),
        ("timeout", "600 s (10m)"),
        ("other procs", "7: 1.0 GiB, 8: 512 MiB"),
        ("ranks", "1, 2"),
        ("hidden", "yes"),
    ]


def test_the_page_has_everything_in_its_order_and_crops_nothing():
    finding = a_finding(explanation="A long explanation with words. " * 20)
    text = " ".join(plain(line).strip() for line in finding_page(finding, a_snapshot(), 60, UTF8))
    parts = ["70.0 GiB held", "A long", "Evidence", "Facts", "It is not", "It could also be"]
    places = [text.index(part) for part in (*parts, "What to do", "asks first", "It is repaired")]
    assert places == sorted(places)
    assert text.count("A long explanation") == 20
    assert "…" not in text
    for words in ("kill -TERM 5602 5617", "what they have not saved", "still holds the device."):
        assert words in text


def test_a_gpu_and_a_process_that_are_not_there_are_told_so():
    finding = heat(9, pid=999_999)
    text = "\n".join(plain(line) for line in finding_page(finding, a_snapshot(), 80, UTF8))
    assert "GPU 9 (not shown here)" in text
    assert "pid 999999  holds no GPU memory here now" in text


def test_a_cleared_finding_says_when():
    (one,) = known(cleared=(heat(2),))
    assert "Cleared at 14:02:11" in plain(cleared_lines(one, 80, UTF8, 0.0)[0])
    assert plain(finding_title(one, "1 of 1", 80, UTF8)).rstrip().endswith("cleared at 14:02:11")


def test_hostile_text_is_shown_and_obeyed_by_nobody():
    finding = a_finding(
        title=HOSTILE,
        explanation=HOSTILE,
        evidence=(Evidence(text=HOSTILE, line=1, source=HOSTILE),),
        facts={HOSTILE: HOSTILE, "list": [HOSTILE], "map_bytes": {HOSTILE: HOSTILE}},
        fixes=(a_fix(HOSTILE, value=HOSTILE, why=HOSTILE, loses=HOSTILE, verify=HOSTILE),),
        also=(Also(cause=HOSTILE, why=HOSTILE),),
        not_=(HOSTILE,),
    )
    lines = finding_page(finding, a_snapshot(), 80, UTF8)
    text = "".join(plain(line) for line in lines)
    assert "red" in text
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")]


hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["x" * 900, "训" * 90, "👩\u200d🔬", HOSTILE, "e\u0301" * 40, "", " "]),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3),
    max_leaves=5,
)
fixes = st.builds(
    Fix,
    title=hostile,
    kind=st.sampled_from(
        ["command", "env", "code-change", "in-process", "kill", "hardware", "wait"]
    ),
    value=hostile,
    risk=st.sampled_from(["safe", "confirm", "admin"]),
    why=hostile,
    loses=hostile,
    verify=hostile,
)
some = st.builds(
    Finding,
    flow=hostile,
    cause=hostile,
    severity=st.sampled_from(["info", "warning", "error"]),
    confidence=st.floats(0.0, 1.0),
    title=hostile,
    explanation=hostile,
    evidence=st.lists(
        st.builds(Evidence, text=hostile, line=st.none() | st.integers(0, 10**9), source=hostile),
        max_size=3,
    ).map(tuple),
    facts=st.dictionaries(
        hostile | st.sampled_from(["a_bytes", "b_share", "c_pct", "pids", "gpus", "xid"]),
        anything,
        max_size=4,
    ),
    fixes=st.lists(fixes, max_size=3).map(tuple),
    also=st.lists(st.builds(Also, cause=hostile, why=hostile), max_size=2).map(tuple),
    not_=st.lists(hostile, max_size=2).map(tuple),
    gpu=st.none() | st.integers(0, 70),
    pid=st.none() | st.integers(1, 1 << 22),
)


@settings(max_examples=120, deadline=None)
@given(some, st.integers(40, 250), st.sampled_from([UTF8, Glyphs.ascii()]))
def test_no_line_of_any_finding_is_too_wide_or_carries_control_characters(finding, width, glyphs):
    snapshot = a_snapshot(findings=(finding,))
    one = Known(1, finding, snapshot.taken_at, True, None)
    header, rows = finding_rows(listed([one], [], snapshot.processes), width, glyphs, 0.0)
    lines = [
        header,
        *(row.line for row in rows),
        finding_title(one, "1 of 1", width, glyphs, 0.0),
        *finding_page(finding, snapshot, width, glyphs),
        *finding_preview(finding, snapshot, width, glyphs),
        *cleared_lines(one._replace(cleared_at=one.since), width, glyphs, 0.0),
        alert_line(alerts(snapshot), width, glyphs),
    ]
    for line in lines:
        text = plain(line)
        assert line_width(line) <= width
        assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
        assert text.isascii() or not glyphs.ascii_only


def test_three_findings_in_one_preview_each_fit_the_page():
    for one in three():
        text = "\n".join(plain(line) for line in finding_preview(one, a_snapshot(), 80, UTF8))
        assert one.fixes[0].value in text


def test_where_evidence_was_read_is_not_cut_on_a_narrow_page():
    one = rank_behind()
    for width in (40, 80, 130):
        words = " ".join(
            plain(line).strip() for line in finding_page(one, a_snapshot(), width, UTF8)
        )
        assert "output of pid 4712, line 4711" in " ".join(words.split())
