"""Which flow it is where none was named, and what is said of a log beside this machine."""

from __future__ import annotations

from dataclasses import replace as replace_known
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.engine import flow_opening as opening
from cockpit.engine.flow_subject import with_oom, with_place
from cockpit.engine.master_port import other_port
from cockpit.flows import FLOWS, machine
from cockpit.flows.flow import Known
from cockpit.flows.machine import State
from cockpit.model.checkup import Check, Checkup, Subject
from cockpit.model.finding import Evidence
from cockpit.model.flow import FlowRequest
from cockpit.model.gpu import DriverError
from cockpit.model.ledger import Explanation, Ledger
from cockpit.model.run_command import RunMeasure
from tests.flows.known import GIB, command, finding, known, process, run, stray

LOG = FlowRequest(log="/tmp/run.log")


def told(flow: str, facts: Known) -> State:
    return machine.looked(FLOWS[flow], State(), facts)  # type: ignore[index]


def sentences(flow: str, facts: Known) -> dict[str, str]:
    return {one.what: f"{one.mark} {one.sentence}" for one in told(flow, facts).found}


def titles(flow: str, facts: Known) -> list[str]:
    return [str(one.values.get("title") or one.kind) for one in told(flow, facts).remedies]


def without_driver(**changes: Any) -> Known:
    facts = known(gpus=0, **changes)
    error = DriverError(
        code="driver_not_loaded", message="The driver is not loaded", advice=("modprobe nvidia",)
    )
    driver = replace(facts.snapshot.driver, error=error)
    return known_with(facts, driver=driver)


def known_with(facts: Known, **changes: Any) -> Known:
    return replace_known(facts, snapshot=replace(facts.snapshot, **changes))


def ledger(kind: str) -> Ledger:
    return Ledger(
        gpu=0,
        total_bytes=140 * GIB,
        free_bytes=70 * GIB,
        driver_reserved_bytes=0,
        processes=(),
        unaccounted_bytes=66 * GIB,
        explanations=(Explanation(kind=kind, pids=(), sentence="why"),),  # type: ignore[arg-type]
    )


# -- without a flow


def test_an_own_stray_leads_to_held_memory_and_another_users_does_not() -> None:
    assert opening.flow_of(known(stray(2)), None) == "vram-held"
    assert opening.flow_of(known(stray(2, uid=1)), None) is None


def test_memory_without_an_owner_leads_to_held_memory_unless_it_is_explained() -> None:
    assert opening.flow_of(known_with(known(), ledger=(ledger("none_found"),)), None) == "vram-held"
    assert opening.flow_of(known_with(known(), ledger=(ledger("mig"),)), None) is None


def test_an_error_comes_before_a_stray_and_a_stray_before_a_warning() -> None:
    error, warning = finding("oom_growth", "oom"), finding("sync", "slow", severity="warning")
    assert opening.flow_of(known(stray(2), finding=error), "oom") == "oom"
    assert opening.flow_of(known(stray(2), finding=warning), "slow") == "vram-held"


def test_without_a_driver_the_first_run_is_looked_at_and_nothing_is_ticked() -> None:
    assert opening.flow_of(without_driver(), None) == "first-run"
    assert opening.seen(without_driver()).mark == "bad"
    for flow in FLOWS:
        marks = [one.mark for one in told(flow, without_driver()).found]
        assert "ok" not in marks, flow


def test_with_a_log_this_machines_strays_do_not_decide() -> None:
    assert opening.flow_of(known(stray(2), request=LOG), "oom") == "oom"


def test_a_log_of_another_family_changes_the_flow_only_when_that_is_certain() -> None:
    fault = finding("index_out_of_range", "kernel-fault")
    facts = known(request=LOG, finding=fault)
    assert opening.other_flow("oom", facts, "kernel-fault") == "kernel-fault"
    said = opening.goes_on_as("oom", "kernel-fault", facts)[0].sentence
    assert said.startswith("This is not an out-of-memory: title of index_out_of_range.")
    unsure = known(request=LOG, finding=finding("x", "kernel-fault", confidence=0.5))
    assert opening.other_flow("oom", unsure, "kernel-fault") is None
    assert opening.other_flow("oom", known(request=LOG), None) is None
    live = known(process(1), request=FlowRequest(pid=1), finding=fault, findings=(fault,))
    assert opening.other_flow("slow", live, "kernel-fault") is None


def test_what_a_run_got_over_is_not_repaired_and_what_ended_it_is_named() -> None:
    got_over = finding("recovered", "oom", facts={"fatal": "OSError: too many files"})
    facts = known(request=LOG, finding=got_over)
    assert "What really ended the run: OSError" in opening.nothing_to_repair(facts)
    assert [one.mark for one in opening.harmless(facts)] == ["ok", "bad"]
    benign = known(request=LOG, finding=finding("benign", "kernel-fault"))
    assert opening.is_harmless(benign)
    quiet = finding("benign", "kernel-fault", confidence=0.7)
    assert not opening.is_harmless(known(request=LOG, finding=quiet)), "it may be slow, say"
    assert opening.nothing_to_repair(benign).startswith("Nothing to repair")


# -- a log is not this machine


def test_that_cuda_works_is_said_only_when_the_small_model_was_trained() -> None:
    def examined(status: str) -> Checkup:
        one = Check(id="small_success", title="t", status=status, sentence="s")  # type: ignore[arg-type]
        return Checkup(subject=Subject(sentence="s", python="/p"), checks=(one,))

    assert "CUDA works" in told("no-cuda", known(checkup=examined("pass"))).sentence
    assert "not proven" in told("no-cuda", known(checkup=examined("not_applicable"))).sentence
    for flow in ("no-cuda", "first-run"):
        assert "not known" in told(flow, known()).sentence
        state = told(flow, without_driver())
        assert state.remedies[0].values["lines"] == ("modprobe nvidia",)


def test_this_machines_clocks_do_not_contradict_a_log_about_heat() -> None:
    hot = known(request=LOG, finding=finding("thermal", "slow"))
    assert "Throttled?" not in sentences("slow", hot)
    data = known(request=LOG, finding=finding("dataloader", "slow"))
    assert sentences("slow", data)["Throttled?"].startswith("ok Now, on this machine: ")
    lost = known(request=LOG, finding=finding("gpu_off_bus", "kernel-fault"))
    assert not {"Xids?", "Memory of the card?"} & set(sentences("kernel-fault", lost))


def test_a_log_without_a_command_line_says_how_to_give_it() -> None:
    facts = known(request=LOG, finding=finding("oom_peak", "oom"))
    assert "cockpit fix ... -- python" in sentences("oom", facts)["Can it be started again?"]
    given = known(request=LOG, finding=finding("oom_peak", "oom"), command=command())
    assert "Can it be started again?" not in sentences("oom", given)


@pytest.mark.parametrize("flow", ["oom", "kernel-fault", "multi-gpu", "slow"])
def test_where_nothing_is_told_it_says_what_to_give(flow: str) -> None:
    assert "--log FILE" in told(flow, known()).sentence


# -- slow


def test_the_jobs_own_ranks_and_workers_are_no_neighbours() -> None:
    rank = {"world_size": 2, "ppid": 9}
    request = FlowRequest(pid=1, flow="slow")
    job = (process(1, rank=0, **rank), process(2, rank=1, **rank), process(3, ppid=1))
    assert sentences("slow", known(*job, request=request))["Neighbours?"].startswith("ok")
    other = known(*job, process(4, ppid=8), request=request)
    assert "1 other process computes there" in sentences("slow", other)["Neighbours?"]


def test_where_heat_is_the_cause_no_look_inside_and_no_end_is_offered() -> None:
    hot = finding("thermal", "slow", pid=1)
    request = FlowRequest(pid=1, flow="slow")
    facts = {"runs": (run(1),), "request": request, "command": command()}
    assert titles("slow", known(process(1), finding=hot, **facts)) == []
    assert "operation" in titles("slow", known(process(1), **facts))


# -- held memory, growth, ports, errors


def test_all_strays_are_only_ones_own_even_for_root() -> None:
    facts = known(stray(2, uid=0), stray(3, uid=0), stray(4, uid=7), uid=0)
    first = told("vram-held", facts).remedies[0]
    assert first.pids == (2, 3)
    assert first.values["title"] == "end all 2 strays"


def test_memory_that_grows_is_looked_into_before_it_fails() -> None:
    evidence = (Evidence(text="GPU 0 is full in about 55 s.", line=None, source="rules"),)
    grows = finding("oom_growth", "oom", pid=1, evidence=evidence)
    facts = known(
        process(1),
        finding=grows,
        findings=(grows,),
        request=FlowRequest(pid=1, flow="oom"),
        command=command(),
    )
    assert sentences("oom", facts)["Growing?"] == "bad GPU 0 is full in about 55 s."
    found = titles("oom", facts)
    assert found[0] == "attach"
    assert {"halve the batch"} < set(found)
    assert any(one.startswith("end the whole job") for one in found)


def test_a_port_in_use_is_not_met_again() -> None:
    facts = known(request=LOG, finding=finding("port_in_use", "multi-gpu"), command=command())
    assert titles("multi-gpu", facts) == ["start it again with another master port"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torchrun --nproc-per-node 4 t.py", "torchrun --master-port=7 --nproc-per-node 4 t.py"),
        ("torchrun --master_port 29500 t.py", "torchrun --master_port 7 t.py"),
        (
            "torchrun --rdzv-endpoint=localhost:29500 t.py",
            "torchrun --rdzv-endpoint=localhost:7 t.py",
        ),
        ("torchrun --nnodes 2 --master_port 29500 t.py", None),
        ("python t.py", None),
    ],
)
def test_the_master_port_is_changed_where_the_command_takes_it(
    before: str, after: str | None
) -> None:
    found = other_port(command(*before.split()), 7)
    assert (" ".join(found.argv or ()) if found else None) == after
    placed = other_port(command("env", "MASTER_PORT=1", "python", "t.py"), 7)
    assert placed is not None
    assert placed.set_environment == {"MASTER_PORT": "7"}


def test_a_run_that_printed_an_oom_had_one_though_no_agent_counted() -> None:
    failed, snapshot = finding("oom_peak", "oom"), known().snapshot
    assert with_oom(RunMeasure(ooms=0), failed, snapshot) == RunMeasure(ooms=1)
    assert with_oom(RunMeasure(ooms=3), failed, snapshot) == RunMeasure(ooms=3)
    assert with_oom(RunMeasure(ooms=0), finding("sync", "slow"), snapshot) == RunMeasure(ooms=0)
    live = known(findings=(failed,)).snapshot
    assert with_oom(RunMeasure(ooms=0), failed, live) == RunMeasure(ooms=0)


@pytest.mark.parametrize(
    ("cause", "pid", "place"),
    [
        ("num_workers_low", 7, "train.py:23"),
        ("dataloader", 7, "train.py:23"),
        ("sync", 7, None),  # another trouble's line
        ("dataloader", 8, None),  # another process
    ],
)
def test_the_line_that_a_log_lacks_comes_from_what_is_seen_of_the_process(
    cause: str, pid: int, place: str | None
) -> None:
    seen = finding(cause, "slow", "warning", pid=pid, facts={"place": "train.py:23", "frames": []})
    now = known(process(7, 1), process(8, 1), findings=(seen,)).snapshot
    logged = finding("num_workers_low", "slow", "warning", facts={"workers": 0})
    told = with_place(logged, FlowRequest(flow="slow", pid=7), now)
    assert told.facts.get("place") == place
    assert told.facts["workers"] == 0
