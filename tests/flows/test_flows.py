"""The seven flows as data: what each says and offers for a machine made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from cockpit.diagnose.fixes import Risk
from cockpit.flows import FLOWS, machine, multi_gpu
from cockpit.flows.flow import Known, Remedy
from cockpit.flows.machine import State
from cockpit.model.checkup import Check, Checkup, Subject
from cockpit.model.finding import Finding, Fix
from cockpit.model.flow import FLOW_IDS, Done, FlowRequest
from cockpit.model.gpu import Driver, DriverError
from cockpit.model.memory import Stacks, ThreadStack
from cockpit.model.profile import StepProfile
from cockpit.model.remedy import UndoRecord
from tests.flows.known import GIB, command, finding, known, process, run, stray


def offered(flow: str, facts: Known) -> tuple[Remedy, ...]:
    return machine.looked(FLOWS[flow], State(), facts).remedies  # type: ignore[index]


def titles(flow: str, facts: Known) -> list[str]:
    return [str(one.values.get("title") or one.values.get("op")) for one in offered(flow, facts)]


def kinds(flow: str, facts: Known) -> list[str]:
    return [one.kind for one in offered(flow, facts)]


def marks(flow: str, facts: Known) -> dict[str, str]:
    state = machine.looked(FLOWS[flow], State(), facts)  # type: ignore[index]
    return {one.what: one.mark for one in state.found}


def test_every_flow_that_can_be_asked_for_is_there() -> None:
    assert tuple(sorted(FLOWS)) == tuple(sorted(FLOW_IDS))


@pytest.mark.parametrize("flow", FLOW_IDS)
def test_no_flow_stumbles_over_a_machine_of_which_nothing_is_known(flow: str) -> None:
    state = machine.looked(FLOWS[flow], State(), known(gpus=0))  # type: ignore[index]
    assert state.phase in ("ended", "choosing")
    assert all(one.kind not in ("kill", "relaunch") for one in state.remedies)


def test_a_run_whose_output_shows_no_failure_is_not_called_well() -> None:
    """It may hang: that no line of its output fails is no sign of health."""
    quiet = finding("benign", "kernel-fault")
    assert marks("multi-gpu", known(finding=quiet))["What does the diagnosis say?"] == "note"
    of_log = known(finding=quiet, request=FlowRequest(flow="multi-gpu", log="/run.log"))
    assert marks("multi-gpu", of_log)["What does the diagnosis say?"] == "ok"


@pytest.mark.parametrize("flow", ["oom", "slow", "multi-gpu"])
def test_a_run_that_ended_with_status_0_is_well(flow: str) -> None:
    ended = finding("benign", "kernel-fault", facts={"exit_status": 0})
    request = FlowRequest(flow=flow, run="20261130-160000-aa")  # type: ignore[arg-type]
    facts = known(finding=ended, command=command(), request=request)
    state = machine.looked(FLOWS[flow], State(), facts)  # type: ignore[index]
    assert state.sentence == "The run ended with status 0: there is nothing to mend."
    assert state.found[0].sentence.startswith("The run ended with status 0")
    assert "so far" not in state.found[0].sentence


@pytest.mark.parametrize("flow", sorted({*FLOW_IDS}))
def test_every_flow_says_that_a_log_has_no_failure_that_is_known(flow: str) -> None:
    request = FlowRequest(flow=flow, log="/run.log")  # type: ignore[arg-type]
    empty = finding("unknown", "kernel-fault", title="The file is empty")
    state = machine.looked(FLOWS[flow], State(), known(finding=empty, request=request))  # type: ignore[index]
    (row,) = (one for one in state.found if "The file is empty." in one.sentence)
    assert row.mark == "unknown"
    assert "--log FILE" in row.sentence
    failed = msgspec.structs.replace(empty, title="ValueError: no", facts={"fatal": "no"})
    state = machine.looked(FLOWS[flow], State(), known(finding=failed, request=request))  # type: ignore[index]
    assert [one.sentence for one in state.found if "ValueError" in one.sentence] == [
        "ValueError: no."
    ]


# -- vram-held


def test_where_no_holder_can_be_looked_up_nobody_says_that_all_are_waited_for() -> None:
    hidden = process(2, 70, visible=False, start_ticks=None)
    assert marks("vram-held", known(hidden))["Strays?"] == "unknown"
    assert marks("vram-held", known(hidden, stray(3)))["Strays?"] == "bad"
    assert marks("vram-held", known(process(2)))["Strays?"] == "ok"


def test_a_stray_is_the_first_thing_to_end() -> None:
    facts = known(process(1, 80), stray(2, 38))
    first = offered("vram-held", facts)[0]
    assert first.kind == "kill"
    assert first.values["targets"] == ((2, 20),)
    assert first.values["signal"] == "TERM"
    assert marks("vram-held", facts)["Strays?"] == "bad"


def test_several_strays_are_ended_together_or_one_by_one() -> None:
    facts = known(stray(2, 38), stray(3, 5))
    assert [one.pids for one in offered("vram-held", facts)] == [(2, 3), (2,), (3,)]
    (told,) = (
        one.sentence
        for one in machine.looked(FLOWS["vram-held"], State(), facts).found
        if one.what == "Strays?"
    )
    assert told == "2 strays with 43.0 GiB. Pid 2: Its launcher has ended."


def test_another_users_process_is_named_and_never_offered() -> None:
    facts = known(stray(2, 38, uid=1, user="root"))
    assert offered("vram-held", facts) == ()
    assert marks("vram-held", facts)["Other users?"] == "note"
    assert [one.pids for one in offered("vram-held", known(stray(2, uid=1), uid=0))] == [(2,)]


def test_a_process_without_a_start_time_cannot_be_identified_and_is_not_offered() -> None:
    assert offered("vram-held", known(stray(2, start_ticks=None))) == ()


def test_a_process_that_computes_is_not_offered_to_be_ended() -> None:
    assert offered("vram-held", known(process(1, 80))) == ()


def test_an_idle_notebook_may_be_ended_but_comes_after_strays() -> None:
    notebook = process(
        1,
        20,
        command=("python", "-m", "ipykernel_launcher"),
        cpu_pct=0.1,
        devices=process(1).devices[:0],
    )
    assert offered("vram-held", known(notebook, gpus=2))[-1].pids == (1,)


def test_sigkill_comes_only_after_sigterm_in_this_flow() -> None:
    facts = known(stray(2))
    assert all(one.values["signal"] == "TERM" for one in offered("vram-held", facts))
    tried = Done(title="t", lines=(), ok=True, verified=False, sentence="", pids=(2,))
    again = offered("vram-held", known(stray(2), done=(tried,)))
    assert "KILL" in [one.values["signal"] for one in again]


def test_cached_memory_of_an_idle_attached_run_is_given_back_first() -> None:
    facts = known(process(1, 30), runs=(run(1),))
    one = offered("vram-held", facts)[0]
    assert (one.kind, one.values["op"]) == ("operation", "empty_cache")


# -- oom

OOM = {
    "tried_bytes": 2 * GIB,
    "free_bytes": GIB,
    "total_bytes": 140 * GIB,
    "reserved_unalloc_bytes": GIB // 2,
}


def oom(cause: str, *processes: Any, **changes: Any) -> Known:
    place = {"place": "/home/ml1/train.py:42"}
    return known(
        *processes,
        finding=finding(cause, "oom", facts=OOM | place, gpu=0),
        command=command(),
        **changes,
    )


def test_oom_by_a_stray_ends_the_stray_before_anything_else() -> None:
    assert offered("oom", oom("oom_other_process", stray(2, 130)))[0].pids == (2,)


def test_once_the_stray_is_gone_the_run_is_started_as_it_was() -> None:
    freed = Done(title="t", lines=(), ok=True, verified=True, sentence="", pids=(2,))
    first = offered("oom", oom("oom_other_process", done=(freed,)))[0]
    assert (first.kind, first.final) == ("relaunch", True)
    assert first.values["title"] == "start the run again as it was"


def test_oom_by_size_halves_the_batch_first_and_offers_no_expandable_segments() -> None:
    found = titles("oom", oom("oom_peak"))
    assert found[0] == "halve the batch"
    assert not any("expandable" in one for one in found)


def test_beside_others_a_program_that_has_most_of_the_card_can_be_made_smaller_too() -> None:
    facts = oom("oom_other_process", process(2, 60))
    assert "halve the batch" not in titles("oom", facts)
    assert facts.finding is not None
    much = msgspec.structs.replace(
        facts.finding, facts={**facts.finding.facts, "own_is_much": True}
    )
    assert "halve the batch" in titles("oom", dataclasses.replace(facts, finding=much))


def test_without_any_gpu_nothing_is_started_as_it_was() -> None:
    log = FlowRequest(flow="oom", log="/run.log")
    assert "start the run again as it was" in titles("oom", oom("oom_other_process", request=log))
    none = oom("oom_other_process", request=log, gpus=0)
    assert "start the run again as it was" not in titles("oom", none)


def test_without_a_driver_nobody_is_told_that_memory_is_not_short() -> None:
    lost = Driver(error=DriverError(code="library_not_found", message="No driver"))
    facts = known(request=FlowRequest(flow="oom", run="r"), command=command())
    snapshot = msgspec.structs.replace(facts.snapshot, driver=lost)
    state = machine.looked(FLOWS["oom"], State(), dataclasses.replace(facts, snapshot=snapshot))
    assert state.sentence.endswith("cockpit fix first-run.")


def test_oom_by_fragmentation_lets_segments_grow_first() -> None:
    assert "expandable_segments" in titles("oom", oom("oom_fragmentation"))[0]
    assert marks("oom", oom("oom_fragmentation"))["Fragmentation?"] == "bad"
    assert marks("oom", oom("oom_peak"))["Fragmentation?"] == "ok"


def test_oom_by_growth_patches_the_list_of_losses() -> None:
    assert offered("oom", oom("oom_growth"))[0].values["kind"] == "detach_loss"


def test_nobody_is_told_to_empty_the_cache_of_a_run_that_is_too_big() -> None:
    assert "operation" not in kinds("oom", oom("oom_peak"))


# -- no-cuda


def examined(*failed: tuple[str, str]) -> Checkup:
    checks = [
        Check(id=cause, title=title, status="fail", sentence=title, cause=cause)
        for cause, title in failed
    ]
    well = Check(id="pci", title="GPU on the bus", status="pass", sentence="one")
    subject = Subject(sentence="this python", python="/env/bin/python", environments=("/env",))
    return Checkup(subject=subject, checks=(well, *checks))


def test_a_cpu_build_is_replaced() -> None:
    facts = known(checkup=examined(("cpu_wheel", "A CPU build")))
    assert offered("no-cuda", facts)[0].kind == "install_torch"
    assert marks("no-cuda", facts) == {"1 step is well": "ok", "A CPU build": "bad"}


def test_a_python_that_the_log_is_not_of_gets_no_torch() -> None:
    request = FlowRequest(flow="no-cuda", log="/run.log")
    log = finding("cpu_wheel", "no-cuda", facts={"environment": "/home/u/venv"})
    built = known(finding=log, request=request, checkup=examined(("cpu_wheel", "A CPU build")))
    assert "install_torch" not in kinds("no-cuda", built)
    assert marks("no-cuda", built)["Whose Python?"] == "note"
    of_log = msgspec.structs.replace(log, facts={"environment": "/env"})
    built = dataclasses.replace(built, finding=of_log)
    assert "install_torch" in kinds("no-cuda", built)
    assert "Whose Python?" not in marks("no-cuda", built)


def test_a_python_that_the_user_names_gets_torch_by_what_is_seen_of_it() -> None:
    log = finding("cpu_wheel", "no-cuda", facts={"environment": "/home/u/venv"})
    facts = known(finding=log, command=command(), checkup=examined())
    assert "install_torch" not in kinds("no-cuda", facts)
    facts = dataclasses.replace(facts, checkup=examined(("cpu_wheel", "A CPU build")))
    assert "install_torch" in kinds("no-cuda", facts)


def test_no_build_is_offered_where_no_gpu_answers() -> None:
    facts = known(gpus=0, checkup=examined(("cpu_wheel", "A CPU build")))
    assert "install_torch" not in kinds("no-cuda", facts)
    assert "install_torch" not in kinds("first-run", facts)


def advised(value: str, risk: Risk = "safe") -> Finding:
    fix = Fix(title="t", kind="command", value=value, risk=risk, why="because", loses="", verify="")
    return finding("oom_peak", "oom", fixes=(fix,))


def test_a_command_with_a_gap_is_told_and_says_what_is_to_be_filled_in() -> None:
    for risk in ("safe", "admin"):
        (one,) = offered("oom", known(finding=advised("sudo docker restart <container>", risk)))
        assert one.kind == "explain"
        assert one.because == "because; what stands in <...> is yours to fill in"
    (one,) = offered("oom", known(finding=advised("sudo nvidia-smi -r", "admin")))
    assert (one.kind, one.because) == ("admin", "because")


def test_the_runs_own_command_line_stands_in_what_is_told() -> None:
    facts = known(finding=advised("compute-sanitizer python <script>"), command=command())
    (one,) = (one for one in offered("oom", facts) if one.values.get("title") == "t")
    assert one.values["lines"] == ("compute-sanitizer python train.py --bs 32",)
    assert one.because == "because"
    facts = known(
        finding=advised("sed -n 3p <this log>"), request=FlowRequest(flow="oom", log="/my run.log")
    )
    (one,) = (one for one in offered("oom", facts) if one.values.get("title") == "t")
    assert one.values["lines"] == ("sed -n 3p '/my run.log'",)


def test_hidden_gpus_are_shown_by_a_new_start() -> None:
    facts = known(finding=finding("cvd_hides_gpus", "no-cuda"), command=command())
    assert offered("no-cuda", facts)[0].values["unset"] == ("CUDA_VISIBLE_DEVICES",)


def test_where_the_variable_is_set_is_said_for_it_comes_back() -> None:
    lines = {"CUDA_VISIBLE_DEVICES": ("~/.bashrc line 7: export CUDA_VISIBLE_DEVICES=",)}
    hidden = finding("cvd_hides_gpus", "no-cuda")
    told = offered("no-cuda", known(finding=hidden, origins=lines))
    assert [one.values["lines"] for one in told if one.kind == "explain"] == [
        lines["CUDA_VISIBLE_DEVICES"]
    ]
    other = known(finding=finding("code_uses_cpu", "no-cuda"), origins=lines)
    assert not [one for one in offered("no-cuda", other) if one.kind == "explain"]


def test_data_left_on_the_cpu_is_moved_by_a_patch() -> None:
    where = {"place": "/home/ml1/train.py:9"}
    facts = known(finding=finding("code_uses_cpu", "no-cuda", facts=where), command=command())
    assert ("patch", "to_device") in [
        (one.kind, one.values.get("kind")) for one in offered("no-cuda", facts)
    ]


@pytest.mark.parametrize("live", [True, False])
def test_that_nothing_failed_is_known_of_a_live_finding_only(live: bool) -> None:
    """Then ``device = "cpu"`` is what is wrong, also in a script that knows of no GPU."""
    seen = finding("code_uses_cpu", "no-cuda", facts={"place": "/home/ml1/train.py:9"})
    findings = (seen,) if live else ()
    facts = known(finding=seen, findings=findings, command=command())
    (patch,) = (one for one in offered("no-cuda", facts) if one.kind == "patch")
    assert patch.values["facts"] == (("on_cpu", live),)


@pytest.mark.parametrize(("flow", "cause"), [("oom", "oom_peak"), ("slow", "no_mixed_precision")])
@pytest.mark.parametrize(
    ("capability", "offers"), [("7.5", False), ("8.0", True), ("12.0", True), (None, True)]
)
def test_bf16_is_offered_where_the_card_has_it(
    flow: str, cause: str, capability: str | None, offers: bool
) -> None:
    place = {"place": "/home/ml1/train.py:9"}
    facts = known(finding=finding(cause, flow, facts=place), command=command())
    (card,) = facts.snapshot.gpus
    card = msgspec.structs.replace(card, compute_capability=capability)
    snapshot = msgspec.structs.replace(facts.snapshot, gpus=(card,))
    found = offered(flow, dataclasses.replace(facts, snapshot=snapshot))
    assert any(one.values.get("kind") == "autocast_bf16" for one in found) is offers
    assert any(one.values.get("change") == ("precision", "bf16") for one in found) is offers


# -- kernel-fault


def test_a_fault_of_the_program_climbs_the_ladder_and_one_of_the_card_does_not() -> None:
    facts = known(finding=finding("illegal_access", "kernel-fault"), command=command())
    assert "ladder" in kinds("kernel-fault", facts)
    facts = known(finding=finding("ecc_dbe", "kernel-fault", gpu=0), command=command(), gpus=2)
    assert "ladder" not in kinds("kernel-fault", facts)
    assert offered("kernel-fault", facts)[0].values["freest_gpu"]


# -- slow


def test_a_starved_run_gets_workers() -> None:
    live = finding("num_workers_low", "slow", severity="warning", pid=1)
    facts = known(
        process(1), findings=(live,), request=FlowRequest(pid=1, flow="slow"), command=command()
    )
    assert offered("slow", facts)[0].values["change"] == ("workers", "15")


def test_a_profile_that_waits_for_data_leads_to_workers() -> None:
    profile = StepProfile(
        steps=10, measured_on="cuda", step_ms=200.0, data_wait_ms=180.0, device_busy_ms=16.0
    )
    taken = Done(title="t", lines=(), ok=True, verified=None, sentence="", profile=profile)
    request = FlowRequest(pid=1, flow="slow")
    facts = known(process(1), request=request, command=command(), done=(taken,))
    assert offered("slow", facts)[0].values["change"] == ("workers", "15")
    assert "end the whole job of" in titles("slow", facts)[-1]
    assert profile.sentence == (
        "A step takes 200.0 ms; 90% of that it waits for data, and the GPU computes 8% of it."
    )
    busy = msgspec.structs.replace(profile, data_wait_ms=2.0)
    healthy = dataclasses.replace(facts, done=(msgspec.structs.replace(taken, profile=busy),))
    assert titles("slow", healthy) == []


def test_a_healthy_run_gets_no_change() -> None:
    facts = known(process(1), request=FlowRequest(pid=1, flow="slow"), command=command())
    assert not {"relaunch", "patch", "kill"} & set(kinds("slow", facts))


@pytest.mark.parametrize("asked", [1, 2])
def test_either_of_two_that_share_a_gpu_is_offered_a_card_of_its_own(asked: int) -> None:
    pids = {"pids": [1, 2], "other_pid": 2}
    shared = finding("shared_gpu", "slow", severity="warning", pid=1, gpu=0, facts=pids)
    facts = known(
        *(process(1, ppid=8), process(2, ppid=9), process(3, on=1, ppid=7)),
        gpus=2,
        findings=(shared,),
        request=FlowRequest(pid=asked, flow="slow"),
        command=command(),
    )
    assert "start it on the freest GPU" in titles("slow", facts)
    assert marks("slow", facts)[shared.title] == "bad"
    third = dataclasses.replace(facts, request=FlowRequest(pid=3, flow="slow"))
    assert "start it on the freest GPU" not in titles("slow", third)


# -- multi-gpu

WAITING = (
    "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce",
    "/home/ml1/ddp.py:30 step",
)
AWAY = ("/home/ml1/ddp.py:41 save_everything", "/home/ml1/ddp.py:30 step")


def stacks(*frames: str) -> Stacks:
    main = ThreadStack(name="MainThread", is_training=True, frames=frames)
    return Stacks(threads=(main,), read_by="py-spy")


def test_the_rank_that_is_not_in_the_collective_is_named_with_its_line() -> None:
    facts = known(
        process(1, rank=0, world_size=2),
        process(2, on=1, rank=1, world_size=2),
        gpus=2,
        request=FlowRequest(pid=1, flow="multi-gpu"),
        stacks={1: stacks(*WAITING), 2: stacks(*AWAY)},
        command=command(),
    )
    assert multi_gpu.odd_one(facts) == (2, "/home/ml1/ddp.py:41 save_everything")
    found = machine.looked(FLOWS["multi-gpu"], State(), facts).found
    odd = next(one for one in found if one.what == "The odd one?")
    assert odd.mark == "bad"
    assert odd.sentence.startswith("rank 1 (pid 2) is at /home/ml1/ddp.py:41")
    assert offered("multi-gpu", facts)[0].values["place"] == "/home/ml1/ddp.py:41"


def test_ranks_that_are_all_in_the_collective_accuse_nobody() -> None:
    facts = known(
        process(1, rank=0), process(2, rank=1), stacks={1: stacks(*WAITING), 2: stacks(*WAITING)}
    )
    assert multi_gpu.odd_one(facts) is None
    assert marks("multi-gpu", facts)["The odd one?"] == "unknown"


def test_the_whole_job_is_ended_before_it_is_started_again() -> None:
    request = FlowRequest(pid=1, flow="multi-gpu")
    facts = known(process(1, rank=0), request=request, command=command())
    assert kinds("multi-gpu", facts) == ["kill"]
    assert offered("multi-gpu", facts)[0].values["job"]
    gone = known(request=request, command=command())
    assert offered("multi-gpu", gone)[0].values["setting"] == "hang_diagnostics"


# -- after a change


def test_a_patch_is_followed_by_a_run_that_shows_whether_it_helped() -> None:
    record = UndoRecord(kind="patch", title="p", data={})
    done = Done(title="p", lines=(), ok=True, verified=None, sentence="", undo=record)
    facts = known(finding=finding("code_uses_cpu", "no-cuda"), command=command(), done=(done,))
    assert "run it again with what was changed" in titles("no-cuda", facts)
