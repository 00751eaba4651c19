"""The 80 cases: each log has its cause, its numbers, and nothing that its must_not forbids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cockpit.diagnose import diagnose
from cockpit.diagnose.sizes import parse
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.model.finding import Finding
from tests.cases.must_not import FORBIDDEN

FOLDER = Path(__file__).parents[1] / "cases"
CASES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text().splitlines()]
MISSES: dict[str, str] = {}
"""Case → why its cause is not found; at most four."""


def finding(case: dict[str, Any]) -> Finding:
    with open(FOLDER / case["file"], "rb") as stream:
        return diagnose(stream)


def each_case() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])


@each_case()
def test_a_case_has_its_cause(case: dict[str, Any]) -> None:
    found = finding(case)
    right = found.cause in (case["cause"], *case["also_accepted"])
    assert right or case["id"] in MISSES, found


def test_at_most_one_case_in_twenty_is_missed() -> None:
    assert len(MISSES) * 20 <= len(CASES)


@each_case()
def test_a_case_has_its_numbers(case: dict[str, Any]) -> None:
    facts = finding(case).facts
    for name, wanted in case["expect"].items():
        if name == "other_procs":
            sizes = {pid: parse(size) for pid, size in wanted.items()}
            assert facts["other_procs_bytes"] == sizes
        elif isinstance(wanted, str) and wanted.endswith(("iB", " bytes")):
            assert facts[f"{name}_bytes"] == parse(wanted)
        else:
            assert facts[name] == wanted, name


@each_case()
def test_a_case_does_nothing_that_is_forbidden(case: dict[str, Any]) -> None:
    assert len(FORBIDDEN[case["id"]]) >= len(case["must_not"])
    for rule in FORBIDDEN[case["id"]]:
        assert not rule.broken_by(finding(case)), rule


@each_case()
def test_every_fix_says_what_it_risks_and_how_to_see_that_it_worked(case: dict[str, Any]) -> None:
    found = finding(case)
    assert found.flow == CAUSES[found.cause].flow
    assert found.fixes or found.cause == "benign"
    for fix in found.fixes:
        assert all((fix.title, fix.value, fix.why, fix.loses, fix.verify))
        assert "{" not in fix.title


def test_every_cause_has_a_repair() -> None:
    from cockpit.diagnose.answer import REPAIRS

    assert set(CAUSES) - {"unknown"} == set(REPAIRS)
