"""The report tells what was seen, done and how it came out; without secrets, without foreign
markup."""

from __future__ import annotations

from typing import Any

from cockpit.flows.report import MOST_LINES, code, markdown
from cockpit.model.flow import Done, Found
from cockpit.model.remedy import Compared


def done(**options: Any) -> Done:
    options = {"title": "install torch for cu126", "lines": ("pip install torch",), **options}
    return Done(**{"ok": True, "verified": None, "sentence": "Done.", **options})


def seen(sentence: str) -> Found:
    return Found(mark="bad", what="The build?", sentence=sentence)


def report(**options: object) -> str:
    given = {"title": "No CUDA", "subject": "pid 7, train.py", "seen": (), "done": ()}
    given |= {"outcome": "It computes on the GPU.", "environment": {}}
    return markdown(**{**given, **options})


def test_it_tells_what_was_seen_done_and_how_it_came_out() -> None:
    text = report(
        seen=[seen("It is for CPUs.")],
        done=[
            done(
                sentence="torch computes on 1 GPU(s).",
                verified=True,
                compared=(Compared(what="torch", before="2.7.0+cpu", after="2.7.0+cu126"),),
                output=("Successfully installed torch",),
                path="/home/ml1/run.log",
            )
        ],
        environment={"driver": "580.65.06"},
    )
    assert text.startswith("# No CUDA\n\n**Run:** pid 7, train.py\n\n**Outcome:** It computes")
    assert "- The build? It is for CPUs. (not well)\n" in text
    assert "### 1. install torch for cu126\n\n```text\npip install torch\n```" in text
    assert "Loses: nothing" in text
    assert "**Helped:** torch computes on 1 GPU(s)." in text
    assert "| torch | 2.7.0+cpu | 2.7.0+cu126 |" in text
    assert "```text\nSuccessfully installed torch\n```" in text
    assert "File: /home/ml1/run.log" in text
    assert "| driver | 580.65.06 |" in text
    assert text.endswith("|\n")


def test_a_patch_is_shown_as_a_diff() -> None:
    text = report(done=[done(lines=("--- train.py", "+++ train.py", "-a", "+b"))])
    assert "```diff\n--- train.py\n" in text


def test_what_failed_or_was_taken_back_is_said() -> None:
    text = report(
        done=[
            done(ok=False, sentence="No index answers."),
            done(verified=False, sentence="It is as slow."),
            done(undone=True),
            done(is_look=True, sentence="Three tensors hold it."),
        ]
    )
    for words in (
        *("**Failed:** No index", "**Did not help:** It is as slow."),
        *("**Not verified:** Done.", "**Taken back.**"),
        "**Done:** Three tensors hold it.",
    ):
        assert words in text


def test_secrets_are_masked_everywhere() -> None:
    token = "hf_abcdefghijklmnopqrst"
    text = report(
        title=f"with {token}",
        seen=[seen(f"HF_TOKEN={token}")],
        done=[done(lines=(f"--token {token}",), sentence=f"x {token}", output=(token,))],
        environment={"WANDB_API_KEY": "plain looking", "note": token},
    )
    assert token not in text
    assert "plain looking" not in text


def test_text_from_outside_is_no_markup() -> None:
    text = report(
        title="![x](http://evil/p.png) @everyone <img src=x>\x1b[2J",
        seen=[seen("a | b")],
        done=[done(output=("```", "# no heading", "````"))],
    )
    assert "![x]" not in text
    assert "\\@everyone" in text
    assert "<img" not in text.replace("\\<img", "")
    assert "\x1b" not in text
    assert "`````text\n```\n# no heading\n````\n`````" in text


def test_a_long_quotation_is_cut_in_its_middle() -> None:
    lines = code([f"line {n}" for n in range(500)]).split("\n")
    assert len(lines) == MOST_LINES + 3
    assert "… 460 lines left out …" in lines
    assert (lines[1], lines[-2]) == ("line 0", "line 499")


def test_nothing_seen_and_nothing_done_is_said() -> None:
    text = report()
    assert "Nothing out of the ordinary." in text
    assert "Nothing was changed." in text
