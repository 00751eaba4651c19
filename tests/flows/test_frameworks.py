"""What is offered to programs of vLLM, JAX and TensorFlow, with the logs of tests/cases."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit import diagnose
from cockpit.act.command_change import change
from cockpit.engine.relaunches import relaunch
from cockpit.flows import FLOWS, machine
from cockpit.flows.flow import Known, Remedy
from cockpit.flows.machine import State
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowId, FlowRequest
from tests.flows.known import GIB, command, finding, known, process

CASES = Path(__file__).parents[1] / "cases"
VLLM = "vllm serve some/model --gpu-memory-utilization 0.4 --max-model-len 32768"


def logged(case: str) -> Finding:
    with next(CASES.glob(f"{case}-*.log")).open("rb") as stream:
        return diagnose.diagnose(stream)


def facts(found: Finding, line: str, flow: FlowId = "oom", **changes: object) -> Known:
    request = FlowRequest(flow=flow, log="/run.log")
    return known(finding=found, command=command(*shlex.split(line)), request=request, **changes)


def offered(told: Known) -> tuple[Remedy, ...]:
    return machine.looked(FLOWS[told.request.flow or "oom"], State(), told).remedies


def started(told: Known) -> list[str]:
    """The command lines that the offers come to; those that change no word are left out."""
    made = [relaunch(one.values, told) for one in offered(told) if one.kind == "relaunch"]
    rows = [one.argv for one in made if one is not None and one.argv is not None]
    return [shlex.join(one) for one in rows]


def patches(told: Known) -> list[str]:
    return [str(one.values["kind"]) for one in offered(told) if one.kind == "patch"]


def titles(told: Known) -> list[str]:
    return [str(one.values.get("title")) for one in offered(told)]


def test_a_serving_engine_without_room_gets_what_it_lacks_by_its_own_numbers() -> None:
    """1.42 GiB of 140 are 1 %; with 5 % for the cache it is rounded up to 7."""
    lines = started(facts(logged("016"), VLLM))
    assert lines == [
        VLLM.replace("0.4", "0.47"),
        VLLM.replace("32768", "16384"),
        f"{VLLM} --max-num-seqs 32",
    ]


def test_what_the_cockpit_can_change_itself_is_no_advice_to_do_it_by_hand() -> None:
    def by_hand(line: str) -> list[str]:
        rows = offered(facts(logged("016"), line))
        told = [one for one in rows if one.kind == "explain" and not one.is_spare]
        return [one.values["lines"][0].split()[0] for one in told]

    assert by_hand(VLLM) == ["--tensor-parallel-size"]
    assert by_hand("python serve.py")[0] == "--gpu-memory-utilization"


def test_what_no_number_tells_is_tried_and_said_to_be_tried() -> None:
    found = replace(logged("016"), facts={})
    told = offered(facts(found, VLLM + " --max-num-seqs 64"))
    assert [one.values["change"] for one in told if one.kind == "relaunch"] == [
        ("gpu_memory_utilization", "+0.10"),
        ("max_model_len", "half"),
        ("max_num_seqs", "half"),
    ]
    assert all("not known" in one.because or "tried" in one.because for one in told[:3])


def test_a_context_length_that_the_engine_names_itself_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (1.34 GiB). "
        "Based on the available memory, the estimated maximum model length is 10912.\n"
    )
    with log.open("rb") as stream:
        found = diagnose.diagnose(stream)
    assert VLLM.replace("32768", "10912") in started(facts(found, VLLM))


def test_an_engine_beside_others_takes_what_is_free_unless_that_is_next_to_nothing() -> None:
    found = logged("017")
    share = ("gpu_memory_utilization", "0.48")

    def changes(free_gib: int) -> list[object]:
        numbers = {"free_bytes": free_gib * GIB, "total_bytes": 140 * GIB, "wanted_bytes": 126}
        told = offered(facts(replace(found, facts=numbers), VLLM))
        return [one.values.get("change") for one in told if one.kind == "relaunch"]

    assert share in changes(70)
    assert not [one for one in changes(7) if one is not None]
    assert not [one for one in offered(facts(found, VLLM)) if "change" in one.values]


@pytest.mark.parametrize(("value", "after"), [("0.9", "0.95"), ("0.95", None), ("auto", None)])
def test_an_engine_never_gets_the_whole_card(value: str, after: str | None) -> None:
    line = f"vllm serve m --gpu-memory-utilization {value}"
    done = change(shlex.split(line), "gpu_memory_utilization", "+0.10")
    assert (done.argv[-1] if done else None) == after
    added = change(("vllm", "serve", "m"), "gpu_memory_utilization", "+0.10")
    assert added is not None
    assert added.argv[-2:] == ("--gpu-memory-utilization", "0.95")


# -- JAX and TensorFlow


def jax(line: str = "python train.py --batch-size 64") -> Known:
    numbers = {"backend": "jax", "tried_bytes": 8 * GIB, "place": "/home/ml1/train.py:9"}
    return facts(finding("oom_pool_budget", "oom", facts=numbers), line)


def test_a_jax_program_that_exhausts_its_pool_gets_half_the_batch_and_more_of_the_card() -> None:
    assert started(jax())[0] == "python train.py --batch-size 32"
    assert "let JAX have 90 % of the card" in titles(jax())
    large = command("python", "train.py", environment={"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"})
    numbers = {"backend": "jax"}
    told = known(finding=finding("oom_pool_budget", "oom", facts=numbers), command=large)
    assert "let JAX have 90 % of the card" not in titles(told)


def test_no_other_frameworks_program_is_offered_code_of_torch() -> None:
    keras = facts(logged("019"), "python fit.py --batch-size 128")
    for told in (keras, jax()):
        assert not patches(told)
        words = [line for one in offered(told) for line in one.values.get("lines", ())]
        assert words
        assert not [one for one in words if "torch" in one or "gradient_checkpointing" in one]
    assert "python fit.py --batch-size 64" in started(keras)
    same = known(
        process(7, framework="tensorflow"),
        finding=finding("oom_growth", "oom", facts={"place": "/t.py:3"}),
        request=FlowRequest(flow="oom", pid=7),
        command=command(),
    )
    assert not patches(same)
    unknown = facts(finding("oom_peak", "oom", facts={"place": "/t.py:3"}), "python t.py")
    assert patches(unknown) == ["autocast_bf16", "gradient_checkpointing"]


# -- causes that were left to the user


def test_an_allocator_that_empties_its_cache_at_every_step_gets_segments_that_grow() -> None:
    told = facts(logged("085"), "deepspeed train.py --bs 8", flow="slow")
    rerun = next(one for one in offered(told) if one.kind == "relaunch")
    assert rerun.values["setting"] == "expandable_segments"
    made = relaunch(rerun.values, told)
    assert made is not None
    assert "expandable_segments:True" in "".join(made.set_environment.values())


@pytest.mark.parametrize("case", ["024", "100"])
def test_where_the_hosts_memory_ran_out_half_as_many_workers_load(case: str) -> None:
    told = facts(logged(case), "python train.py --num-workers 8 --batch-size 32")
    assert started(told) == ["python train.py --num-workers 4 --batch-size 32"]
    alone = facts(logged(case), "python train.py --num-workers 1")
    assert started(alone) == ["python train.py --num-workers 0"]
    assert not started(facts(logged(case), "python train.py --num-workers 0"))
