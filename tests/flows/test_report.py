"""The report tells what was seen, done and how it came out; without secrets, without foreign
markup."""

from __future__ import annotations

from cockpit.flows.report import MOST_LINES, Done, Seen, code, markdown
from cockpit.model.remedy import Compared, Outcome, Preview


def preview(**options: object) -> Preview:
    options = {"title": "install torch for cu126", "form": "command", **options}
    options = {"lines": ("pip install torch",), "risk": "confirm", **options}
    return Preview(loses="nothing", verify="a sum", **options)


def report(**options: object) -> str:
    given = {"title": "No CUDA", "subject": "pid 7, train.py", "seen": (), "done": ()}
    given |= {"outcome": "It computes on the GPU.", "environment": {}}
    return markdown(**{**given, **options})


def test_it_tells_what_was_seen_done_and_how_it_came_out() -> None:
    outcome = Outcome(
        ok=True,
        sentence="torch computes on 1 GPU(s).",
        verified=True,
        compared=(Compared(what="torch", before="2.7.0+cpu", after="2.7.0+cu126"),),
        output=("Successfully installed torch",),
    )
    text = report(
        seen=[Seen("The build is for CPUs.", ("torch 2.7.0+cpu",))],
        done=[Done(preview(), outcome)],
        environment={"driver": "580.65.06"},
    )
    assert text.startswith("# No CUDA\n\n**Run:** pid 7, train.py\n\n**Outcome:** It computes")
    assert "- The build is for CPUs.\n\n```text\ntorch 2.7.0+cpu\n```" in text
    assert "### 1. install torch for cu126\n\n```text\npip install torch\n```" in text
    assert "**Helped:** torch computes on 1 GPU(s)." in text
    assert "| torch | 2.7.0+cpu | 2.7.0+cu126 |" in text
    assert "| driver | 580.65.06 |" in text
    assert text.endswith("|\n")


def test_what_was_only_shown_refused_failed_or_taken_back_is_said() -> None:
    failed = Outcome(ok=False, sentence="No index answers.")
    text = report(
        done=[
            Done(preview(), None),
            Done(preview(refusal="It is the system's own."), None),
            Done(preview(), failed),
            Done(preview(), Outcome(ok=True, sentence="Done."), undone=True),
        ]
    )
    for words in (
        *("Shown, and not run.", "**Refused:** It is the system's own.", "**Failed:** No index"),
        *("**Not verified:** Done.", "**Taken back.**"),
    ):
        assert words in text


def test_secrets_are_masked_everywhere() -> None:
    token = "hf_abcdefghijklmnopqrst"
    text = report(
        title=f"with {token}",
        seen=[Seen(f"HF_TOKEN={token}", (f"login {token}",))],
        done=[Done(preview(lines=(f"--token {token}",)), Outcome(ok=True, sentence=f"x {token}"))],
        environment={"WANDB_API_KEY": "plain looking", "note": token},
    )
    assert token not in text
    assert "plain looking" not in text


def test_text_from_outside_is_no_markup() -> None:
    text = report(
        title="![x](http://evil/p.png) @everyone <img src=x>\x1b[2J",
        seen=[Seen("a | b", ("```", "# no heading", "````"))],
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
