"""What a flow keeps on disk: nothing that cannot be written, and no secrets."""

from __future__ import annotations

from pathlib import Path

from cockpit.act.journal import Journal
from cockpit.engine.flow_store import Journalled, Store
from cockpit.flows.machine import State
from cockpit.model.flow import Done, FlowRequest
from cockpit.model.remedy import Compared, Outcome, Preview

DONE = Done(title="t", lines=("a",), ok=True, verified=None, sentence="s")


def test_whoever_makes_the_state_directory_makes_it_private(tmp_path: Path) -> None:
    state = tmp_path / "state" / "cockpit"
    Store(state).save("a", FlowRequest(), FlowRequest(), State(done=(DONE,)))
    for path in (state, *state.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_command_that_is_no_utf8_loses_the_taking_up_and_not_the_flow(tmp_path: Path) -> None:
    store, begun = Store(tmp_path), FlowRequest(flow="oom")
    store.save(
        "a", begun, FlowRequest(flow="oom", command=("train\udcff.py",)), State(done=(DONE,))
    )
    assert list(tmp_path.rglob("*.new")) == []
    assert store.unfinished("oom", "b", begun) is None


URL = "https://me:hunt/er2@pass@host/simple"
SAID = f"pip says: ERROR: 403 Client Error for {URL}"


def test_what_an_installer_says_is_kept_without_its_password(tmp_path: Path) -> None:
    compared = Compared(what=SAID, before=SAID, after=SAID)
    done = Done(
        title=SAID,
        lines=(SAID,),
        ok=False,
        verified=None,
        sentence=SAID,
        compared=(compared,),
        output=(SAID,),
    )
    Store(tmp_path).save("a", FlowRequest(), FlowRequest(), State(done=(done,)))
    journal = Journal(tmp_path / "journal.jsonl")
    preview = Preview(
        title=SAID, form="command", lines=(SAID,), risk="confirm", loses="nothing", verify="v"
    )
    lines = Journalled(journal, "pip", preview, ())
    lines.intend()
    lines.came_to(Outcome(ok=False, verified=None, sentence=SAID))
    texts = [path.read_text() for path in (tmp_path / "flows" / "a.json", journal.path)]
    for text in texts:
        assert "pip says: ERROR: 403" in text
        assert not any(part in text for part in ("hunt", "er2", "pass", "me:"))
