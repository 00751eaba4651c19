"""Inside a real training on the CPU (torch), and what depends on CUDA over faked statistics."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.talk import Program, running, wait_for

MIB = 1 << 20


@pytest.fixture
def faked(torch_python: str, folder: str) -> Iterator[Program]:
    """The CUDA functions of torch._C answer from a recording of an H200 (faked_cuda.py)."""
    with running(torch_python, "train.py", folder, "cuda") as program:
        program.wait_socket().wait_steps()
        yield program


def test_steps_are_counted_with_their_rate_and_age(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk:
        first = talk.data("stats")
        time.sleep(0.5)
        second = talk.data("stats")
    gained = second["step"] - first["step"]
    assert gained > 3
    assert second["steps_per_s"] == pytest.approx(gained / 0.5, rel=0.7)
    assert second["step_age_s"] < 0.5
    assert second["cuda_initialized"] is False
    assert second["devices"] == []


def test_the_training_thread_comes_first_in_the_stacks(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk:
        threads = talk.data("stacks")["threads"]
    assert threads[0]["training"]
    assert "main" in [frame[2] for frame in threads[0]["frames"]]


def test_without_a_step_nothing_is_done(torch_python: str, folder: str) -> None:
    with running(torch_python, "train.py", folder, "idle") as program:
        with program.wait_socket().talk() as talk:
            reply = talk.ask("gc", timeout_s=0.3)
            assert talk.data("stats")["step"] == 0
        assert reply["code"] == "no_step"
        assert reply["error"] == "No optimizer step within 0.3 s; nothing was done."


def test_what_a_client_asked_for_that_went_away_is_not_done(torch_python: str, folder: str) -> None:
    with running(torch_python, "train.py", folder, "idle") as program:
        program.wait_socket()
        with program.talk() as talk:
            for _ in range(8):
                talk.send("gc")
            talk.data("stats")
        time.sleep(0.2)
        with program.talk() as talk:  # else: 8 operations wait already
            assert talk.ask("gc", timeout_s=0.1)["code"] == "no_step"


def test_gc_runs_at_a_step_and_says_what_it_cost(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk:
        data = talk.data("gc")
    assert data["step"] >= 3
    assert data["step_took_more_ms"] > 0
    assert data["collected"] >= 0
    log = trainer.audit()
    assert [(line["op"], line["ok"]) for line in log] == [("gc", True)]
    assert log[0]["client_pid"] == os.getpid()


@pytest.mark.parametrize("op", ["empty_cache", "snapshot", "history"])
def test_what_needs_cuda_says_that_it_was_never_initialised(trainer: Program, op: str) -> None:
    with trainer.talk() as talk:
        reply = talk.ask(op, action="start")
    assert reply["code"] == "not_initialized"


def test_the_cheap_census_counts_what_the_optimizers_hold(trainer: Program) -> None:
    trainer.wait_steps(20)
    with trainer.talk() as talk:
        data = talk.data("census")
    rows = {(r["kind"], r["device"], r["dtype"]): r for r in data["tensors"]}
    weights = (64 * 256 + 256 + 256 * 8 + 8) * 4
    kept = 512 * 512 * 4
    assert rows["parameter", "cpu", "float32"]["bytes"] == weights + kept
    # The census comes between two steps of a backward pass as well.
    assert kept <= rows["gradient", "cpu", "float32"]["bytes"] <= weights + kept
    assert rows["optimizer_state", "cpu", "float32"]["bytes"] == 2 * weights + 4 * 4
    assert data["biggest"][0]["shape"] == [512, 512]
    assert data["devices"] == ["cpu"]
    assert data["longest_hold_ms"] < 5
    assert data["optimizers"] == 2


def test_two_hundred_censuses_leave_a_training_alive_that_drops_its_gradients(
    trainer: Program,
) -> None:
    """Read on the agent's thread, ``.grad`` is freed memory once in forty times: SIGSEGV."""
    trainer.wait_steps(20)
    for number in range(200):
        with trainer.talk() as talk:
            data = talk.data("census", deep=number % 8 == 0)
        assert data["sentence"] is None
        assert any(row["kind"] == "gradient" for row in data["tensors"])
    assert trainer.process.poll() is None


def test_without_a_step_or_with_readonly_gradients_are_not_counted_and_that_is_said(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "train.py", folder, "once", "304", "stay") as program:
        program.wait_socket().wait_steps(304)
        time.sleep(0.2)  # the second optimizer of the last step
        with program.talk() as talk:
            data = talk.data("census")
    assert "no optimizer step came" in data["sentence"]
    kinds = {row["kind"] for row in data["tensors"]}
    assert (kinds >= {"parameter", "optimizer_state"}, "gradient" in kinds) == (True, False)
    shutil.rmtree(folder)
    os.mkdir(folder, 0o700)
    with running(torch_python, "train.py", folder, env={"COCKPIT_AGENT_READONLY": "1"}) as program:
        program.wait_socket().wait_steps(20)
        with program.talk() as talk:
            data = talk.data("census")
    assert "--readonly leaves to itself" in data["sentence"]
    assert not any(row["kind"] == "gradient" for row in data["tensors"])


def test_the_deep_census_names_the_holders(trainer: Program) -> None:
    trainer.wait_steps(20)
    with trainer.talk() as talk:
        data = talk.data("census", deep=True, full=True)
    holders = {r["holder"] for r in data["biggest"]}
    modules = {r["type"]: r["count"] for r in data["modules"]}
    assert modules["Linear"] == 2
    assert modules["Net"] == 1
    assert data["complete"]
    assert any("param_groups" in str(h) or "inner.weight" in str(h) for h in holders)


def test_a_deep_census_holds_the_gil_for_less_than_five_milliseconds(trainer: Program) -> None:
    trainer.wait_steps(20)
    with trainer.talk() as talk:
        answers = [talk.data("census", deep=True) for _ in range(3)]
    # The best of three: a thread that the machine has put aside holds it all the same.
    assert min(data["longest_hold_ms"] for data in answers) < 5
    assert not any(data["complete"] for data in answers)


def test_a_census_of_a_crowded_program_goes_in_slices(torch_python: str, folder: str) -> None:
    """60,000 names of one module were looked at in one go, and a deque was copied whole."""
    with running(torch_python, "crowded.py", folder) as program:
        out, err = program.process.communicate(timeout=60)
    assert err == b""
    found = json.loads(out)
    assert found["longest_turn_ms"] < 5
    holders = [row["holder"] for row in found["biggest"]]
    assert "net.weight" in holders
    assert len({"own.weights", "own.part"} & set(holders)) == 1, "one storage"
    assert not any("7" in str(holder) for holder in holders)


def test_matmul_precision_is_set_and_put_back(trainer: Program) -> None:
    with trainer.talk() as talk:
        data = talk.data("set", name="matmul_precision", value="high")
        assert (data["old"], data["new"]) == ("highest", "high")
        data = talk.data("set", name="matmul_precision", value=data["old"])
        assert (data["old"], data["new"]) == ("high", "highest")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("matmul_precision", "low"),
        ("max_split_size_mb", 5),
        ("memory_fraction", 2),
        ("garbage_collection_threshold", float("nan")),
        ("backend", "cudaMallocAsync"),
        ("expandable_segments", "True,backend:x"),
        (None, None),
    ],
)
def test_other_values_are_refused(trainer: Program, name: str, value: object) -> None:
    with trainer.talk() as talk:
        reply = talk.ask("set", name=name, value=value)
    assert reply["code"] in ("bad_request", "not_initialized")


def test_a_profile_of_three_steps_divides_the_step(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk:
        data = talk.data("profile", steps=3)
        again = talk.data("profile", steps=1)
    assert data["steps"] == 3
    assert again["steps"] == 1
    assert data["measured_on"] == "cpu"
    parts = [data[k] for k in ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms")]
    assert min(parts) > 0
    assert sum(parts) < 1.3 * data["step_ms"]
    assert any(row["name"] == "aten::addmm" for row in data["top"])
    assert trainer.end() == (b"", b"")


def test_two_profiles_at_once_are_one_too_many(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk, trainer.talk() as other:
        talk.send("profile", steps=20)
        reply = other.ask("profile", steps=1)
        assert reply["code"] == "busy"
        assert talk.read()["ok"]


def test_torch_imported_after_the_agent_is_noticed(torch_python: str, folder: str) -> None:
    with running(torch_python, "train.py", folder, "late") as program:
        program.wait_socket().wait_steps(3)
        with program.talk() as talk:
            hello = talk.data("hello")
    assert hello["torch_version"]
    assert hello["note"] is None
    assert hello["step_hook"]


def test_a_program_that_looked_for_torch_before_is_noticed_too(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "train.py", folder, "looks") as program:
        program.wait_socket().wait_steps(3)


def test_oom_observer_and_history_come_with_a_late_torch(torch_python: str, folder: str) -> None:
    with running(torch_python, "late_cuda.py", folder) as program:
        out, err = program.process.communicate(timeout=60)
    assert (json.loads(out), err) == ({"observers": 1, "history": [100_000], "left": 0}, b"")


def test_a_profile_writes_no_line_though_every_warning_is_shown(
    torch_python: str, folder: str
) -> None:
    env = {"PYTHONWARNINGS": "always"}
    with running(torch_python, "train.py", folder, env=env) as program:
        program.wait_socket().wait_steps(3)
        with program.talk() as talk:
            for _ in range(2):
                assert talk.data("profile", steps=1)["events"]
        assert program.end() == (b"", b"")


def test_oom_files_go_to_the_folder_of_the_run(torch_python: str, folder: str) -> None:
    env = {"COCKPIT_RUN_DIR": f"{folder}/run"}
    os.makedirs(f"{folder}/run/oom", 0o700)
    with running(torch_python, "oom.py", folder, env=env) as program:
        Path(f"{folder}/run/oom/oom-{program.pid}-1.json").touch()  # of an earlier such pid
        out, err = program.process.communicate(timeout=60)
    record = json.loads(out)
    assert record["path"] == f"{folder}/run/oom/oom-{program.pid}-4.json"
    assert (len(os.listdir(f"{folder}/run/oom")), err) == (4, b"")


def test_detach_takes_the_hook_out_of_the_optimizers(trainer: Program) -> None:
    trainer.wait_steps(3)
    with trainer.talk() as talk:
        talk.data("detach")
    wait_for(lambda: not os.path.exists(trainer.path))
    time.sleep(0.3)
    assert trainer.process.poll() is None
    assert trainer.end() == (b"", b"")


def test_weights_are_the_same_to_the_bit_with_and_without_questions(
    torch_python: str, folder: str
) -> None:
    sums = []
    for asked in (False, True):
        with running(torch_python, "train.py", folder, "once", "400") as program:
            if asked:
                with program.wait_socket().talk() as talk:
                    talk.data("stats")
                    talk.data("census", deep=True)
                    talk.data("gc")
                    talk.data("profile", steps=2)
                    talk.data("stacks")
            out, err = program.process.communicate(timeout=60)
            assert err == b""
            sums.append(out)
    assert sums[0]
    assert sums[0] == sums[1]


# -- over faked statistics: no GPU is behind these -------------------------------------------


def test_faked_stats_come_from_the_raw_dictionary(faked: Program) -> None:
    with faked.talk() as talk:
        data = talk.data("stats")
        hello = talk.data("hello")
    assert hello["device_count"] == 2
    assert len(data["devices"]) == 1  # the second device was never used
    row = data["devices"][0]
    assert row["reserved_bytes"] == 12719226880
    assert row["allocated_peak_bytes"] == 12699303936
    assert row["alloc_retries"] == row["ooms"] == 0
    assert row["private_pool_bytes"] is None  # this torch did not tell
    assert row["largest_free_block_bytes"] is None


def test_faked_empty_cache_gives_before_and_after(faked: Program) -> None:
    with faked.talk() as talk:
        data = talk.data("empty_cache")
    assert data["before"][0]["reserved_bytes"] == 12719226880
    with faked.talk() as talk:
        uuids = [row["uuid"] for row in talk.data("stats")["devices"]]
    assert [row["uuid"] for row in data["before"]] == uuids
    assert [row["uuid"] for row in data["after"]] == uuids
    assert data["after"][0]["reserved_bytes"] == 1 << 30


def test_faked_segments_are_summed_and_their_runs_merged(faked: Program) -> None:
    with faked.talk() as talk:
        data = talk.data("snapshot", traces=False)
        stats = talk.data("stats")
    device = data["devices"][0]
    assert len(data["segments"]) == device["segments"] == 301
    assert data["segments"][0]["runs"] == [
        ["a", 8 * MIB],
        ["p", 2 * MIB],
        ["i", 6 * MIB],
        ["a", 4 * MIB],
    ]
    assert device["returnable_bytes"] == 20 * MIB
    assert device["stuck_bytes"] == 300 * 10 * MIB
    assert device["largest_free_block_bytes"] == 20 * MIB
    assert stats["devices"][0]["largest_free_block_bytes"] == 20 * MIB


def test_faked_snapshot_with_traces_is_a_private_new_file(faked: Program) -> None:
    with faked.talk() as talk:
        paths = [talk.data("snapshot", traces=True)["path"] for _ in range(2)]
    assert len(set(paths)) == 2
    for path in paths:
        assert path.startswith(faked.folder)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_faked_allocator_settings_keep_the_other_keys(faked: Program) -> None:
    with faked.talk() as talk:
        talk.data("set", name="max_split_size_mb", value=200)
        data = talk.data("set", name="expandable_segments", value=True)
        assert data["old"] == "False"
        assert data["settings"] == "max_split_size_mb:200,expandable_segments:True"
        undone = talk.data("set", name="max_split_size_mb", value="default")
        assert undone["old"] == "200"
        assert undone["settings"] == "expandable_segments:True"


def test_faked_history_is_recorded_until_the_detach(faked: Program) -> None:
    with faked.talk() as talk:
        assert talk.data("history", action="start")["recording"]
        assert talk.data("hello")["history"]
        assert talk.ask("history", action="start", max_entries=10**9)["code"] == "bad_request"
        assert not talk.data("history", action="stop")["recording"]


def test_the_oom_observer_is_installed_only_when_it_is_confirmed(faked: Program) -> None:
    with faked.talk() as talk:
        assert talk.ask("oom_observer")["code"] == "bad_request"
        assert talk.data("oom_observer", confirm=True)["installed"]
        assert talk.data("oom_observer", confirm=True)["already"]
        assert talk.data("oom_record") == {"observing": True, "seen": 0, "record": None}
        assert talk.data("detach") == {"oom_observer_stays": True}


def test_a_faked_oom_leaves_a_record_and_raises_nothing(torch_python: str, folder: str) -> None:
    with running(torch_python, "oom.py", folder) as program:
        out, err = program.process.communicate(timeout=60)
    assert (err, program.process.returncode) == (b"", 0), err
    record = json.loads(out)
    assert record["asked_bytes"] == 2 << 30
    assert record["devices"][0]["reserved_bytes"] == 12719226880
    assert record["frames"][0][2] == "allocates"
    on_disk = json.loads(Path(record["path"]).read_text())
    assert len(on_disk["segments"]) == 301


def test_a_faked_capture_delays_what_calls_cuda(torch_python: str, folder: str) -> None:
    env = {"COCKPIT_TEST_CAPTURING": f"{folder}/capturing"}
    with running(torch_python, "train.py", folder, "cuda", env=env) as program:
        program.wait_socket().wait_steps()
        Path(f"{folder}/capturing").touch()
        with program.talk() as talk:
            reply = talk.ask("empty_cache", timeout_s=0.5)
            assert reply["code"] == "no_step"
            assert "CUDA graph" in reply["error"]
            number = talk.send("empty_cache")
            time.sleep(0.2)
            Path(f"{folder}/capturing").unlink()
            reply = talk.read()
            assert (reply["id"], reply["ok"]) == (number, True)


def test_coming_and_going_beside_slow_hooks_never_breaks_a_step(
    torch_python: str, folder: str
) -> None:
    with running(torch_python, "hooks.py", folder, "150") as program:
        out, err = program.process.communicate(timeout=120)
    assert err == b""
    cycles, seen, steps, ours, hooks = map(int, out.split())
    assert (cycles, ours, hooks) == (150, 0, 2)
    assert seen >= 15
    assert steps > 100
