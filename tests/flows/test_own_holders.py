"""What fills a card may be one's own: what the user's other processes can give back, and what is
said of memory that nobody owns."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from cockpit.engine.largest_tensors import LargestTensors
from cockpit.flows import FLOWS, machine
from cockpit.flows.flow import Known, Remedy
from cockpit.flows.machine import State
from cockpit.model.flow import Done, FlowRequest
from cockpit.model.ledger import Explanation, Ledger
from cockpit.model.memory import BigTensor, Census, TensorGroup
from cockpit.model.process import Process
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.run import Run, RunDevice
from tests.flows.known import GIB, command, finding, gpu, known, process, run

NOTEBOOK = ("python", "-m", "ipykernel_launcher")
PREVIEW = Preview(title="t", form="operation", lines=(), risk="confirm", loses="", verify="")


def offered(flow: str, facts: Known) -> tuple[Remedy, ...]:
    return machine.looked(FLOWS[flow], State(), facts).remedies  # type: ignore[index]


def found(flow: str, facts: Known) -> dict[str, str]:
    state = machine.looked(FLOWS[flow], State(), facts)  # type: ignore[index]
    return {one.what: f"{one.mark} {one.sentence}" for one in state.found}


def titles(flow: str, facts: Known) -> list[str]:
    return [str(one.values.get("title")) for one in offered(flow, facts)]


def idle(pid: int, gib: float = 100, **changes: Any) -> Process:
    quiet = {"cpu_pct": 0.0, "devices": process(pid, gib).devices, **changes}
    return process(pid, gib, **{**quiet, "devices": _at_rest(process(pid, gib))})


def _at_rest(one: Process) -> tuple[Any, ...]:
    return tuple(replace(use, sm_pct=0.0) for use in one.devices)


def full(*processes: Process, used_gib: float = 130, **changes: Any) -> Known:
    """A run that found the card full, of which only the log is there."""
    failed = finding("oom_other_process", "oom", gpu=0, facts={"place": "/t.py:4"})
    request = FlowRequest(flow="oom", log="/run.log")
    options = {"finding": failed, "command": command(), "request": request, **changes}
    facts = known(*processes, **options)
    snapshot = replace(facts.snapshot, gpus=(gpu(0, used_gib),))
    return dataclasses.replace(facts, snapshot=snapshot)


# -- what one's own others hold


def test_an_own_idle_notebook_that_fills_the_card_is_freed_or_ended() -> None:
    kinds = [(one.kind, one.values.get("op")) for one in offered("oom", full(idle(2)))]
    assert kinds[:1] == [("kill", None)]
    notebook = idle(2, command=NOTEBOOK)
    kinds = [(one.kind, one.values.get("op")) for one in offered("oom", full(notebook))]
    assert kinds[:2] == [("attach", None), ("kill", None)]
    attached = full(notebook, runs=(run(2),))
    kinds = [(one.kind, one.values.get("op")) for one in offered("oom", attached)]
    assert kinds[:3] == [("operation", "free_frames"), ("operation", "empty_cache"), ("kill", None)]


def test_where_the_program_itself_is_too_big_its_own_changes_come_before_others_ends() -> None:
    failed = finding("oom_peak", "oom", gpu=0)
    rows = offered("oom", full(idle(2, 20), finding=failed))
    kinds = [one.kind for one in rows]
    assert kinds.index("relaunch") < kinds.index("kill")
    host = finding("host_oom", "oom")
    assert "kill" not in [one.kind for one in offered("oom", full(idle(2, 20), finding=host))]


def test_the_job_that_it_is_about_is_no_other_holder() -> None:
    mine = idle(2, ppid=9)
    request = FlowRequest(flow="oom", pid=2)
    rows = offered("oom", full(mine, runs=(run(2),), request=request))
    assert not [one for one in rows if one.values.get("op") == "empty_cache"]
    assert not [one for one in rows if "computes nothing" in str(one.values.get("title"))]


def test_another_users_notebook_is_neither_freed_nor_ended() -> None:
    rows = offered("oom", full(idle(2, command=NOTEBOOK, uid=1), runs=(run(2),)))
    assert not {"kill", "operation", "attach"} & {one.kind for one in rows}


# -- from inside a run


def holding(pid: int) -> Run:
    device = RunDevice(gpu=0, allocated_bytes=4 * GIB, reserved_bytes=5 * GIB, active_bytes=4 * GIB)
    return run(pid, devices=(device,))


def test_garbage_of_an_attached_run_is_collected_where_memory_is_short() -> None:
    def ops(flow: str, facts: Known) -> list[object]:
        return [one.values.get("op") for one in offered(flow, facts) if one.kind == "operation"]

    facts = known(process(1, 10), runs=(holding(1),))
    assert ops("vram-held", facts) == ["empty_cache", "gc"]
    assert "gc" not in ops("vram-held", known(process(1, uid=1), runs=(holding(1),)))
    notebook = known(process(1, command=NOTEBOOK), runs=(holding(1),))
    assert ops("vram-held", notebook) == ["free_frames", "empty_cache"]
    grows = finding("oom_growth", "oom", pid=1)
    request = FlowRequest(flow="oom", pid=1)
    growing = known(
        process(1), finding=grows, findings=(grows,), runs=(holding(1),), request=request
    )
    assert ops("oom", growing) == ["gc"]
    assert offered("oom", growing)[0].kind == "tensors"
    assert offered("oom", growing)[0].is_look


class Told:
    """A machine whose run answers."""

    source = "live"

    def __init__(self, census: Census) -> None:
        self.census, self.asked = census, []

    def ask_run(self, pid: int, question: str, deep: bool) -> Census:
        self.asked.append((pid, question, deep))
        return self.census


def test_the_largest_tensors_are_shown_with_the_names_that_hold_them() -> None:
    from cockpit.act.action import Console

    rows = (
        BigTensor(shape=(8,), dtype="float32", device="cpu", bytes=9 * GIB),
        BigTensor(
            shape=(4096, 262144),
            dtype="float32",
            device="cuda:0",
            bytes=4 * GIB,
            kind="tensor",
            holder="losses[3]\x1b[2J",
        ),
    )
    group = TensorGroup(kind="tensor", device="cuda:0", dtype="float32", count=5, bytes=6 * GIB)
    told = Told(Census(groups=(group,), biggest=rows, deep=True, complete=False))
    look = LargestTensors(told, 7)  # type: ignore[arg-type]
    assert look.preview().risk == "safe"
    outcome = look.run(Console(say=[].append))
    assert told.asked == [(7, "census", True)]
    assert outcome.output[0].startswith("4.0 GiB  cuda:0  float32 [4096, 262144]  tensor  losses[3")
    assert "\x1b" not in outcome.output[0]
    assert outcome.sentence.startswith("5 tensors with 6.0 GiB were found. Not all")
    assert outcome.verified is None


# -- an attach that waits


def test_an_attach_that_nobody_has_answered_is_offered_again_and_one_that_came_is_not() -> None:
    facts = full(idle(2, command=NOTEBOOK))
    state = machine.looked(FLOWS["oom"], State(), facts)
    at = [one.kind for one in state.remedies].index("attach")

    def after(ok: bool) -> list[str]:
        done = machine.finished(machine.chosen(state, at), PREVIEW, Outcome(ok=ok, sentence="s"))
        again = machine.looked(FLOWS["oom"], done, facts)
        return [one.kind for one in again.remedies]

    assert "attach" in after(False)
    assert "attach" not in after(True)


# -- memory that nobody owns


def ledger(unaccounted_gib: float) -> Ledger:
    return Ledger(
        gpu=0,
        total_bytes=140 * GIB,
        free_bytes=GIB,
        driver_reserved_bytes=0,
        processes=(),
        unaccounted_bytes=int(unaccounted_gib * GIB),
        explanations=(Explanation(kind="none_found", pids=(), sentence="why"),),
    )


AS_IT_WAS = "start the run again as it was"


def test_a_full_card_without_a_process_has_no_room_and_says_whose_memory_is_not_known() -> None:
    facts = full(used_gib=139)
    snapshot = replace(facts.snapshot, ledger=(ledger(138),))
    facts = dataclasses.replace(facts, snapshot=snapshot)
    assert AS_IT_WAS not in titles("oom", facts)
    told = found("oom", facts)["Memory without a process?"]
    assert "138.0 GiB have none" in told
    assert "cockpit fix vram-held" in told
    peak = dataclasses.replace(facts, finding=finding("oom_peak", "oom", gpu=0))
    assert "Whose memory?" not in found("oom", peak)


def test_with_room_the_run_starts_again_and_the_figures_are_told() -> None:
    facts = full(used_gib=1)
    first = offered("oom", facts)[0]
    assert first.values["title"] == AS_IT_WAS
    assert first.because == "139.0 GiB of 140.0 GiB are free there now."
    assert "Memory without a process?" not in found("oom", facts)


def test_of_several_cards_the_fullest_counts_where_the_message_names_none() -> None:
    facts = full(finding=finding("oom_other_process", "oom"))
    both = replace(facts.snapshot, gpus=(gpu(0, 1), gpu(1, 130)))
    assert AS_IT_WAS not in titles("oom", dataclasses.replace(facts, snapshot=both))
    both = replace(facts.snapshot, gpus=(gpu(0, 1), gpu(1, 2)))
    assert AS_IT_WAS in titles("oom", dataclasses.replace(facts, snapshot=both))


def test_what_is_freed_in_part_is_told_as_what_it_is() -> None:
    freed = Done(title="t", lines=(), ok=True, verified=True, sentence="", pids=(2,))
    facts = full(process(3, 60), used_gib=61, done=(freed,))
    one = next(one for one in offered("oom", facts) if one.values.get("title") == AS_IT_WAS)
    assert one.because == "79.0 GiB of 140.0 GiB are free there now."
