"""What plain mode says of a fix that ran: the file it left, and what a look came to."""

from __future__ import annotations

from typing import Any

from cockpit.commands import fix_lines
from cockpit.model.flow import Choose, Done
from cockpit.model.remedy import Compared, Preview

FIGURES = ("measured on: cuda", "step: 412.7 ms", "flash_fwd_kernel  41.0  32")


def said(**changes: Any) -> list[str]:
    row = {"title": "t", "lines": (), "ok": True, "verified": None, "sentence": "s."}
    return [one.strip() for one in fix_lines.done_lines(Done(**{**row, **changes}))]


def test_a_profile_is_shown_with_its_figures_and_its_file() -> None:
    lines = said(is_look=True, output=FIGURES, path="/tmp/p/profile-7.json")
    assert lines[1:] == [
        "[done] t",
        "s.",
        *(f"| {one}" for one in FIGURES),
        "Kept in /tmp/p/profile-7.json",
    ]


def test_a_look_that_failed_is_a_failure_and_one_of_many_lines_is_cut_at_its_end() -> None:
    assert "[failed] t" in said(is_look=True, ok=False)
    many = said(is_look=True, output=tuple(str(n) for n in range(100)))
    assert [one for one in many if one.startswith("|")][-1] == f"| {fix_lines.LOOK_LINES - 1}"


def test_what_a_fix_that_helped_printed_stays_away_but_its_record_is_named() -> None:
    record = "/home/ml1/.local/state/cockpit/runs/r1"
    compared = (Compared(what="end", before="status 1", after="status 0"),)
    lines = said(verified=True, output=("x",), path=record, compared=compared)
    assert "| x" not in lines
    assert lines[-1] == f"Kept in {record}"


def test_a_path_that_is_told_already_is_not_told_twice() -> None:
    assert not [one for one in said(path="/a.py", title="change /a.py") if "Kept" in one]


def test_a_path_from_outside_reaches_no_terminal_raw() -> None:
    assert "\x1b" not in "".join(said(path="/tmp/\x1b[2J"))


def test_a_reason_that_stops_several_fixes_is_told_once() -> None:
    made: dict[str, Any] = {"form": "operation", "lines": ("x",), "risk": "confirm"}
    made |= {"loses": "", "verify": "", "refusal": "gdb is too old."}
    options = tuple(Preview(title=f"look inside {n}", **made) for n in (7, 8))
    said = list(fix_lines.aside_lines(Choose(options=options)))
    assert said[1:] == ["  - look inside 7; look inside 8: gdb is too old."]
