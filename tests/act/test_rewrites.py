"""What the rewrites of source change, to the byte, and what they leave alone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from rewriting import Case, cases, diff_of

from cockpit.act.rewrites import KINDS, rewrite
from cockpit.act.suggestions import SUGGESTIONS

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.kind}: {c.name}")
def test_the_certain_place_changes_and_nothing_else(case: Case):
    edit = rewrite(case.kind, case.text, case.line, case.facts)
    assert (diff_of(case.text, edit.text) if edit else "unchanged") == case.diff
    if edit:
        compile(edit.text, "train.py", "exec")


def test_the_table_has_both_sorts_of_every_kind():
    changed = Counter(case.kind for case in CASES if case.diff != "unchanged")
    left = Counter(case.kind for case in CASES if case.diff == "unchanged")
    assert {kind for kind in KINDS if changed[kind] < 4 or left[kind] < 3} == set()


@pytest.mark.parametrize("case", [c for c in CASES if c.diff != "unchanged"], ids=lambda c: c.name)
def test_a_second_time_changes_nothing_or_what_the_first_left(case: Case):
    """A patch that was applied is not offered again: not one kind piles up."""
    text, line = case.text, case.line
    for _ in range(3):
        edit = rewrite(case.kind, text, line, case.facts)
        if edit is None:
            return
        text = edit.text
    pytest.fail(f"still changing: {diff_of(case.text, text)}")


@pytest.mark.parametrize("case", [c for c in CASES if c.diff != "unchanged"], ids=lambda c: c.name)
def test_line_ends_of_another_system_stay(case: Case):
    edit = rewrite(case.kind, case.text.replace("\n", "\r\n"), case.line, case.facts)
    unix = rewrite(case.kind, case.text, case.line, case.facts)
    assert edit is not None
    assert unix is not None
    assert edit.text == unix.text.replace("\n", "\r\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# only a comment",
        "for x in loader:\n    loss = model(x)\n   loss.backward()\n",
        "print 'Python 2'\n",
        "x = " + "(" * 3000 + "1" + ")" * 3000,
        "x = 1" + " + 1" * 3000,
        "x = " + "not " * 50_000 + "1",
        "if a:\n    pass\n" + "elif a:\n    pass\n" * 50_000,
        "for x in l: loss = model(x); loss.backward(); losses.append(loss)",
        "if a:\n    pass\nelif torch.load(p):\n    DataLoader(d)\n",
        "def f(: pass",
    ],
    ids=range(12),
)
def test_source_that_is_not_understood_is_no_certain_place(kind: str, text: str):
    """And what is nested without end does not take the process down (it does in libcst alone)."""
    for line in (0, 1, 2, 99):
        edit = rewrite(kind, text, line, {"workers": 2})
        if edit is not None:
            compile(edit.text, "train.py", "exec")


def test_an_unknown_kind_is_an_error_of_the_caller():
    with pytest.raises(KeyError):
        rewrite("os", "", 1, {})


def test_each_kind_can_be_done_by_hand_too():
    assert set(KINDS) == set(SUGGESTIONS)


def test_libcst_is_loaded_with_the_first_rewrite_only():
    program = (
        "import sys, cockpit.act.patch, cockpit.act.suggest, cockpit.act.rewrites\n"
        "assert 'libcst' not in sys.modules\n"
        "cockpit.act.rewrites.rewrite('no_grad', '', 1, {})\n"
        "assert 'libcst' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
