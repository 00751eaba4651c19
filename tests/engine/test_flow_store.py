"""What a flow keeps on disk: nothing that cannot be written, and no secrets."""

from __future__ import annotations

from pathlib import Path

from cockpit.engine.flow_store import Store
from cockpit.flows.machine import State
from cockpit.model.flow import Done, FlowRequest

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
